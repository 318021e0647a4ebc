//! Tests of one tick of S3.

use super::*;
use crate::causal::replay;
use crate::causal::testing::model;
use crate::experience::PastOutcome;
use crate::slow_loop::PlannedProbe;
use crate::slow_loop::weights::class_default;
use crate::validation::evidence::testing::{row, verdict};
use crate::validation::meta::{Phase, ThresholdRow, VariableCalibration};
use crate::validation::residual::Variable;
use crate::validation::{Exercise, Quadrant};
use crate::variables::{Outcome, OutcomeValues};

fn job(n: u128) -> ActiveJob {
    ActiveJob {
        job: JobId(uuid::Uuid::from_u128(n)),
        class: JobClass::Online,
        model_class: ModelClass::DenseSmall,
    }
}

/// Parts of an input that tests change.
struct Parts<'a> {
    rows: &'a [EvidenceRow],
    beliefs: BTreeMap<BeliefKey, Belief>,
    state: SlowState,
    last_plan: Option<CommittedPlan<'a>>,
    experience: Experience,
    tracks: BTreeMap<String, MechanismTrack>,
    calibration: Calibration,
    history: Vec<SlowTick>,
}

impl Parts<'_> {
    fn of(rows: &[EvidenceRow]) -> Parts<'_> {
        Parts {
            rows,
            beliefs: model().seed_beliefs(),
            state: SlowState::default(),
            last_plan: None,
            experience: Experience::default(),
            tracks: BTreeMap::new(),
            calibration: Calibration::default(),
            history: Vec::new(),
        }
    }

    fn run(&self) -> SlowUpdate {
        self.run_at(TickId(9))
    }

    fn run_at(&self, tick: TickId) -> SlowUpdate {
        let input = SlowUpdateInput {
            tick,
            rows: self.rows,
            tracks: &self.tracks,
            calibration: &self.calibration,
            beliefs: &self.beliefs,
            state: &self.state,
            active_jobs: &[job(0), job(1), job(2)],
            last_plan: self.last_plan,
            experience: &self.experience,
            history: &self.history,
        };
        let table = UpdateTable::embedded().unwrap();
        slow_update(&input, &model(), &table, &Params::default())
    }
}

fn calibrated(variable: Variable) -> VariableCalibration {
    VariableCalibration {
        variable,
        model_class: ModelClass::DenseSmall,
        phase: Phase::Fresh,
        blocks: 30,
        sigma: 0.05,
        slack_sigmas: 0.5,
        bias: 0.0,
        model_error_std: 0.0,
        noise_std: 0.05,
        long_run_factor: 1.0,
        level: 1.0,
        thresholds: vec![ThresholdRow {
            points: 256,
            sigmas: vec![4.0],
        }],
    }
}

fn decided(quadrant: Quadrant) -> EvidenceRow {
    let verdict = verdict("M_kv_pressure", Some(quadrant), Exercise::NotComputed);
    row(9, vec![verdict])
}

#[test]
fn a_tick_without_evidence_moves_no_belief_and_holds_regret() {
    let parts = Parts::of(&[]);
    let got = parts.run();
    assert!(got.events.is_empty());
    assert_eq!(got.beliefs, parts.beliefs);
    assert_eq!(got.state.regret, None);
    assert_eq!(got.state.objective_weights, parts.state.objective_weights);
    assert!(!got.record.convergence.holds());
}

#[test]
fn events_sum_to_the_beliefs_and_forgetting_is_one_of_them() {
    let rows = [decided(Quadrant::Q4)];
    let mut parts = Parts::of(&rows);
    let key = BeliefKey::Mechanism("M_kv_pressure".to_owned());
    parts
        .beliefs
        .insert(key.clone(), Belief::of_counts(350, 50));
    let got = parts.run();
    assert_eq!(got.events.len(), 2);
    assert_eq!(replay(&parts.beliefs, &got.events), got.beliefs);
    let after = got.beliefs[&key];
    assert_eq!(after.alpha_micro + after.beta_micro, 400_000_000);
    assert!(after.mean() < parts.beliefs[&key].mean());
}

