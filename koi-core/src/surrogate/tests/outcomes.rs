//! Saturation, batch jobs, replicas, margins, mixtures and histogram quantiles.

use super::*;

#[test]
fn saturation_is_said_and_never_a_number() {
    let mut case = Case {
        rate: 1e4,
        ..Case::new("Llama-3.1-8B", "H100", 1)
    };
    let p = case.predict();
    assert!(p.saturated);
    for outcome in [Outcome::P99TtftMs, Outcome::P99TpotMs, Outcome::SloMargin] {
        assert_eq!(p.outcomes.get(outcome), None, "{outcome}");
    }
    let throughput = p.outcomes.get(Outcome::ThroughputTokensPerSec).unwrap();
    assert!((throughput / p.max_tokens_per_sec - 1.0).abs() < 1e-9);
    case.rate = 0.9 * p.capacity_rps;
    assert!(!case.predict().saturated);
}

#[test]
fn a_full_batch_job_runs_at_capacity_and_its_margin_needs_the_time_left() {
    let mut case = Case {
        rate: 0.0,
        class: JobClass::Batch,
        ..Case::new("Llama-3.1-8B", "A100", 1)
    };
    case.slo = Slo::Batch {
        total_token_budget: 1_000_000,
        deadline: crate::time::UtcMicros(0),
    };
    let p = case.predict();
    assert!(!p.saturated);
    assert_eq!(p.outcomes.get(Outcome::SloMargin), None);
    let throughput = p.outcomes.get(Outcome::ThroughputTokensPerSec).unwrap();
    assert!((throughput / p.max_tokens_per_sec - 1.0).abs() < 1e-9);
    let progress = BatchProgress {
        tokens_left: throughput * 50.0,
        seconds_left: 100.0,
    };
    let margin = roll_up(&[(1.0, &p)], &case.slo, Some(progress))
        .get(Outcome::SloMargin)
        .unwrap();
    assert!((margin - 0.5).abs() < 1e-9);
    let late = BatchProgress {
        tokens_left: 1.0,
        seconds_left: -5.0,
    };
    assert_eq!(batch_slo_margin(Some(10.0), late), None);
    assert_eq!(batch_slo_margin(None, progress), None);
}

#[test]
fn an_idle_replica_has_latencies_but_no_throughput() {
    let p = Case {
        rate: 0.0,
        ..Case::new("Llama-3.1-8B", "H100", 1)
    }
    .predict();
    assert_eq!(p.outcomes.get(Outcome::ThroughputTokensPerSec), None);
    assert_eq!(p.outcomes.get(Outcome::CostPerToken), None);
    assert!(p.ttft_mean_ms.unwrap() > 10.0);
}

#[test]
fn replicas_add_throughput_and_price_but_not_latency() {
    let one = Case::new("Llama-3.1-8B", "H100", 1).predict();
    let three = Case {
        replicas: 3,
        ..Case::new("Llama-3.1-8B", "H100", 1)
    }
    .predict();
    let ratio = |o| three.outcomes.get(o).unwrap() / one.outcomes.get(o).unwrap();
    assert!((ratio(Outcome::ThroughputTokensPerSec) - 3.0).abs() < 1e-9);
    assert!((ratio(Outcome::CostPerToken) - 1.0).abs() < 1e-9);
    assert!((ratio(Outcome::P99TtftMs) - 1.0).abs() < 1e-9);
    // 1 request/s of 128 tokens for 3 USD an hour.
    let cost = one.outcomes.get(Outcome::CostPerToken).unwrap();
    assert!((cost - 3.0 / 3600.0 / 128.0).abs() < 1e-12);
}

#[test]
fn margins_are_the_smallest_headroom() {
    let slo = online_slo();
    let margin = online_slo_margin(&slo, Some(400.0), Some(45.0)).unwrap();
    assert!((margin - 0.1).abs() < 1e-12);
    assert_eq!(online_slo_margin(&slo, None, Some(45.0)), None);
    let one = Slo::Online {
        p99_ttft_ms: None,
        p99_tpot_ms: Some(50.0),
    };
    assert!((online_slo_margin(&one, None, Some(45.0)).unwrap() - 0.1).abs() < 1e-12);
}

#[test]
fn mixtures_lie_between_their_ranks_and_are_no_mean_of_percentiles() {
    let fast = Case {
        concurrency: Some(4),
        ..Case::new("Llama-3.1-8B", "H100", 1)
    }
    .predict();
    let slow = Case {
        concurrency: Some(4),
        ..Case::new("Llama-3.1-8B", "A10G", 1)
    }
    .predict();
    let slo = online_slo();
    let p99 =
        |ranks: &[(f64, &Prediction)]| roll_up(ranks, &slo, None).get(Outcome::P99TpotMs).unwrap();
    let (low, high) = (p99(&[(1.0, &fast)]), p99(&[(1.0, &slow)]));
    assert!(low < high);
    // Half of the traffic is slow, so the 99th percentile is the slow rank's 98th.
    let half = p99(&[(5.0, &fast), (5.0, &slow)]);
    assert!(half > 0.9 * high, "{low} {half} {high}");
    let rare = p99(&[(0.9999, &fast), (0.0001, &slow)]);
    assert!(rare < 1.1 * low, "{low} {rare} {high}");
    let saturated = Case {
        rate: 1e4,
        ..Case::new("Llama-3.1-8B", "H100", 1)
    }
    .predict();
    let both = roll_up(&[(1.0, &fast), (1.0, &saturated)], &slo, None);
    assert_eq!(both.get(Outcome::P99TpotMs), None);
    assert!(both.get(Outcome::ThroughputTokensPerSec).is_some());
}

#[test]
fn quantiles_follow_the_histogram_rule() {
    // 90 % up to 0.1 s, the rest up to 0.25 s: p99 lies nine tenths into the last bucket.
    let cdf = |x: f64| {
        if x < 0.1 {
            0.0
        } else if x < 0.25 {
            0.9
        } else {
            1.0
        }
    };
    let p99 = through_buckets(0.99, &TTFT_EDGES_SECONDS, cdf).unwrap();
    assert!((p99 - (0.1 + 0.15 * 0.9)).abs() < 1e-12);
    // All in the lowest bucket: interpolated from zero.
    assert!((through_buckets(0.5, &TPOT_EDGES_SECONDS, |_| 1.0).unwrap() - 0.005).abs() < 1e-12);
    // Beyond the last edge: the last edge.
    assert_eq!(
        through_buckets(0.99, &TPOT_EDGES_SECONDS, |_| 0.5),
        Some(80.0)
    );
    assert_eq!(
        through_buckets(0.99, &TPOT_EDGES_SECONDS, |_| f64::NAN),
        None
    );
}
