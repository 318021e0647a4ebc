//! Tests of what the statistics make of rows: verdicts per edge, and calibration once it is due.

use super::*;
use crate::causal::testing::model;
use crate::environment::Environment;
use crate::ids::{Generation, JobId};
use crate::model::ModelClass;
use crate::rng::Rng;
use crate::time::UtcMicros;
use crate::validation::{Basis, validate_rank};
use crate::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};

type Point = (MediatorValues, OutcomeValues);

fn point(queue: f64, ttft: f64) -> Point {
    (
        MediatorValues::absent().with(Mediator::QueueDepth, queue),
        OutcomeValues::absent().with(Outcome::P99TtftMs, ttft),
    )
}

/// One tick of one rank in each of four environments; the last one serves slower by this factor.
fn tick(statistics: &mut Statistics, tick: i64, slower: f64, rng: &mut Rng) {
    tick_rows(statistics, tick, slower, rng);
}

/// The same, with the rows that a store keeps.
fn tick_rows(
    statistics: &mut Statistics,
    tick: i64,
    slower: f64,
    rng: &mut Rng,
) -> Vec<EvidenceRow> {
    let mut rows = Vec::new();
    let params = Params::default();
    let model = model();
    for place in 0..4 {
        let environment: Environment = format!("reserved/aws/us-east-1/z{place}/H100")
            .parse()
            .unwrap();
        let factor = if place == 3 { slower } else { 1.0 };
        let observed: Vec<Point> = (0..12)
            .map(|_| {
                let noise = 0.95 + 0.1 * rng.unit();
                point(4.0 * noise, 200.0 * factor * noise)
            })
            .collect();
        let input = RankValidationInput {
            tick: TickId(tick),
            job: JobId(uuid::Uuid::nil()),
            rank: place,
            generation: Generation(1),
            environment: &environment,
            observed: &observed,
            predicted: &[point(4.0, 200.0); 12],
            promised: None,
            applicable: &[],
            model_class: ModelClass::DenseSmall,
            own_bias: &OwnBias::default(),
            calibration: &statistics.calibration,
        };
        let row = validate_rank(&input, &model, &params);
        statistics
            .residuals
            .observe(&input, &row, "vllm 0.10", &params);
        let basis = Some(Basis {
            engine: "vllm 0.10".to_owned(),
            until: UtcMicros(tick),
        });
        rows.push(EvidenceRow { basis, ..row });
    }
    statistics.step(TickId(tick), &params, 1);
    rows
}

fn after(ticks: i64, slower: f64) -> Statistics {
    let mut statistics = Statistics::default();
    let mut rng = Rng::from_seed(3);
    for t in 1..=ticks {
        tick(&mut statistics, t, slower, &mut rng);
    }
    statistics
}

#[test]
fn edges_into_an_invariant_variable_are_accepted_and_into_another_rejected() {
    let params = Params::default();
    let model = model();
    let alike = after(60, 1.0).residuals_by_edge(&model, &params);
    let differs = after(60, 1.5).residuals_by_edge(&model, &params);
    let into = |variable: &str| {
        let edges = model.edges().filter(|e| e.ends.destination() == variable);
        edges.map(|e| e.id.clone()).collect::<Vec<_>>()
    };
    for edge in into("p99_ttft_ms") {
        assert_eq!(alike.get(&edge), Some(&Icp::Accept), "{edge}");
        assert_eq!(differs.get(&edge), Some(&Icp::Reject), "{edge}");
    }
    for edge in into("queue_depth") {
        assert_eq!(differs.get(&edge), Some(&Icp::Accept), "{edge}");
    }
    assert!(!into("p99_ttft_ms").is_empty() && !into("queue_depth").is_empty());
}

#[test]
fn first_thresholds_come_with_the_thirtieth_block() {
    let queue = Variable::V(Mediator::QueueDepth);
    let row = |ticks| {
        let calibration = after(ticks, 1.0).calibration;
        calibration.get(queue, ModelClass::DenseSmall).cloned()
    };
    // Four blocks a tick.
    assert_eq!(after(7, 1.0).calibration, Calibration::default());
    let first = row(8).unwrap();
    assert!(!first.thresholds.is_empty() && first.blocks >= 30);
    assert_eq!(row(19), Some(first), "they stay until the meta step is due");
}

#[test]
fn calibration_comes_anew_with_the_twentieth_tick_and_its_blocks() {
    let queue = Variable::V(Mediator::QueueDepth);
    let calibration = after(20, 1.0).calibration;
    let row = calibration.get(queue, ModelClass::DenseSmall).unwrap();
    assert!(!row.thresholds.is_empty() && row.blocks >= 76, "{row:?}");
    assert!(calibration.get(queue, ModelClass::Moe).is_none());
    assert_eq!(calibration, after(20, 1.0).calibration);
}

#[test]
fn rows_that_could_not_be_judged_leave_no_trace() {
    let params = Params::default();
    assert!(
        Statistics::default()
            .residuals_by_variable(&params)
            .is_empty()
    );
    let mut statistics = Statistics::default();
    let environment = "reserved/aws/us-east-1/a/H100".parse().unwrap();
    let input = RankValidationInput {
        tick: TickId(1),
        job: JobId(uuid::Uuid::nil()),
        rank: 0,
        generation: Generation(1),
        environment: &environment,
        observed: &[point(4.0, 200.0); 2],
        predicted: &[point(4.0, 200.0); 2],
        promised: None,
        applicable: &[],
        model_class: ModelClass::DenseSmall,
        own_bias: &OwnBias::default(),
        calibration: &Calibration::default(),
    };
    let row = validate_rank(&input, &model(), &params);
    statistics
        .residuals
        .observe(&input, &row, "vllm 0.10", &params);
    assert_eq!(statistics.residuals.blocks.iter().count(), 0);
    assert!(statistics.residuals_by_variable(&params).is_empty());
}

/// A process that ended and one that did not calibrate and judge alike, from what the store keeps.
#[test]
fn a_restart_forgets_no_threshold_and_no_block_mean() {
    let params = Params::default();
    let mut steady = Statistics::default();
    let (mut rng, mut rows) = (Rng::from_seed(5), Vec::new());
    for t in 1..=60 {
        rows.extend(tick_rows(&mut steady, t, 1.3, &mut rng));
    }
    let stored = serde_json::to_string(&rows).unwrap();
    let rows: Vec<EvidenceRow> = serde_json::from_str(&stored).unwrap();
    let set = serde_json::to_string(&steady.calibration).unwrap();
    let mut resumed = Statistics {
        calibration: serde_json::from_str(&set).unwrap(),
        ..Statistics::default()
    };
    assert_eq!(resumed.calibration, steady.calibration);
    assert!(steady.calibration.rows().any(|r| !r.thresholds.is_empty()));
    for row in &rows {
        resumed.recall(row);
    }
    for t in 61..=70 {
        let mut other = rng.clone();
        tick_rows(&mut steady, t, 1.3, &mut rng);
        tick_rows(&mut resumed, t, 1.3, &mut other);
        let verdicts = |s: &Statistics| s.residuals_by_edge(&model(), &params);
        assert!(!verdicts(&steady).is_empty());
        assert_eq!(verdicts(&resumed), verdicts(&steady), "tick {t}");
        // Thresholds stay until enough residuals have come again.
        let kept = |s: &Statistics| {
            let rows = s.calibration.rows();
            rows.map(|r| (r.variable, r.thresholds.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(&resumed), kept(&steady), "tick {t}");
    }
}
