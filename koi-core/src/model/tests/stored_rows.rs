//! Facts in the database: written and read again, and rows from before layer kinds.

use super::*;

#[test]
fn facts_come_back_as_they_were() {
    for text in [LLAMA_8B, QWEN25_7B, QWEN3_30B_A3B, MIXTRAL] {
        let model = facts(text);
        let stored = serde_json::to_string(&model).unwrap();
        assert_eq!(serde_json::from_str::<ModelFacts>(&stored).unwrap(), model);
    }
}

#[test]
fn older_rows_grow_their_kinds() {
    let new_fields = [
        "base_dtype",
        "quantization",
        "kinds",
        "order",
        "parts",
        "notes",
    ];
    for text in [LLAMA_8B, QWEN25_7B, QWEN3_32B, QWEN3_30B_A3B, MIXTRAL] {
        let model = facts(text);
        let mut row = serde_json::to_value(&model).unwrap();
        for field in new_fields {
            row.as_object_mut().unwrap().remove(field);
        }
        let old: ModelFacts = serde_json::from_value(row).unwrap();
        assert_eq!(old.kinds, model.kinds);
        assert_eq!(old.params_total, model.params_total);
        let bytes = |m: &ModelFacts| m.weight_bytes_per_gpu(WeightDtype::Auto, 2, 1);
        assert!((bytes(&old) - bytes(&model)).abs() < 1.0);
    }
}
