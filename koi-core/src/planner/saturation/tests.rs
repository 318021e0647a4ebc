//! Two jobs that explore the same links: what a plan says of both sums to what it teaches.

use super::*;
use crate::params::Params;
use crate::plan::{ActionKind, PlanAction, PlanDraft};
use crate::planner::context::PlanningContext;
use crate::planner::plan;
use crate::planner::scoring::current_beliefs;
use crate::planner::test_world::{World, context, two_of_a_model};
use crate::score::eig::{information_gain, saturate};

/// Two jobs of one model that run beside each other, with nothing known of any edge and much to be
/// gained by knowing.
fn world() -> World {
    let mut world = two_of_a_model();
    world.snapshot.state.slow.explore_weight = 2.0;
    world
}

fn changes(draft: &PlanDraft) -> Vec<&PlanAction> {
    let is_swap = |a: &&PlanAction| a.kind == ActionKind::Swap;
    draft.actions.iter().filter(is_swap).collect()
}

/// What the swaps of a plan put to the test, and what they are credited with.
fn tested(world: &World, draft: &PlanDraft, context: &PlanningContext<'_>) -> (Vec<Masks>, f64) {
    let beliefs = current_beliefs(&world.snapshot, context);
    let exploration = Exploration::of(&world.snapshot, context, &beliefs).unwrap();
    let masks = changes(draft).into_iter().map(|a| {
        let record = &world.snapshot.state.jobs[&a.job];
        exploration.masks(record, a.ladder.as_ref().unwrap())
    });
    let credit = |a: &&PlanAction| a.promise.as_ref().unwrap().sigma.eig.value().unwrap();
    (masks.collect(), changes(draft).iter().map(credit).sum())
}

#[test]
fn a_plan_credits_what_two_jobs_test_once() {
    let world = world();
    let params = Params {
        probe_usd_per_day: 10_000.0,
        ..Params::default()
    };
    let context = PlanningContext {
        params: &params,
        ..context()
    };
    let draft = plan(&world.snapshot, &context);
    let (masks, credited) = tested(&world, &draft, &context);
    assert_eq!(masks.len(), 2, "both jobs explore: {:?}", draft.actions);
    let beliefs = current_beliefs(&world.snapshot, &context);
    let doubts: BTreeMap<_, _> = beliefs
        .iter()
        .map(|(key, b)| (key.clone(), b.uncertainty()))
        .collect();
    let gain = |masks: &Masks| information_gain(masks, &doubts, &params);
    let (together, alone) = (gain(&saturate(&masks)), masks.iter().map(gain).sum::<f64>());
    assert!(together < alone - 1e-3, "they share nothing: {masks:?}");
    assert!(
        (credited - together).abs() < 1e-9,
        "{credited} is not {together}, alone {alone}"
    );
    assert!(draft.bound.unwrap() >= draft.objective - 1e-9);
}

#[test]
fn probes_of_one_tick_are_credited_with_what_they_add() {
    let mut world = world();
    world.snapshot.state.slow.swap_budget = 0;
    // Two probes a tick.
    let params = Params {
        probe_regret_max: 0.5,
        probe_usd_per_day: 10_000.0,
        probe_period_ticks: 1,
        ..Params::default()
    };
    let context = PlanningContext {
        params: &params,
        ..context()
    };
    let draft = plan(&world.snapshot, &context);
    assert_eq!(draft.probes.len(), 2, "{:?}", draft.probes);
    let (masks, credited) = tested(&world, &draft, &context);
    let planned: f64 = draft.probes.iter().map(|p| p.information_gain).sum();
    let beliefs = current_beliefs(&world.snapshot, &context);
    let doubts: BTreeMap<_, _> = beliefs
        .iter()
        .map(|(key, b)| (key.clone(), b.uncertainty()))
        .collect();
    let together = information_gain(&saturate(&masks), &doubts, &params);
    assert!((planned - together).abs() < 1e-9, "{planned} {together}");
    assert!((credited - together).abs() < 1e-9, "{credited} {together}");
}
