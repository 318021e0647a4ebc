//! Models by name: the shapes under `configs/models`, found by the names that people use.
//!
//! Not a registry of what may be served: any config.json will do. This is for tables of
//! measurements and for commands that take a name.

use std::sync::OnceLock;

use serde::Deserialize;

use super::ModelFacts;
use crate::violation::FieldViolation;

const INDEX: &str = include_str!("../../../configs/models/models.toml");

macro_rules! configs {
    ($($file:literal,)+) => {
        const CONFIGS: &[(&str, &str)] = &[
            $(($file, include_str!(concat!("../../../configs/models/", $file))),)+
        ];
    };
}

configs! {
    "Aquila-7B.json",
    "BLOOM-7B1.json",
    "DeciLM-7B.json",
    "DeepSeek-R1.json",
    "DeepSeek-R1-Distill-Llama-70B.json",
    "DeepSeek-V3.json",
    "DeepSeek-V3.1.json",
    "Falcon-180B.json",
    "GLM-4.5-Air.json",
    "GLM-4.6.json",
    "GPT-J-6B.json",
    "gpt-oss-120b.json",
    "gpt-oss-20b.json",
    "Llama-7B.json",
    "Llama-2-7B.json",
    "Llama-2-13B.json",
    "Llama-2-70B.json",
    "Llama-3-8B.json",
    "Llama-3-70B.json",
    "Llama-3.1-8B.json",
    "Llama-3.1-70B.json",
    "Llama-3.1-405B.json",
    "Llama-3.3-70B.json",
    "MiniMax-M2.5.json",
    "Mistral-7B-v0.1.json",
    "Mixtral-8x7B.json",
    "OPT-1.3B.json",
    "OPT-2.7B.json",
    "OPT-6.7B.json",
    "Qwen1.5-7B.json",
    "Qwen2-72B.json",
    "Qwen2.5-7B.json",
    "Qwen3-8B.json",
    "Qwen3-14B.json",
    "Qwen3-32B.json",
    "Qwen3-30B-A3B.json",
    "Qwen3-235B-A22B.json",
    "Qwen3.5-397B-A17B.json",
}

/// A model that is known by name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownModel {
    /// The name in tables of measurements.
    pub name: String,
    /// File under `configs/models`.
    pub config: String,
    /// Repository it is published as.
    pub published_as: String,
    /// Published count of parameters in billions.
    pub params_b: f64,
    /// Other names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What to know about the file.
    #[serde(default)]
    pub note: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    model: Vec<KnownModel>,
}

