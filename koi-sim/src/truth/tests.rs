//! Levels and directions of the truth.

use super::*;
use crate::model::tests::{llama_8b, llama_70b};

fn truth(gpu_type: &str, model: &SimModel, tensor: u32, pipeline: u32) -> Truth {
    let mut truth = Truth::new(&TruthInput {
        gpu_type,
        environment: "reserved/aws/us-east-1/a/H100",
        model,
        precision: Precision::Half,
        kv_value_bytes: 2.0,
        cut: Sharding { tensor, pipeline },
        switches: Switches::default(),
    })
    .unwrap();
    truth.place = PlaceFactors {
        arithmetic: 1.0,
        memory: 1.0,
        network: 1.0,
        host: 1.0,
    };
    truth.kernels = KernelLuck::even();
    truth
}

fn decode(seqs: u32, context: u32) -> StepLoad {
    let decode_context = u64::from(seqs) * u64::from(context);
    StepLoad {
        decode_seqs: seqs,
        decode_context,
        ..StepLoad::default()
    }
}

fn prefill(tokens: u32) -> StepLoad {
    let context = f64::from(tokens) * f64::from(tokens) / 2.0;
    StepLoad {
        prefill_tokens: tokens,
        prefill_seqs: 1,
        prefill_context: context,
        ..StepLoad::default()
    }
}

fn check_ms(cost: StepCost, low: f64, high: f64) {
    let ms = cost.seconds * 1000.0;
    assert!((low..high).contains(&ms), "{ms} ms is not in {low}..{high}");
}

#[test]
fn levels_are_those_of_the_field() {
    let small = llama_8b();
    let h100 = truth("H100", &small, 1, 1);
    check_ms(h100.mean_cost(&decode(4, 500)), 8.0, 11.0);
    check_ms(h100.mean_cost(&decode(128, 1000)), 15.0, 20.0);
    check_ms(h100.mean_cost(&prefill(2000)), 80.0, 100.0);
    check_ms(
        truth("A100", &small, 1, 1).mean_cost(&prefill(2000)),
        155.0,
        200.0,
    );
    check_ms(
        truth("L40S", &small, 1, 1).mean_cost(&prefill(2000)),
        200.0,
        250.0,
    );
    check_ms(
        truth("L40S", &small, 1, 1).mean_cost(&decode(4, 500)),
        22.0,
        27.0,
    );
    check_ms(
        truth("H100", &llama_70b(), 4, 1).mean_cost(&decode(16, 500)),
        19.0,
        25.0,
    );
}

#[test]
fn more_work_takes_longer() {
    let model = llama_8b();
    let engine = truth("H100", &model, 1, 1);
    let seconds = |load: StepLoad| engine.mean_cost(&load).seconds;
    assert!(seconds(decode(64, 4000)) > 1.3 * seconds(decode(64, 400)));
    assert!(seconds(decode(256, 400)) > seconds(decode(64, 400)));
    let mixed = StepLoad {
        prefill_tokens: 1024,
        prefill_seqs: 1,
        prefill_context: 5e5,
        ..decode(64, 400)
    };
    assert!(seconds(mixed) > seconds(decode(64, 400)) + 0.02);
}

#[test]
fn pipelines_gain_throughput_but_not_the_time_of_one_sequence() {
    let model = llama_70b();
    let (one, two) = (truth("H100", &model, 2, 1), truth("H100", &model, 2, 2));
    assert!(two.mean_cost(&decode(1, 500)).seconds > one.mean_cost(&decode(1, 500)).seconds);
    let busy = StepLoad {
        prefill_seqs: 8,
        ..prefill(8192)
    };
    assert!(two.mean_cost(&busy).seconds < 0.65 * one.mean_cost(&busy).seconds);
}

#[test]
fn environments_differ_within_a_type_and_are_stable() {
    let factors: Vec<PlaceFactors> = ["reserved/aws/us-east-1/a/H100", "spot/gcp/eu-west4/b/H100"]
        .iter()
        .map(|e| PlaceFactors::of(e))
        .collect();
    assert_ne!(factors[0], factors[1]);
    assert_eq!(
        factors[0],
        PlaceFactors::of("reserved/aws/us-east-1/a/H100")
    );
}

#[test]
fn links_matter_and_unknown_types_are_refused() {
    let model = llama_8b();
    let per_token = |gpu: &str| {
        let one = truth(gpu, &model, 1, 1).mean_cost(&decode(256, 1)).seconds;
        truth(gpu, &model, 4, 1).mean_cost(&decode(256, 1)).seconds / one
    };
    assert!(per_token("L40S") > per_token("H100"));
    let h100 = truth("H100", &model, 4, 1);
    let want = 256.0 * 4096.0 * 2.0 * 4.0 * 32.0 * 3.0 / 4.0;
    assert!((h100.mean_cost(&decode(256, 1)).link_bytes_per_device / want - 1.0).abs() < 1e-9);
    let input = TruthInput {
        gpu_type: "ABACUS",
        environment: "",
        model: &model,
        precision: Precision::Half,
        kv_value_bytes: 2.0,
        cut: Sharding {
            tensor: 1,
            pipeline: 1,
        },
        switches: Switches::default(),
    };
    assert!(matches!(Truth::new(&input), Err(TruthError::UnknownGpu(_))));
    let none = TruthInput {
        gpu_type: "H100",
        cut: Sharding {
            tensor: 0,
            pipeline: 1,
        },
        ..input
    };
    assert!(matches!(Truth::new(&none), Err(TruthError::NoDevices)));
}

#[test]
fn noise_is_small_and_drift_is_slow() {
    let mut noise = StepNoise::new(3);
    let factors: Vec<f64> = (0..20_000).map(|_| noise.factor(0.02)).collect();
    assert!(factors.iter().all(|f| (0.75..1.35).contains(f)));
    let block = |i: usize| factors[i * 500..(i + 1) * 500].iter().sum::<f64>() / 500.0;
    let near = (0..39)
        .map(|i| (block(i) - block(i + 1)).abs())
        .sum::<f64>()
        / 39.0;
    let spread = (0..40)
        .map(block)
        .fold((f64::MAX, f64::MIN), |(l, h), b| (l.min(b), h.max(b)));
    assert!(
        spread.1 - spread.0 > 3.0 * near,
        "blocks {spread:?}, neighbours {near}"
    );
}