#[test]
fn failures_raise_regret_and_misses_widen_the_band() {
    let mut bad = decided(Quadrant::Q3);
    bad.inside_band = BTreeMap::from([(Outcome::P99TtftMs, false)]);
    let got = Parts::of(&[bad, decided(Quadrant::Q1)]).run();
    assert_eq!(got.state.regret, Some(0.5));
    assert!(got.state.dro_radius > Params::default().dro_radius_initial);
    assert!(got.state.explore_weight > Params::default().explore_weight_initial);
    assert_eq!(got.record.state, got.state);
    assert_eq!(
        (got.record.signals.banded, got.record.signals.inside_band),
        (1, 0)
    );
}

#[test]
fn mechanisms_known_to_be_bad_leave_the_q1_rate() {
    let params = Params::default();
    let mut beliefs = model().seed_beliefs();
    let key = BeliefKey::Mechanism("M_kv_pressure".to_owned());
    beliefs.insert(key, Belief::of_counts(1, 9));
    let rows = [decided(Quadrant::Q4)];
    let counted = |n_decided| {
        let track = MechanismTrack {
            n_decided,
            ..MechanismTrack::default()
        };
        BTreeMap::from([("M_kv_pressure".to_owned(), track)])
    };
    let rate = |n: u32| {
        regret::q1_rate(
            &regret::tally(&rows, &params),
            &beliefs,
            &counted(n),
            &params,
        )
    };
    assert_eq!((rate(29), rate(30)), (Some(0.0), None));
}

#[test]
fn a_plan_is_counted_once() {
    let mut parts = Parts::of(&[]);
    let probe = PlannedProbe {
        job: job(1).job,
        usd: 2.5,
        information_gain: 1.0,
    };
    let tally = PlanTally {
        voluntary: vec![job(0).job],
        probes: vec![probe],
        explorations: vec![PlannedProbe {
            job: job(2).job,
            usd: 1.25,
            information_gain: 0.5,
        }],
    };
    parts.last_plan = Some(CommittedPlan {
        seq: PlanSeq(4),
        tick: TickId(8),
        at: UtcMicros(0),
        tally: &tally,
    });
    let first = parts.run();
    assert_eq!(
        (
            first.record.signals.swapped_jobs,
            first.record.signals.probed_jobs
        ),
        (1, 1)
    );
    // A swap of the budget that is made for its lesson is paid from the same day.
    assert_eq!(first.state.probes.spent_usd_micro, 3_750_000);
    assert!(
        !first
            .state
            .probes
            .is_free(job(1).job, TickId(9), &Params::default())
    );
    parts.state = first.state;
    let second = parts.run();
    assert_eq!(second.record.signals.swapped_jobs, 0);
    assert_eq!(second.state.probes, parts.state.probes);
}

#[test]
fn weights_follow_the_evidence_of_their_class_alone() {
    let mut of_job = decided(Quadrant::Q1);
    of_job.job = job(1).job;
    let rows = [of_job];
    let mut parts = Parts::of(&rows);
    // TPOT is observed far from the best ever seen, everything else at it.
    let past = |tpot: f64| PastOutcome {
        class: Some(JobClass::Online),
        model_class: Some(ModelClass::DenseSmall),
        outcomes: OutcomeValues::absent()
            .with(Outcome::P99TtftMs, 100.0)
            .with(Outcome::P99TpotMs, tpot),
    };
    parts.experience.outcomes = (0..20).map(|i| past(40.0 + f64::from(i))).collect();
    let got = parts.run();
    let w = got.state.weights_of(JobClass::Online);
    let bits = |w: [f64; 5]| w.map(f64::to_bits);
    assert_ne!(bits(w), bits(class_default(JobClass::Online)));
    assert_eq!(
        bits(got.state.weights_of(JobClass::Batch)),
        bits(class_default(JobClass::Batch))
    );
    assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    let ideal = got.state.ideal_points.first().unwrap();
    assert!(ideal.point.ideal.get(Outcome::P99TpotMs).unwrap() < 40.0);
}

/// Byte for byte: the record is a function of its input.
#[test]
fn replaying_a_tick_gives_the_same_bytes() {
    let rows = [decided(Quadrant::Q1), decided(Quadrant::Q3)];
    let parts = Parts::of(&rows);
    let text = |u: &SlowUpdate| serde_json::to_string(&(&u.record, &u.events)).unwrap();
    assert_eq!(text(&parts.run()), text(&parts.run()));
    let read: SlowTick =
        serde_json::from_str(&serde_json::to_string(&parts.run().record).unwrap()).unwrap();
    assert_eq!(read, parts.run().record);
}

