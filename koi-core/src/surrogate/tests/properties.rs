//! Monotonicity and finiteness over generated questions.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn latency_rises_and_throughput_follows_load(share in 0.02_f64..0.90, more in 1.02_f64..1.08) {
        let mut case = Case::new("Llama-3.1-8B", "A100", 1);
        let capacity = case.predict().capacity_rps;
        case.rate = share * capacity;
        let low = case.predict();
        case.rate = share * more * capacity;
        let high = case.predict();
        prop_assert!(high.ttft_mean_ms >= low.ttft_mean_ms);
        prop_assert!(high.tpot_mean_ms >= low.tpot_mean_ms);
        prop_assert!(
            high.mediators.get(Mediator::RunningRequests) >= low.mediators.get(Mediator::RunningRequests)
        );
        let throughput = high.outcomes.get(Outcome::ThroughputTokensPerSec).unwrap();
        prop_assert!((throughput - case.rate * 128.0).abs() < 1e-6 * throughput);
    }

    #[test]
    fn faster_memory_never_hurts(
        factor in 1.0_f64..3.0, isl in 16.0_f64..4_000.0, osl in 2.0_f64..2_000.0,
    ) {
        let mut case = Case { rate: 0.2, ..Case::new("Llama-3.1-8B", "L40S", 1) };
        case.workload = workload(lengths(isl), lengths(osl));
        let base = case.predict();
        let mut better = gpu("L40S").clone();
        better.bandwidth_bytes_per_second *= factor;
        let deployment = Deployment {
            model: &case.model, gpu: &better, shape: case.shape, n_replicas: 1,
            price_usd_per_hour_per_replica: None,
        };
        let demand = Demand {
            workload: &case.workload, class: case.class, slo: &case.slo,
            rate_rps_per_replica: case.rate, batch_concurrency: None,
        };
        let Answer::Prediction(fast) = predict(&deployment, &demand) else { panic!() };
        prop_assert!(fast.tpot_mean_ms <= base.tpot_mean_ms.map(|t| t * (1.0 + 1e-9)));
        prop_assert!(fast.capacity_rps >= base.capacity_rps * (1.0 - 1e-9));
    }

    #[test]
    fn longer_contexts_cost_more(isl in 64.0_f64..3_500.0) {
        let at = |isl: f64| {
            let mut case = Case { concurrency: Some(16), ..Case::new("Llama-3.1-8B", "H100", 1) };
            case.workload = workload(lengths(isl), lengths(128.0));
            case.predict()
        };
        let (short, long) = (at(isl), at(isl * 2.0));
        prop_assert!(long.tpot_mean_ms >= short.tpot_mean_ms);
        prop_assert!(long.ttft_mean_ms >= short.ttft_mean_ms);
        prop_assert!(long.capacity_rps <= short.capacity_rps);
    }

    #[test]
    fn answers_are_finite_for_any_question(
        tp in 1_u32..9, seqs in 1_u32..2_000, tokens in 128_u32..20_000, rate in 0.0_f64..1e5,
        isl in 0.0_f64..1e5, osl in 0.0_f64..1e5, model in 0_usize..4, device in 0_usize..5,
        pp in 1_u32..4,
    ) {
        let model = ["Llama-3.1-8B", "Llama-3.1-70B", "Mixtral-8x7B", "Qwen3-30B-A3B"][model];
        let device = ["H100", "A100", "L40S", "A10G", "CPU"][device];
        let mut case = Case { rate, ..Case::new(model, device, tp) };
        case.shape.max_num_seqs = seqs;
        case.shape.max_num_batched_tokens = tokens;
        case.shape.pp = pp;
        case.workload = workload(lengths(isl), lengths(osl));
        if let Answer::Prediction(p) = case.answer() {
            prop_assert!(p.capacity_rps.is_finite() && p.capacity_rps > 0.0);
            prop_assert!(p.ttft_mean_ms.is_none_or(f64::is_finite));
            prop_assert!(p.tpot_mean_ms.is_none_or(|t| t.is_finite() && t > 0.0));
            for v in [Mediator::KvCacheUtil, Mediator::SmUtilization, Mediator::MemBandwidthUtilization] {
                let x = p.mediators.get(v).unwrap();
                prop_assert!((0.0..=1.0).contains(&x), "{v} {x}");
            }
        }
    }
}

#[test]
fn degenerate_workloads_give_finite_answers() {
    for (isl, osl) in [(0.0, 0.0), (1.0, 1.0), (7_000.0, 1.0), (1.0, 7_000.0)] {
        let mut case = Case {
            rate: 0.1,
            ..Case::new("Llama-3.1-8B", "H100", 1)
        };
        case.workload.isl = lengths(isl);
        case.workload.osl = lengths(osl);
        let p = case.predict();
        assert!(
            p.capacity_rps.is_finite() && p.capacity_rps > 0.0,
            "{isl} {osl}"
        );
        assert!(p.ttft_mean_ms.unwrap().is_finite());
        assert_eq!(p.tpot_mean_ms.is_none(), osl <= 1.0);
    }
}
