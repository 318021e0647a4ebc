//! Weather, drift and steady states of the world that the learning study runs on.

use koi_core::configuration::EngineShape;
use koi_core::model::ModelFacts;

use super::*;

const LLAMA_8B: &str = include_str!("../../../configs/models/Llama-3.1-8B.json");

fn chain(shape: EngineShape, levers: Levers) -> Chain {
    let model = ModelFacts::from_config_json(LLAMA_8B).unwrap();
    Chain::new(&ChainInput {
        model: &model,
        gpu_type: "H100",
        gpu_memory_bytes: 85e9,
        environment: "on_demand/aws/us-east-1/us-east-1a/H100",
        shape,
        async_scheduling: true,
        custom_all_reduce: true,
        levers,
    })
    .unwrap()
}

fn shape() -> EngineShape {
    EngineShape {
        max_model_len: Some(8192),
        ..EngineShape::default()
    }
}

fn demand(rate_rps: f64) -> Demand {
    Demand {
        rate_rps,
        concurrency: None,
        prompt: 1000.0,
        answer: 200.0,
        log_spread: 0.6,
        shared_prefix: 0.0,
        concentration: 0.0,
        arrival_cv2: 1.0,
    }
}

/// Little's law, and more load means a larger batch, slower rounds and longer waits.
#[test]
fn a_steady_state_is_consistent_and_rises_with_the_load() {
    let chain = chain(shape(), Levers::default());
    let mut last: Option<Steady> = None;
    for rate in [1.0, 4.0, 8.0, 12.0] {
        let s = chain.steady(&demand(rate));
        assert!((s.rate_rps / rate - 1.0).abs() < 1e-3, "{s:?}");
        let residence = s.live / s.rate_rps;
        assert!(
            (residence / (200.0 * s.round_s) - 1.0).abs() < 0.05,
            "{s:?}"
        );
        if let Some(before) = last {
            assert!(s.live > before.live && s.round_s > before.round_s);
            assert!(s.ttft_s > before.ttft_s && s.kv_usage > before.kv_usage);
        }
        last = Some(s);
    }
}

#[test]
fn settings_and_hidden_levers_move_what_they_should() {
    let plain = chain(shape(), Levers::default()).steady(&demand(6.0));
    let eager = EngineShape {
        enforce_eager: true,
        ..shape()
    };
    assert!(chain(eager, Levers::default()).steady(&demand(6.0)).round_s > plain.round_s);
    let few = EngineShape {
        max_num_seqs: 12,
        ..shape()
    };
    let few = chain(few, Levers::default()).steady(&demand(4.0));
    let many = chain(shape(), Levers::default()).steady(&demand(4.0));
    assert!(few.waiting > 2.0 * many.waiting, "{few:?} {many:?}");
    let slower = Levers {
        decode: 1.3,
        ..Levers::default()
    };
    let slow = chain(shape(), slower).steady(&demand(6.0));
    assert!(slow.round_s > 1.25 * plain.round_s && slow.steps_per_s < plain.steps_per_s);
    let shared = Demand {
        shared_prefix: 512.0,
        concentration: 0.8,
        ..demand(6.0)
    };
    let reused = chain(shape(), Levers::default()).steady(&shared);
    assert!((reused.hit - 0.8 * 0.512).abs() < 1e-9 && reused.ttft_s < plain.ttft_s);
}

#[test]
fn windows_show_the_steady_state_on_the_mean() {
    let chain = chain(shape(), Levers::default());
    let demand = demand(12.0);
    let steady = chain.steady(&demand);
    let mut rng = crate::rng::SimRng::new(5);
    let replica = "job.g1.r0.0".parse().unwrap();
    let (mut tokens, mut ttft, mut n) = (0.0, 0.0, 0.0);
    for i in 0..400_i64 {
        let w = window(
            &WindowInput {
                chain: &chain,
                steady: &steady,
                demand: &demand,
                replica: &replica,
                end: koi_core::time::UtcMicros(10_000_000 * (i + 1)),
                has_profiling: true,
                has_fabric: true,
            },
            &mut rng,
        );
        use koi_core::telemetry::series::{CounterSeries, HistogramSeries};
        tokens += w.counters[&CounterSeries::GenerationTokens] as f64;
        let h = &w.histograms[&HistogramSeries::TimeToFirstToken];
        ttft += h.sum;
        n += h.count as f64;
    }
    let per_second = tokens / 4000.0;
    assert!(
        (per_second / (12.0 * 200.0) - 1.0).abs() < 0.03,
        "{per_second}"
    );
    assert!((ttft / n / steady.ttft_s - 1.0).abs() < 0.05);
}

#[test]
fn weather_has_its_spread_and_forgets() {
    let mut weather = Weather::new(3, 1.0);
    let xs: Vec<f64> = (0..20_000).map(|_| weather.step(10.0).step).collect();
    let variance = xs.iter().map(|x| x * x).sum::<f64>() / xs.len() as f64;
    assert!((variance.sqrt() / 0.035 - 1.0).abs() < 0.1);
    let lag: f64 = xs.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / xs.len() as f64 / variance;
    assert!((lag - (-10.0_f64 / 180.0).exp()).abs() < 0.03, "{lag}");
}

#[test]
fn an_engine_without_room_says_so() {
    let model = ModelFacts::from_config_json(LLAMA_8B).unwrap();
    let input = ChainInput {
        model: &model,
        gpu_type: "A10G",
        gpu_memory_bytes: 24e9,
        environment: "on_demand/aws/us-east-1/us-east-1a/A10G",
        shape: EngineShape {
            max_model_len: Some(131_072),
            ..EngineShape::default()
        },
        async_scheduling: true,
        custom_all_reduce: true,
        levers: Levers::default(),
    };
    assert!(matches!(Chain::new(&input), Err(ChainError::NoRoom { .. })));
}