impl KnownModel {
    /// Every known model, in the order of the file.
    ///
    /// # Panics
    /// Never: a test reads the embedded file.
    #[must_use]
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<KnownModel>> = OnceLock::new();
        ALL.get_or_init(|| {
            let index: Index =
                toml::from_str(INDEX).expect("invariant: a test reads the embedded models.toml");
            index.model
        })
    }

    /// The model of this name, alias or repository; letter case does not matter.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        let is = |other: &str| other.eq_ignore_ascii_case(name);
        Self::all().iter().find(|model| {
            is(&model.name)
                || is(&model.published_as)
                || model.aliases.iter().any(|alias| is(alias))
        })
    }

    /// The text of its config.json.
    ///
    /// # Panics
    /// Never: a test looks up the file of every row.
    #[must_use]
    pub fn config_json(&self) -> &'static str {
        CONFIGS
            .iter()
            .find(|(file, _)| *file == self.config)
            .map(|(_, text)| *text)
            .expect("invariant: a test looks up the file of every row")
    }

    /// Its facts.
    ///
    /// # Errors
    /// As [`ModelFacts::from_config_json`]; a test shows that none of the embedded files has one.
    pub fn facts(&self) -> Result<ModelFacts, Vec<FieldViolation>> {
        ModelFacts::from_config_json(self.config_json())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests_support::{read, shared};

    #[test]
    fn every_file_has_its_published_count() {
        assert_eq!(KnownModel::all().len(), CONFIGS.len());
        for model in KnownModel::all() {
            let facts = model.facts();
            let facts = facts.unwrap_or_else(|e| panic!("{}: {e:#?}", model.name));
            let billions = facts.params_total as f64 / 1e9;
            let off = (billions / model.params_b - 1.0).abs();
            assert!(
                off < 1e-3,
                "{}: {billions}, published {}",
                model.name,
                model.params_b
            );
        }
    }

    #[test]
    fn names_are_found_and_mean_one_model() {
        assert_eq!(
            KnownModel::find("LLAMA-3.1-8B").unwrap().config,
            "Llama-3.1-8B.json"
        );
        assert_eq!(
            KnownModel::find("openai/gpt-oss-20b").unwrap().name,
            "gpt-oss-20b"
        );
        assert_eq!(KnownModel::find("no-such-model"), None);
        let mut names: Vec<String> = KnownModel::all()
            .iter()
            .flat_map(|m| m.aliases.iter().chain([&m.name, &m.published_as]))
            .map(|n| n.to_ascii_lowercase())
            .collect();
        let n = names.len();
        names.sort();
        names.dedup();
        // A published name may be its own short name only in spelling.
        assert_eq!(names.len(), n);
    }

    #[test]
    fn every_model_of_the_measurements_is_known() {
        let Some(path) = shared("data/perf_tidy.csv") else {
            return;
        };
        let text = read(&path);
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let column = header.iter().position(|h| *h == "model").unwrap();
        // The columns up to the model's hold no quotes.
        for name in lines.filter_map(|line| line.split(',').nth(column)) {
            assert!(
                KnownModel::find(name).is_some(),
                "{name} is not in models.toml"
            );
        }
    }

    #[test]
    fn files_agree_with_the_published_configs() {
        let Some(folder) = shared("data/model_configs") else {
            return;
        };
        for (name, file) in [
            ("deepseek-r1", "deepseek-ai--DeepSeek-R1"),
            ("deepseek-v3", "deepseek-ai--DeepSeek-V3"),
            ("gpt-j-6b", "mlc-preset--gpt_j"),
            ("gpt-oss-120b", "openai--gpt-oss-120b"),
            ("gpt-oss-20b", "openai--gpt-oss-20b"),
            ("llama-2-7b", "llama-2-7b-hf"),
            ("llama-2-70b", "mlc-preset--llama2_70b"),
            ("llama-3.1-8b", "meta-llama--Meta-Llama-3.1-8B"),
            ("llama-3.1-70b", "meta-llama--Meta-Llama-3.1-70B"),
            ("llama-3.1-405b", "meta-llama--Meta-Llama-3.1-405B"),
            ("minimax-m2.5", "MiniMaxAI--MiniMax-M2.5"),
            ("mistral-7b", "mlc-preset--mistral_7b"),
            ("mixtral-8x7b", "mistralai--Mixtral-8x7B-v0.1"),
            ("qwen2.5-7b", "qwen2.5-7b-instruct"),
            ("qwen3-8b", "Qwen--Qwen3-8B"),
            ("qwen3-32b", "Qwen--Qwen3-32B"),
            ("qwen3-30b-a3b", "Qwen--Qwen3-30B-A3B"),
            ("qwen3-235b-a22b", "Qwen--Qwen3-235B-A22B"),
            ("qwen3.5-397b-a17b", "Qwen--Qwen3.5-397B-A17B"),
        ] {
            let ours = KnownModel::find(name).unwrap().facts().unwrap();
            let text = read(&folder.join(format!("{file}.json")));
            let published = ModelFacts::from_config_json(&text).unwrap();
            assert_eq!(ours.kinds, published.kinds, "{name}");
            assert_eq!(ours.order, published.order, "{name}");
            assert_eq!(ours.parts, published.parts, "{name}");
            assert_eq!(ours.vocab, published.vocab, "{name}");
        }
    }
}