#[test]
fn a_mechanism_that_failed_often_enough_is_archived_once() {
    let mut parts = Parts::of(&[]);
    let key = BeliefKey::Mechanism("M_kv_pressure".to_owned());
    parts.beliefs.insert(key, Belief::of_counts(5, 30));
    let track = MechanismTrack {
        n_decided: 40,
        n_deployments: 10,
        n_environments: 1,
        first_tick: Some(TickId(1)),
        last_tick: Some(TickId(20)),
    };
    parts.tracks.insert("M_kv_pressure".to_owned(), track);
    assert!(
        parts.run().archived.is_empty(),
        "thresholds are guesses until they are calibrated"
    );
    let judged_by = model().mechanism("M_kv_pressure").unwrap().clone();
    let mediators = judged_by.mediators.iter().map(|v| Variable::V(*v));
    for variable in mediators.chain(judged_by.outcomes.iter().map(|y| Variable::Y(*y))) {
        assert!(parts.run().archived.is_empty(), "{}", variable.name());
        parts.calibration.insert(calibrated(variable));
    }
    assert_eq!(parts.run().archived, ["M_kv_pressure"]);
    parts.tracks.get_mut("M_kv_pressure").unwrap().n_decided = 29;
    assert!(parts.run().archived.is_empty());
}

/// The S3 of ticks 7 and 8 failed: tick 9 applies their rows with its own, and the log reads as if
/// each had applied its own.
#[test]
fn rows_of_failed_ticks_are_applied_once_and_as_they_would_have_been() {
    let at = |tick: i64, quadrant| EvidenceRow {
        tick: TickId(tick),
        ..decided(quadrant)
    };
    let rows = [
        at(7, Quadrant::Q1),
        at(8, Quadrant::Q4),
        at(9, Quadrant::Q1),
    ];
    let key = BeliefKey::Mechanism("M_kv_pressure".to_owned());
    let near_bound = Belief::of_counts(360, 40);
    let start = |rows| {
        let mut parts = Parts::of(rows);
        parts.beliefs.insert(key.clone(), near_bound);
        parts.state.tick_count = 6;
        parts.state.applied_through = Some(TickId(6));
        parts
    };
    let got = start(&rows).run();
    let (mut beliefs, mut events) = (start(&[]).beliefs, Vec::new());
    for row in &rows {
        let mut parts = start(std::slice::from_ref(row));
        parts.beliefs = beliefs;
        parts.state.applied_through = Some(TickId(row.tick.0 - 1));
        let one = parts.run_at(row.tick);
        assert_eq!(one.state.applied_through, Some(row.tick));
        events.extend(one.events);
        beliefs = one.beliefs;
    }
    assert_eq!(got.events, events);
    assert_eq!(got.events.len(), 6, "three rows, and each tick forgets");
    assert_eq!(got.beliefs, beliefs);
    assert_eq!(got.state.applied_through, Some(TickId(9)));
    assert_eq!(got.record.signals.n_rows, 3);
}

/// The window of the Q1 rate is what its ticks kept: no row of theirs is read again.
#[test]
fn the_q1_rate_spans_the_ticks_before_and_forgets_the_oldest() {
    let kept = |tick: i64, quadrant| {
        let mut before = Parts::of(&[]).run().record;
        before.tick = TickId(tick);
        before.signals.verdicts = regret::tally(&[decided(quadrant)], &Params::default());
        before
    };
    let rows = [decided(Quadrant::Q1)];
    let mut parts = Parts::of(&rows);
    parts.history = vec![kept(12, Quadrant::Q4), kept(39, Quadrant::Q4)];
    let rate = |parts: &Parts<'_>, tick| parts.run_at(TickId(tick)).record.signals.q1_rate;
    assert_eq!(rate(&parts, 40), Some(0.5), "tick 12 is out of the window");
    assert_eq!(rate(&parts, 32), Some(1.0 / 3.0));
    let stored = serde_json::to_string(&parts.history).unwrap();
    parts.history = serde_json::from_str(&stored).unwrap();
    assert_eq!(rate(&parts, 40), Some(0.5));
}
