//! Physics of the analytic member: limits, monotonicity, hand-computed numbers, mixtures.

mod honesty;
mod knobs;
mod mechanisms;
mod outcomes;
mod properties;
mod refusals;

use super::*;
use crate::catalog::Catalog;
use crate::job::{ArrivalPattern, LengthStats};
use crate::model::WeightDtype;
use crate::variables::{Mediator, Outcome};

/// Facts of a shipped model.
pub(super) fn facts(name: &str) -> ModelFacts {
    let text = match name {
        "Llama-3.1-8B" => include_str!("../../../configs/models/Llama-3.1-8B.json"),
        "Llama-3.1-70B" => include_str!("../../../configs/models/Llama-3.1-70B.json"),
        "Qwen3-32B" => include_str!("../../../configs/models/Qwen3-32B.json"),
        "Mixtral-8x7B" => include_str!("../../../configs/models/Mixtral-8x7B.json"),
        "Qwen3-30B-A3B" => include_str!("../../../configs/models/Qwen3-30B-A3B.json"),
        other => panic!("no model {other}"),
    };
    ModelFacts::from_config_json(text).unwrap()
}

pub(super) fn gpu(name: &str) -> &'static GpuType {
    Catalog::embedded().gpu_type(name).unwrap()
}

/// Lengths that are all the same.
pub(super) fn lengths(tokens: f64) -> LengthStats {
    LengthStats {
        mean: tokens,
        p50: tokens,
        p95: tokens,
        p99: tokens,
    }
}

pub(super) fn workload(isl: LengthStats, osl: LengthStats) -> Workload {
    Workload {
        arrival_rate_rps: 1.0,
        arrival_pattern: ArrivalPattern::Poisson,
        peak_to_mean: 1.0,
        isl,
        osl,
        shared_prefix_tokens: 0.0,
        prefix_concentration: 0.0,
        multi_turn_ratio: 0.0,
        session_affinity: false,
    }
}

pub(super) fn online_slo() -> Slo {
    Slo::Online {
        p99_ttft_ms: Some(1_000.0),
        p99_tpot_ms: Some(50.0),
    }
}

/// The engine that [`predict`] takes.
pub(super) fn profile() -> EngineProfile<'static> {
    EngineProfile::embedded(EngineGeneration::default())
}

/// One question with defaults; tests change what they are about.
struct Case {
    model: ModelFacts,
    gpu: &'static str,
    shape: EngineShape,
    workload: Workload,
    rate: f64,
    concurrency: Option<u32>,
    class: JobClass,
    slo: Slo,
    replicas: u32,
}

impl Case {
    fn new(model: &str, gpu: &'static str, tp: u32) -> Self {
        Self {
            model: facts(model),
            gpu,
            shape: EngineShape {
                tp,
                max_model_len: Some(8_192),
                ..EngineShape::default()
            },
            workload: workload(lengths(512.0), lengths(128.0)),
            rate: 1.0,
            concurrency: None,
            class: JobClass::Online,
            slo: online_slo(),
            replicas: 1,
        }
    }

    fn answer(&self) -> Answer {
        let deployment = Deployment {
            model: &self.model,
            gpu: gpu(self.gpu),
            shape: self.shape,
            n_replicas: self.replicas,
            price_usd_per_hour_per_replica: Some(3.0),
        };
        predict(
            &deployment,
            &Demand {
                workload: &self.workload,
                class: self.class,
                slo: &self.slo,
                rate_rps_per_replica: self.rate,
                batch_concurrency: self.concurrency,
            },
        )
    }

    fn predict(&self) -> Prediction {
        match self.answer() {
            Answer::Prediction(prediction) => prediction,
            other => panic!("{other:?}"),
        }
    }

