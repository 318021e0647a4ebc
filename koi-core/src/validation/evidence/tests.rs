//! Tests of verdicts from observed trajectories.

use proptest::prelude::*;

use super::*;
use crate::causal::testing::model;
use crate::causal::{FeatureValues, ScopeMatch, applicable};
use crate::job::JobClass;

type Point = (MediatorValues, OutcomeValues);

fn point(queue: f64, ttft: f64) -> Point {
    (
        MediatorValues::absent().with(Mediator::QueueDepth, queue),
        OutcomeValues::absent()
            .with(Outcome::P99TtftMs, ttft)
            .with(Outcome::SloMargin, (500.0 - ttft) / 500.0),
    )
}

fn judge_rank(observed: &[Point], predicted: &[Point]) -> EvidenceRow {
    judge_known(observed, predicted, &OwnBias::default())
}

fn judge_known(observed: &[Point], predicted: &[Point], own_bias: &OwnBias) -> EvidenceRow {
    let model = model();
    let environment = "reserved/aws/us-east-1/a/H100".parse().unwrap();
    let features = FeatureValues::of_class(JobClass::Online);
    let applicable = applicable(&model, &features, Some("M_admission_queue"));
    let promised = Stamp {
        outcomes: OutcomeValues::absent().with(Outcome::P99TtftMs, 200.0),
        bands: BTreeMap::from([(
            Outcome::P99TtftMs,
            Band {
                lower: 150.0,
                upper: 250.0,
            },
        )]),
    };
    let input = RankValidationInput {
        tick: TickId(4),
        job: JobId(uuid::Uuid::nil()),
        rank: 0,
        generation: Generation(2),
        environment: &environment,
        observed,
        predicted,
        promised: Some(&promised),
        applicable: &applicable,
        model_class: crate::model::ModelClass::DenseSmall,
        own_bias,
        calibration: &Calibration::default(),
    };
    validate_rank(&input, &model, &Params::default())
}

fn queue_verdict(row: &EvidenceRow) -> &MechanismVerdict {
    row.mechanisms
        .iter()
        .find(|m| m.id == "M_admission_queue")
        .unwrap()
}

#[test]
fn the_four_quadrants_come_out_of_observed_trajectories() {
    let predicted = [point(4.0, 200.0); 12];
    let cases = [
        ((4.0, 200.0), Quadrant::Q1),
        ((4.0, 400.0), Quadrant::Q2),
        ((30.0, 200.0), Quadrant::Q3),
        ((30.0, 400.0), Quadrant::Q4),
    ];
    for ((queue, ttft), expected) in cases {
        let row = judge_rank(&[point(queue, ttft); 12], &predicted);
        assert_eq!(
            queue_verdict(&row).quadrant,
            Some(expected),
            "{queue} {ttft}"
        );
        assert!(queue_verdict(&row).committed);
    }
}

#[test]
fn a_settled_deployment_is_held_against_its_own_earlier_rows() {
    let queue = Variable::V(Mediator::QueueDepth);
    let ttft = Variable::Y(Outcome::P99TtftMs);
    let mut own = OwnBias::default();
    for _ in 0..3 {
        own.add(queue, 26.0);
        own.add(ttft, 2.0_f64.ln());
    }
    let predicted = [point(4.0, 200.0); 12];
    let usual = judge_known(&[point(30.0, 400.0); 12], &predicted, &own);
    assert_eq!(queue_verdict(&usual).quadrant, Some(Quadrant::Q1));
    let judged = &usual.variables["queue_depth"];
    assert_eq!(judged.own_bias, Some(26.0));
    assert!((judged.residual_mean - 26.0).abs() < 1e-9, "{judged:?}");
    // What the surrogate says is now a change.
    let changed = judge_known(&predicted, &predicted, &own);
    assert_eq!(queue_verdict(&changed).quadrant, Some(Quadrant::Q4));
}

