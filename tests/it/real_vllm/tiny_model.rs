//! A model small enough for any machine: config.json and a tokenizer that knows single bytes. Its
//! weights are made up by vLLM (`load_format = "dummy"`).

use std::path::Path;

use serde_json::{Map, Value, json};

/// Its id.
pub(super) const ID: &str = "koi/tiny";
/// Its folder below the agent's `models.root`.
const FOLDER: &str = "koi--tiny";
/// One token per byte, then begin, end and padding.
const N_BYTES: u32 = 256;
const SPECIAL: [&str; 3] = ["<s>", "</s>", "<pad>"];

/// Two layers of a Llama with 32-bit weights.
pub(super) fn config_json() -> String {
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": N_BYTES + 3,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": false,
        "bos_token_id": N_BYTES,
        "eos_token_id": N_BYTES + 1,
        "pad_token_id": N_BYTES + 2,
        "torch_dtype": "float32",
    });
    config.to_string()
}

/// The printable character that byte-level tokenizers write for a byte: itself where it is a visible
/// Latin-1 character, else one from U+0100 on, in the order of the bytes.
fn character_of(byte: u8) -> char {
    let is_visible = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_visible(byte) {
        return char::from(byte);
    }
    let n_hidden_before = (0..byte).filter(|b| !is_visible(*b)).count();
    char::from_u32(0x100 + u32::try_from(n_hidden_before).unwrap()).unwrap()
}

fn tokenizer_json() -> Value {
    let vocabulary: Map<String, Value> = (0..=u8::MAX)
        .map(|byte| (character_of(byte).to_string(), json!(byte)))
        .chain(
            (N_BYTES..)
                .zip(SPECIAL)
                .map(|(id, name)| (name.to_owned(), json!(id))),
        )
        .collect();
    let added: Vec<Value> = (N_BYTES..)
        .zip(SPECIAL)
        .map(|(id, name)| {
            json!({"id": id, "content": name, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocabulary, "merges": []},
    })
}

/// Writes the model's folder below `root`.
pub(super) fn write(root: &Path) {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).unwrap();
    let tokenizer_config = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[0], "eos_token": SPECIAL[1], "pad_token": SPECIAL[2],
        "model_max_length": 1024,
    });
    for (name, text) in [
        ("config.json", config_json()),
        ("tokenizer.json", tokenizer_json().to_string()),
        ("tokenizer_config.json", tokenizer_config.to_string()),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
}

#[test]
fn every_byte_has_a_character_of_its_own() {
    let mut all: Vec<char> = (0..=u8::MAX).map(character_of).collect();
    assert_eq!(character_of(b' '), 'Ġ');
    assert_eq!(character_of(b'a'), 'a');
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 256);
}
