//! The space against enumeration's own way of looking at one candidate, and parts against the whole.

use super::*;
use crate::experience::Experience;
use crate::ids::JobId;
use crate::job::JobSpec;
use crate::model::ModelFacts;
use crate::planner::scoring::current_beliefs;
use crate::planner::test_world::{LLAMA_70B, World, chat, context};
use crate::store::ServerState;
use crate::validation::EvidenceRow;
use crate::validation::evidence::testing::{committed, row};
use crate::variables::{Outcome, OutcomeValues};

fn few() -> Axes {
    Axes {
        tp: vec![1, 2, 3, 4],
        pp: vec![1, 2],
        max_num_seqs: vec![64, 256],
        max_num_batched_tokens: vec![128, 8192],
        gpu_memory_utilization: vec![0.9, 1.5],
        block_size: vec![16, 32],
        prefix_caching: vec![true, false],
        replicas_max: 4,
    }
}

fn evidence(mechanism: &str, residual: f64) -> Vec<EvidenceRow> {
    let mut one = row(1, Vec::new());
    one.environment.gpu_type = "H100".to_owned();
    let outcomes = OutcomeValues::absent();
    one.promise_residuals = outcomes
        .with(Outcome::P99TtftMs, residual)
        .with(Outcome::P99TpotMs, residual / 2.0);
    one.mechanisms = vec![committed(mechanism)];
    vec![one; 30]
}

/// A fleet with an online job; what was seen differs by mechanism.
fn world(spec: JobSpec) -> (World, JobId) {
    let mut world = World::fleet();
    let id = world.job(1, spec);
    let rows = [
        evidence("M_pipeline_bubble", 0.4),
        evidence("M_kv_pressure", 0.05),
        evidence("none", 0.1),
    ]
    .concat();
    world.snapshot.experience = Experience::from_rows(&rows, &ServerState::default());
    (world, id)
}

fn tight() -> JobSpec {
    let mut spec = chat("chat");
    spec.workload.arrival_rate_rps = 12.0;
    spec.workload.shared_prefix_tokens = 200.0;
    spec.workload.prefix_concentration = 0.5;
    spec.constraints.max_usd_per_hour = Some(20.0);
    spec
}