#[test]
fn a_guessed_threshold_moves_beliefs_little_and_a_contradiction_in_full() {
    let params = Params::default();
    let row = judge_rank(&[point(4.0, 200.0); 12], &[point(4.0, 200.0); 12]);
    let mut verdict = queue_verdict(&row).clone();
    assert!(verdict.uncalibrated);
    assert!((verdict.weight(&params) - params.unexercised_weight).abs() < 1e-12);
    verdict.exercise = Exercise::Exercised;
    assert!((verdict.weight(&params) - params.unexercised_weight).abs() < 1e-12);
    verdict.contradicted.insert("a->b".to_owned());
    assert!((verdict.weight(&params) - 1.0).abs() < 1e-12);
    verdict.contradicted.clear();
    verdict.uncalibrated = false;
    assert!((verdict.weight(&params) - 1.0).abs() < 1e-12);
}

#[test]
fn a_bundle_with_a_variable_missing_on_either_side_has_no_quadrant() {
    let whole = [point(4.0, 200.0); 6];
    let blind = [(MediatorValues::absent(), whole[0].1); 6];
    for (observed, predicted) in [(&blind, &whole), (&whole, &blind)] {
        let row = judge_rank(observed, predicted);
        let verdict = queue_verdict(&row);
        assert_eq!(verdict.quadrant, None);
        assert_eq!(verdict.v_verdicts[&Mediator::QueueDepth], None);
        assert_eq!(
            verdict.y_verdicts[&Outcome::P99TtftMs],
            Some(Verdict::Matched)
        );
    }
}

#[test]
fn fewer_than_three_points_decide_nothing_and_are_still_recorded() {
    let row = judge_rank(&[point(4.0, 200.0); 2], &[point(4.0, 200.0); 2]);
    assert_eq!(queue_verdict(&row).quadrant, None);
    assert_eq!(row.variables["queue_depth"].points, 2);
    assert_eq!(row.variables["queue_depth"].verdict, None);
}

#[test]
fn the_promise_is_compared_relatively_and_the_margin_absolutely() {
    let row = judge_rank(&[point(4.0, 300.0); 3], &[point(4.0, 300.0); 3]);
    assert_eq!(row.promise_residuals.get(Outcome::P99TtftMs), Some(0.5));
    assert_eq!(row.promise_residuals.get(Outcome::SloMargin), None);
    assert_eq!(
        row.inside_band,
        BTreeMap::from([(Outcome::P99TtftMs, false)])
    );
    let kept = judge_rank(&[point(4.0, 240.0); 3], &[point(4.0, 240.0); 3]);
    assert_eq!(
        kept.inside_band,
        BTreeMap::from([(Outcome::P99TtftMs, true)])
    );
    let margin = |x| OutcomeValues::absent().with(Outcome::SloMargin, x);
    let got = promise_residuals(&margin(0.5), &margin(-0.25));
    assert_eq!(got.get(Outcome::SloMargin), Some(0.75));
}

#[test]
fn a_committed_mechanism_of_the_wrong_scope_is_still_judged() {
    let model = model();
    let batch = FeatureValues::of_class(JobClass::Batch);
    let list = applicable(&model, &batch, Some("M_admission_queue"));
    let committed = list.iter().find(|a| a.committed).unwrap();
    assert_eq!(committed.scope_match, ScopeMatch::No);
}

proptest! {
    #[test]
    fn judging_again_gives_the_same_bytes_and_they_round_trip(
        seen in prop::collection::vec((0.0..50.0_f64, 1.0..2000.0_f64), 0..20),
    ) {
        let observed: Vec<Point> = seen.iter().map(|(q, t)| point(*q, *t)).collect();
        let predicted = vec![point(4.0, 200.0); observed.len()];
        let row = judge_rank(&observed, &predicted);
        let bytes = serde_json::to_vec(&row).unwrap();
        prop_assert_eq!(&bytes, &serde_json::to_vec(&judge_rank(&observed, &predicted)).unwrap());
        let back: EvidenceRow = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(back.mechanisms.len(), row.mechanisms.len());
        prop_assert_eq!(back.variables.len(), row.variables.len());
    }
}
