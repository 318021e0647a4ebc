//! A model's facts as values of the catalog's model variables, for conditions on them.
//!
//! Not every variable: one that the facts do not say is absent, never false.

use super::{MixerKind, ModelFacts};
use crate::catalog::Value;

impl ModelFacts {
    /// The value of a model variable of the catalog.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<Value> {
        let whole = |n: u32| Some(Value::Int(i64::from(n)));
        match name {
            "is_moe" => Some(Value::Bool(self.moe.is_some())),
            "is_multimodal" => Some(Value::Bool(self.is_multimodal())),
            "attention_kind" => Some(Value::Text(self.attention_kind().to_owned())),
            "has_recurrent_layers" => {
                Some(Value::Bool(self.has_mixer(|m| {
                    matches!(m, MixerKind::Linear | MixerKind::Mamba)
                })))
            }
            "sliding_window_tokens" => {
                let sliding = self.kinds.iter().filter(|k| k.mixer == MixerKind::Sliding);
                whole(sliding.filter_map(|k| k.window).max().unwrap_or(0))
            }
            "num_hidden_layers" => whole(self.layers),
            "hidden_size" => whole(self.hidden),
            "num_attn_heads" => whole(self.heads),
            "num_kv_heads" => whole(self.kv_heads),
            _ => None,
        }
    }

    fn has_mixer(&self, is: impl Fn(MixerKind) -> bool) -> bool {
        self.kinds.iter().any(|k| k.layers > 0 && is(k.mixer))
    }

    /// How the first layers with attention share keys and values.
    fn attention_kind(&self) -> &'static str {
        if self.has_mixer(MixerKind::is_latent) {
            return "mla";
        }
        let cached = self
            .has_mixer(|m| matches!(m, MixerKind::Full | MixerKind::Sliding | MixerKind::Chunked));
        match self.kv_heads {
            _ if !cached => "none",
            1 if self.heads > 1 => "mqa",
            n if n == self.heads => "mha",
            _ => "gqa",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(more: &str) -> ModelFacts {
        let text = format!(
            r#"{{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":64,
            "intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
            "vocab_size":256,"max_position_embeddings":512,"torch_dtype":"bfloat16"{more}}}"#
        );
        ModelFacts::from_config_json(&text).unwrap()
    }

    #[test]
    fn facts_are_values_of_the_catalogs_variables() {
        let catalog = crate::catalog::Catalog::embedded();
        let model = facts(r#","num_key_value_heads":2"#);
        for (name, expected) in [
            ("is_moe", Value::Bool(false)),
            ("is_multimodal", Value::Bool(false)),
            ("attention_kind", "gqa".into()),
            ("has_recurrent_layers", Value::Bool(false)),
            ("sliding_window_tokens", Value::Int(0)),
            ("num_hidden_layers", Value::Int(2)),
        ] {
            let value = model.feature(name).unwrap();
            assert_eq!(value, expected, "{name}");
            let row = catalog.feature(name).expect(name);
            assert!(row.domain.accept(&value).is_ok(), "{name}");
        }
        assert_eq!(model.feature("max_num_seqs"), None);
        let kind = |more| facts(more).feature("attention_kind");
        assert_eq!(kind(r#","num_key_value_heads":4"#), Some("mha".into()));
        assert_eq!(kind(r#","num_key_value_heads":1"#), Some("mqa".into()));
    }
}