fn with_space(spec: JobSpec, axes: &Axes, check: impl FnOnce(&mut Space<'_>, &Pools)) {
    let (world, id) = world(spec);
    let context = context();
    let beliefs = current_beliefs(&world.snapshot, &context);
    let scorer = Scorer {
        context: &context,
        snapshot: &world.snapshot,
        beliefs: &beliefs,
        exploration: None,
    };
    let view = JobView::of(&world.snapshot.state.jobs[&id], &world.snapshot, &context);
    let pools = Pools::of(&world.snapshot);
    let mut space = Space::of(&view, &pools, &scorer, Change::Place, axes).unwrap();
    check(&mut space, &pools);
}

fn whole(space: &Space<'_>) -> Found {
    space.evaluate(0..space.n_shapes)
}

#[test]
fn every_candidate_is_judged_as_enumeration_would() {
    with_space(tight(), &few(), |space, pools| {
        let limit = space.view.record.spec.constraints.max_usd_per_hour.unwrap();
        let mut expected = Found {
            n_candidates: space.n_candidates(),
            ..Found::default()
        };
        for position in 0..space.n_candidates() {
            let Ok(option) = space.option(position) else {
                continue;
            };
            let (n, size) = (option.ladder.n_replicas(), option.chain_size());
            let pool = &pools.pools[option.pool];
            let is_dear = option.forecast.summary.stated_usd_per_hour.unwrap() > limit;
            if pool.chains_when_empty(size) < n || is_dear {
                continue;
            }
            let scored = Scored {
                candidate: position,
                sigma: option.terms.sigma,
                breach_probability: option.terms.slo_risk.any,
                n_gpus: option.ladder.n_gpus(),
            };
            let is_free = pool.free_pieces(size) >= u64::from(n);
            expected.add(scored, option.meets, is_free);
        }
        let found = whole(space);
        assert_eq!(found.meeting, expected.meeting);
        assert_eq!(found.least_risk, expected.least_risk);
        assert_eq!(found.n_scored, expected.n_scored);
        assert_eq!(found.n_meeting, expected.n_meeting);
        assert!(found.n_scored > 500 && found.n_meeting > 50, "{found:?}");
        assert!(found.n_meeting < found.n_scored && !found.meeting.is_empty());
        let refused: u64 = found.refused.iter().sum();
        assert_eq!(refused + found.n_scored, found.n_candidates);
        assert!(found.n_refused(Refusal::Price) > 0 && found.n_refused(Refusal::Capacity) > 0);
    });
}

#[test]
fn looking_up_every_mechanism_in_full_finds_the_same() {
    with_space(tight(), &few(), |space, _| {
        assert!(!space.is_entangled);
        assert!(space.kinds.iter().any(|k| k.limits.len() > 1));
        let tabled = whole(space);
        space.is_entangled = true;
        assert_eq!(whole(space), tabled);
    });
}

#[test]
fn parts_in_any_number_and_order_merge_to_the_whole() {
    with_space(tight(), &few(), |space, _| {
        let expected = whole(space);
        for n in [1, 2, 3, 7, 1_000_000] {
            let mut parts = space.parts(n);
            assert!(parts.windows(2).all(|w| w[0].end == w[1].start));
            parts.reverse();
            let found = parts
                .into_iter()
                .map(|part| space.evaluate(part))
                .fold(Found::default(), |all, part| all.merge(&part));
            assert_eq!(found, expected, "{n}");
        }
    });
}

#[test]
fn threads_change_nothing() {
    with_space(tight(), &few(), |space, _| {
        let space = &*space;
        let found = std::thread::scope(|scope| {
            let threads: Vec<_> = space
                .parts(2)
                .into_iter()
                .map(|part| scope.spawn(move || space.evaluate(part)))
                .collect();
            let parts = threads.into_iter().map(|t| t.join().unwrap());
            parts.fold(Found::default(), |all, part| all.merge(&part))
        });
        assert_eq!(found, whole(space));
    });
}

#[test]
fn values_outside_their_domain_are_left_out_with_the_reason() {
    with_space(tight(), &few(), |space, _| {
        let reasons = space.left_out.join("\n");
        assert!(reasons.contains("gpu_memory_utilization"), "{reasons}");
        // Steps of 128 tokens for 256 sequences, and three shards of 32 heads, are no candidates.
        let kind = &space.kinds[0];
        assert!(kind.axes[1].iter().all(|v| v.knob != Knob::Batch(256, 128)));
        assert!(
            kind.axes[0]
                .iter()
                .all(|v| !matches!(v.knob, Knob::Split(3, _)))
        );
    });
}

#[test]
fn a_model_too_large_for_one_device_is_refused_there_by_memory() {
    let mut spec = chat("large");
    spec.model.facts = ModelFacts::from_config_json(LLAMA_70B).unwrap();
    with_space(spec, &few(), |space, _| {
        let found = whole(space);
        assert!(found.n_refused(Refusal::NoFit) > 100, "{found:?}");
        assert!(found.n_scored > 0);
    });
}

#[test]
fn spaces_are_bounded() {
    let endless = Axes {
        max_num_seqs: (1..=20).collect(),
        max_num_batched_tokens: (1..=20).map(|n| 1024 * n).collect(),
        ..Axes::wide()
    };
    let (world, id) = world(tight());
    let context = context();
    let beliefs = current_beliefs(&world.snapshot, &context);
    let scorer = Scorer {
        context: &context,
        snapshot: &world.snapshot,
        beliefs: &beliefs,
        exploration: None,
    };
    let view = JobView::of(&world.snapshot.state.jobs[&id], &world.snapshot, &context);
    let pools = Pools::of(&world.snapshot);
    let refused = Space::of(&view, &pools, &scorer, Change::Place, &endless).unwrap_err();
    assert_eq!(refused, NoSpace::LongAxis { n: 400 });
}

#[test]
fn a_wide_search_is_no_worse_than_enumeration() {
    let axes = Axes {
        gpu_memory_utilization: vec![0.9],
        block_size: vec![16],
        prefix_caching: vec![true],
        ..Axes::wide()
    };
    with_space(tight(), &axes, |space, pools| {
        let found = whole(space);
        let best = found.best().unwrap().sigma;
        let few =
            crate::planner::enumerate::enumerate(space.view, pools, space.scorer, Change::Place);
        let meeting = few.options.iter().filter(|o| o.meets);
        let narrow = meeting.map(|o| o.terms.sigma).fold(f64::MIN, f64::max);
        assert!(best >= narrow, "{best} {narrow}");
    });
}
