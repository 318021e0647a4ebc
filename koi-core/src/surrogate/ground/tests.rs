//! The planner's stack against the stack of a row: the same members, the same numbers.

use super::*;
use crate::catalog::Catalog;
use crate::model::KnownModel;
use crate::performance::import::{Given, import};
use crate::surrogate::measured_row::{MeasuredRow, Question, RowAnswer};
use crate::surrogate::points::{MeasuredPoints, matrices};
use crate::surrogate::predict;

const ROWS: &str = "source,row_id,model,gpu_type,num_gpus,tp,engine,date,isl,osl,load_kind,\
concurrency_or_rate,tpot_ms,tpot_stat,ttft_ms,ttft_stat,out_tok_s_system\n\
s,a,llama-3.1-8b,H100,1,1,vllm,2026-01,1000,200,concurrency,16,16,mean,90,mean,900\n\
s,b,llama-3.1-8b,H100,1,1,vllm,2026-01,1000,200,concurrency,32,19,mean,190,mean,1500\n";

#[test]
fn a_planned_deployment_and_a_row_are_told_the_same() {
    let catalog = Catalog::embedded();
    let gpu = catalog.gpu_type("H100").unwrap();
    let facts = KnownModel::find("llama-3.1-8b").unwrap().facts().unwrap();
    let rows = import(ROWS, None, &Given::default()).unwrap().rows;
    let points = MeasuredPoints::planned(&rows, catalog).points;
    assert_eq!(points.len(), 2);
    let mut asked = MeasuredRow::from(&rows[0]);
    asked.load = Some(20.0);
    let question = Question::of(&asked, &facts, gpu).unwrap();
    let profile = EngineProfile::embedded(question.generation);
    let RowAnswer::Prediction(row) = question.ask(gpu, profile) else {
        panic!("it runs");
    };
    let of_row = Calibration::embedded().stack(&row, &gpu.id, question.generation, |q| {
        points.voice((&question, gpu), &row.situation, q, None)
    });

    let near = points.of_scope(
        matrices(&question.model),
        gpu,
        question.model.served_dtype(question.shape.weight_dtype),
    );
    assert_eq!(near.len(), 2);
    let ground = Ground::of(gpu, near);
    let deployment = Deployment {
        model: &question.model,
        gpu,
        shape: question.shape,
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    let slo = Question::slo();
    let demand = Demand {
        workload: &question.workload,
        class: question.class(),
        slo: &slo,
        rate_rps_per_replica: 0.0,
        batch_concurrency: Some(20),
    };
    let told = predict_on(&deployment, &demand, &ground).unwrap();
    let throughput = told
        .prediction
        .outcomes
        .get(Outcome::ThroughputTokensPerSec);
    for (planned, stacked) in [
        (told.prediction.tpot_mean_ms, of_row.tpot_mean_ms),
        (told.prediction.ttft_mean_ms, of_row.ttft_mean_ms),
        (throughput, of_row.out_tok_s_system),
    ] {
        let (planned, stacked) = (planned.unwrap(), stacked.unwrap());
        assert!(
            (planned / stacked.mixed.value - 1.0).abs() < 1e-9,
            "{planned} {stacked:?}"
        );
        assert!(stacked.mixed.coverage > 0.5);
    }
    let voices = told.members.of(Quantity::Tpot);
    let tpot = of_row.tpot_mean_ms.unwrap();
    assert!((voices.neighbours.coverage - tpot.mixed.coverage).abs() < 1e-12);
    assert!((tpot.mixed.value * voices.low.exp() - tpot.lo80).abs() < 1e-9 * tpot.lo80);
    assert_eq!(told.members.lines(&told.prediction).len(), 3);

    // Mediators and memory are first principles' own.
    let Answer::Prediction(bare) = predict(&deployment, &demand) else {
        panic!("it runs");
    };
    assert_eq!(told.prediction.mediators, bare.mediators);
    assert_eq!(told.prediction.memory, bare.memory);
    assert_ne!(told.prediction.tpot_mean_ms, bare.tpot_mean_ms);
    // Frozen, it says the same of the same load.
    let frozen = predict_frozen(&deployment, &demand, &told.members);
    assert_eq!(frozen, Answer::Prediction(told.prediction));
}

#[test]
fn own_deployments_move_latencies_and_only_those_nearby() {
    let gpu = Catalog::embedded().gpu_type("H100").unwrap();
    let model = KnownModel::find("llama-3.1-8b").unwrap().facts().unwrap();
    let deployment = |tp| Deployment {
        model: &model,
        gpu,
        shape: crate::configuration::EngineShape {
            tp,
            max_model_len: Some(8192),
            ..crate::configuration::EngineShape::default()
        },
        n_replicas: 2,
        price_usd_per_hour_per_replica: Some(2.0),
    };
    let spec = crate::planner::test_world::chat("chat");
    let demand = Demand {
        workload: &spec.workload,
        class: spec.class,
        slo: &spec.slo,
        rate_rps_per_replica: 2.0,
        batch_concurrency: None,
    };
    let ground = Ground::of(gpu, &[]);
    let of = |tp| predict_on(&deployment(tp), &demand, &ground).unwrap();
    let (one, two) = (of(1), of(2));
    let own = [HeardPoint {
        spot: one.members.spot,
        log_errors: [Some(0.7), None, Some(0.7)],
        weight: 40.0,
    }];
    let moved = |told: Told| {
        let after = told.with_own(&own, &spec.slo);
        let by = |a: Option<f64>, b: Option<f64>| (b.unwrap() / a.unwrap()).ln();
        let (a, b) = (told.prediction, after.prediction);
        assert!(by(a.ttft_mean_ms, b.ttft_mean_ms).abs() < 1e-12);
        // An open load decides the throughput.
        let rate = |p: Prediction| p.outcomes.get(Outcome::ThroughputTokensPerSec);
        assert_eq!(rate(a), rate(b));
        assert_eq!((a.capacity_rps, a.mediators), (b.capacity_rps, b.mediators));
        by(a.tpot_mean_ms, b.tpot_mean_ms)
    };
    let (near, far) = (moved(one), moved(two));
    assert!((near - 0.7 * 40.0 / 40.5).abs() < 1e-9, "{near}");
    assert!(far > 0.1 && far < 0.7 * near, "{far}");
    assert_eq!(one.with_own(&[], &spec.slo), one);
}
