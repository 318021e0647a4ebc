//! A processor as device: a job of real vLLM is placed there with the settings its CPU build needs.

use crate::configuration::engine_args;
use crate::host::EngineInstall;
use crate::job::{EngineName, JobSpec};
use crate::model::{ModelFacts, WeightDtype};
use crate::plan::{ActionKind, PlanDraft};
use crate::planner::test_world::{World, chat, context, job_id};

/// Two layers, 32-bit weights, 1024 positions.
const TINY: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 341, "max_position_embeddings": 1024,
    "tie_word_embeddings": false, "torch_dtype": "float32"}"#;

fn tiny() -> JobSpec {
    let mut spec = chat("tiny");
    spec.engine = EngineName::Vllm;
    spec.model.id = "koi/tiny".to_owned();
    spec.model.facts = ModelFacts::from_config_json(TINY).unwrap();
    spec.workload.isl.p99 = 300.0;
    spec.workload.isl.mean = 100.0;
    spec.workload.osl.p99 = 64.0;
    spec.workload.osl.mean = 32.0;
    spec
}

fn plan_on_cpu(version: &str) -> PlanDraft {
    let mut world = World::new();
    world.host("dev", "CPU", 1, "on_demand", 0.1);
    world.host_mut("dev").facts.engines = vec![EngineInstall {
        engine: EngineName::Vllm,
        version: version.to_owned(),
    }];
    world.job(1, tiny());
    world.checked().draft().clone()
}

#[test]
fn real_vllm_is_placed_on_a_processor() {
    let draft = plan_on_cpu("0.32.0+cpu");
    let action = draft.actions.iter().find(|a| a.job == job_id(1)).unwrap();
    assert_eq!(action.kind, ActionKind::Place, "{}", action.rationale);
    let rank = &action.ladder.as_ref().unwrap().ranks[0];
    let shape = rank.configuration.shape();
    assert_eq!((shape.tp, shape.pp, shape.block_size), (1, 1, 32));
    assert_eq!(shape.weight_dtype, WeightDtype::Fp32);
    assert_eq!(shape.max_model_len, Some(1024), "the model's positions");
    assert!(shape.enforce_eager);
    let args = engine_args(context().catalog, &rank.configuration, "0.32.0+cpu").unwrap();
    for word in ["--dtype=float32", "--enforce-eager", "--block-size=32"] {
        assert!(args.iter().any(|a| a == word), "{word} in {args:?}");
    }
}

#[test]
fn a_version_outside_the_flag_table_is_refused_with_the_reason() {
    let draft = plan_on_cpu("0.34.0+cpu");
    let action = draft.actions.iter().find(|a| a.job == job_id(1)).unwrap();
    assert_eq!(action.kind, ActionKind::Defer);
    let refusal = draft
        .considered
        .iter()
        .find(|c| c.code == "ENGINE")
        .unwrap();
    assert!(refusal.reason.contains("0.34.0+cpu"), "{}", refusal.reason);
}