    fn unsupported(&self) -> String {
        match self.answer() {
            Answer::Unsupported(reason) => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn tpot(case: &Case) -> f64 {
    case.predict().tpot_mean_ms.unwrap()
}

#[test]
fn decode_steps_have_the_known_size() {
    let small = Case {
        concurrency: Some(1),
        ..Case::new("Llama-3.1-8B", "H100", 1)
    };
    let ms = tpot(&small);
    assert!((6.5..10.0).contains(&ms), "8B on one H100: {ms}");
    let large = Case {
        concurrency: Some(1),
        ..Case::new("Llama-3.1-70B", "H100", 4)
    };
    let ms = tpot(&large);
    assert!((14.0..22.0).contains(&ms), "70B on four H100: {ms}");
}

#[test]
fn memory_of_8b_on_h100_adds_up() {
    let memory = Case::new("Llama-3.1-8B", "H100", 1).predict().memory;
    // 8,030,261,248 parameters at two bytes.
    assert!((memory.weights_bytes - 2.0 * 8_030_261_248.0).abs() < 1.0);
    assert!((memory.kv_bytes_per_token - 131_072.0).abs() < 1e-6);
    let sum = memory.weights_bytes
        + memory.activation_bytes
        + memory.reserved_bytes
        + memory.kv_pool_bytes;
    assert!((sum - memory.allowed_bytes).abs() < 1.0);
    // Engines report about 430,000 tokens of cache for this pair.
    assert!(
        (380_000.0..480_000.0).contains(&memory.kv_pool_tokens),
        "{}",
        memory.kv_pool_tokens
    );
}

#[test]
fn grouped_queries_shrink_the_cache_and_raise_capacity() {
    let grouped = Case {
        rate: 0.1,
        ..Case::new("Llama-3.1-8B", "A10G", 1)
    };
    let mut whole = Case {
        rate: 0.1,
        ..Case::new("Llama-3.1-8B", "A10G", 1)
    };
    let text = include_str!("../../../configs/models/Llama-3.1-8B.json");
    let text = text.replace("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 32");
    whole.model = ModelFacts::from_config_json(&text).unwrap();
    assert_eq!(whole.model.kv_heads, 32);
    for case in [&grouped, &whole] {
        assert_eq!(case.shape.max_model_len, Some(8_192));
    }
    whole.shape.max_model_len = Some(2_048);
    let (grouped, whole) = (grouped.predict(), whole.predict());
    assert!(
        (whole.memory.kv_bytes_per_token / grouped.memory.kv_bytes_per_token - 4.0).abs() < 1e-9
    );
    assert!(grouped.capacity_rps > whole.capacity_rps);
    assert_eq!(whole.limited_by, Limit::KvCapacity);
}

#[test]
fn all_reduce_is_cheap_on_nvlink_and_dear_on_pcie() {
    let mut without = gpu("H100").clone();
    without.nvlink_bytes_per_second = None;
    let model = facts("Llama-3.1-70B");
    let step = |gpu: &GpuType| prompt_step(&model, gpu, 8);
    let (nvlink, pcie) = (step(gpu("H100")), step(&without));
    assert!(nvlink.comm_seconds < 0.40 * nvlink.seconds, "{nvlink:?}");
    assert!(pcie.comm_seconds > 0.6 * pcie.seconds, "{pcie:?}");
}

/// A step of one prompt of 4,096 tokens with so many tensor shards.
fn prompt_step(model: &ModelFacts, gpu: &GpuType, tp: u32) -> roofline::StepCost {
    let deployment = Deployment {
        model,
        gpu,
        shape: EngineShape {
            tp,
            ..EngineShape::default()
        },
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let work = roofline::StepWork {
        prefill_tokens: 4_096.0,
        prefill_context: 2_048.0,
        ..roofline::StepWork::default()
    };
    roofline::StageModel::of(&deployment, &profile()).step(work)
}

#[test]
fn a_group_that_spans_both_sockets_pays_for_the_crossing() {
    let model = facts("Llama-3.1-70B");
    let seconds_per_byte = |tp: u32| {
        let sent = 1.0 - 1.0 / f64::from(tp);
        prompt_step(&model, gpu("L40S"), tp).comm_seconds / sent
    };
    // Four fit one socket and share its bridges; with eight both effects meet.
    let within = seconds_per_byte(4) / seconds_per_byte(2);
    let across = seconds_per_byte(8) / seconds_per_byte(4);
    assert!((2.0..5.1).contains(&within), "{within}");
    assert!((1.25..3.6).contains(&across), "{across}");
    let device = &profile().constants.device;
    assert!(device.pcie_socket_crossing > 1.2, "{device:?}");
}

#[test]
fn prefill_is_compute_bound_and_decode_is_bandwidth_bound() {
    let model = facts("Llama-3.1-8B");
    let deployment = Deployment {
        model: &model,
        gpu: gpu("H100"),
        shape: EngineShape::default(),
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let stage = roofline::StageModel::of(&deployment, &profile());
    let with_tokens = |n: f64| {
        stage.step(roofline::StepWork {
            prefill_tokens: n,
            prefill_context: n / 2.0,
            ..roofline::StepWork::default()
        })
    };
    let decode = stage.step(roofline::StepWork {
        decode_seqs: 8.0,
        decode_context: 1_000.0,
        ..roofline::StepWork::default()
    });
    assert!(decode.bandwidth_bound_seconds > 0.7 * decode.seconds);
    let prefill = with_tokens(4_096.0);
    assert!(prefill.compute_bound_seconds > 0.8 * prefill.seconds);
    // The crossover lies where 2·P flops per token meet 2 bytes per weight: F/B tokens.
    let device = constants::Constants::embedded().device;
    let engine = profile().constants.engine(EngineGeneration::VllmV1);
    let crossover = 989.4e12 * device.compute_fraction_16_bit * engine.compute_ratio
        / (3.35e12 * device.bandwidth_fraction * engine.bandwidth_ratio);
    let (below, above) = (with_tokens(0.8 * crossover), with_tokens(1.2 * crossover));
    assert!(below.bandwidth_bound_seconds > below.compute_bound_seconds);
    assert!(above.compute_bound_seconds > above.bandwidth_bound_seconds);
}

#[test]
fn fp8_weights_halve_the_reading_and_experts_are_read_by_need() {
    let mut case = Case {
        concurrency: Some(1),
        ..Case::new("Llama-3.1-70B", "H100", 4)
    };
    let bf16 = tpot(&case);
    case.shape.weight_dtype = WeightDtype::Fp8;
    let fp8 = tpot(&case);
    assert!(fp8 < 0.75 * bf16 && fp8 > 0.45 * bf16, "{fp8} of {bf16}");
    let at = |n| {
        tpot(&Case {
            concurrency: Some(n),
            ..Case::new("Mixtral-8x7B", "H100", 2)
        })
    };
    // One token reads 2 of 8 experts, a batch nearly all.
    assert!(at(32) > 2.0 * at(1), "{} {}", at(32), at(1));
}

#[test]
fn pipeline_bubbles_and_stages_show() {
    let mut case = Case {
        concurrency: Some(64),
        ..Case::new("Llama-3.1-70B", "H100", 4)
    };
    let flat = case.predict();
    case.shape.pp = 2;
    let staged = case.predict();
    assert_eq!(
        flat.mediators.get(Mediator::PipelineBubbleFraction),
        Some(0.0)
    );
    let bubble = staged
        .mediators
        .get(Mediator::PipelineBubbleFraction)
        .unwrap();
    assert!((bubble - 1.0 / 3.0).abs() < 1e-9);
    assert!(staged.memory.weights_bytes < 0.55 * flat.memory.weights_bytes);
}

#[test]
fn prefix_reuse_lowers_work_and_first_token_time() {
    let mut case = Case {
        rate: 1.0,
        ..Case::new("Llama-3.1-8B", "L40S", 1)
    };
    case.workload.isl = lengths(4_096.0);
    let cold = case.predict();
    case.workload.shared_prefix_tokens = 3_072.0;
    case.workload.prefix_concentration = 0.8;
    let warm = case.predict();
    let hit = warm.mediators.get(Mediator::KvcacheHitRate).unwrap();
    assert!((hit - 0.6).abs() < 1e-9, "0.8 · 3072/4096, got {hit}");
    assert!(warm.ttft_mean_ms.unwrap() < cold.ttft_mean_ms.unwrap());
    assert!(warm.capacity_rps > cold.capacity_rps);
    case.shape.prefix_caching = false;
    assert_eq!(case.predict().mediators.get(Mediator::KvcacheHitRate), None);
}

#[test]
fn every_derivable_mediator_is_present() {
    let case = Case {
        rate: 5.0,
        ..Case::new("Llama-3.1-70B", "H100", 4)
    };
    let p = case.predict();
    let absent: Vec<&str> = Mediator::ALL
        .into_iter()
        .filter(|v| p.mediators.get(*v).is_none())
        .map(Mediator::name)
        .collect();
    assert_eq!(absent, ["pcie_bytes_per_sec"], "the GPUs talk over NVLink");
    assert_eq!(p.mediators.get(Mediator::ExpertImbalance), Some(1.0));
    let tokens_per_second = 5.0 * (512.0 + 128.0);
    let per_token = p.mediators.get(Mediator::PerTokCommBytes).unwrap();
    assert!((per_token - 3_932_160.0).abs() < 1e-6);
    let nvlink = p.mediators.get(Mediator::NvlinkBytesPerSec).unwrap();
    assert!((nvlink / (per_token * 4.0 * tokens_per_second) - 1.0).abs() < 1e-9);
    let little = p.mediators.get(Mediator::RunningRequests).unwrap();
    let expected = 5.0 * 128.0 * p.tpot_mean_ms.unwrap() / 1e3;
    assert!(
        (little / expected - 1.0).abs() < 0.01,
        "{little} {expected}"
    );
}

#[test]
fn cold_starts_grow_with_weights_and_shrink_with_shards_and_eager_mode() {
    let (small, large) = (facts("Llama-3.1-8B"), facts("Llama-3.1-70B"));
    let seconds = |model: &ModelFacts, tp, enforce_eager| {
        let shape = EngineShape {
            tp,
            enforce_eager,
            ..EngineShape::default()
        };
        cold_start_seconds(model, gpu("H100"), &shape)
    };
    assert!(seconds(&small, 1, false) < seconds(&large, 4, false));
    assert!(seconds(&large, 8, false) < seconds(&large, 4, false));
    assert!(seconds(&small, 1, true) < seconds(&small, 1, false));
    assert!((30.0..120.0).contains(&seconds(&small, 1, false)));
}

#[test]
fn the_roofline_of_a_small_step_is_the_step_without_overhead() {
    let case = Case {
        concurrency: Some(1),
        ..Case::new("Llama-3.1-8B", "H100", 1)
    };
    let deployment = Deployment {
        model: &case.model,
        gpu: gpu("H100"),
        shape: case.shape,
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let p = case.predict();
    let overhead = p.mediators.get(Mediator::DispatchOverheadMs).unwrap();
    let roofline = roofline_step_ms(&deployment, 576.0);
    let step = p.tpot_mean_ms.unwrap();
    // The step also carries its share of a prompt.
    assert!(
        roofline + overhead < step && step < 1.15 * (roofline + overhead),
        "{roofline} {step}"
    );
}
