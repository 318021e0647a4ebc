//! What is learned by a plan: gains, probes and the mechanisms that ranks commit.

use super::*;
use crate::params::Params;
use crate::plan::{ActionKind, PlanDraft, SwapReason};
use crate::plan_check::check;
use crate::planner::plan;
use crate::planner::test_world::{World, chat, context, job_id, two_of_a_model};
use crate::score::eig::{EdgePower, Eig};

fn with_params(params: &Params, world: &World) -> PlanDraft {
    let context = PlanningContext {
        params,
        ..context()
    };
    plan(&world.snapshot, &context)
}

fn gains(draft: &PlanDraft) -> Vec<Option<f64>> {
    let scored = draft.considered.iter().filter_map(|c| c.sigma.as_ref());
    scored.map(|terms| terms.eig.value()).collect()
}

#[test]
fn without_contrasts_no_gain_is_computed_and_nothing_is_probed() {
    let mut world = two_of_a_model();
    world.snapshot.edge_powers = None;
    let draft = world.plan();
    assert!(gains(&draft).iter().all(Option::is_none));
    assert!(draft.probes.is_empty());
}

#[test]
fn keeping_teaches_nothing_and_another_setting_something() {
    let world = two_of_a_model();
    let draft = world.plan();
    let current = draft.considered.iter().filter(|c| c.code == "CURRENT");
    for line in current {
        assert_eq!(line.sigma.as_ref().unwrap().eig, Eig::Computed(0.0));
    }
    let gains: Vec<f64> = gains(&draft).into_iter().map(Option::unwrap).collect();
    assert!(gains.iter().any(|g| *g > 0.0), "{gains:?}");
    assert!(gains.iter().all(|g| g.is_finite() && *g >= 0.0));
}

#[test]
fn a_probe_is_outside_the_budget_says_so_and_commits_what_it_tests() {
    let mut world = two_of_a_model();
    world.snapshot.state.slow.swap_budget = 0;
    // What a change costs is the day's USD, not the churn price.
    let params = Params {
        probe_regret_max: 0.5,
        probe_usd_per_day: 10_000.0,
        ..Params::default()
    };
    let draft = with_params(&params, &world);
    let [probe] = draft.probes.as_slice() else {
        let seen: Vec<_> = draft
            .considered
            .iter()
            .map(|c| {
                let terms = c.sigma.as_ref();
                (
                    c.code.clone(),
                    terms.map(|t| (t.eig, t.sigma, t.slo_risk.any)),
                )
            })
            .collect();
        panic!(
            "one probe in a fleet of two jobs: {:?} {seen:?}",
            draft.probes
        );
    };
    let action = draft.actions.iter().find(|a| a.job == probe.job).unwrap();
    assert_eq!(
        (action.kind, action.swap_reason),
        (ActionKind::Swap, Some(SwapReason::Probe))
    );
    assert!(action.rationale.contains("probe"), "{}", action.rationale);
    let terms = &action.promise.as_ref().unwrap().sigma;
    assert!(terms.eig.value().unwrap() > 0.0);
    assert!(terms.slo_risk.any <= 0.10);
    assert!(action.mechanism_id.is_some() && probe.usd > 0.0);
    let context = PlanningContext {
        params: &params,
        ..context()
    };
    let checked = check(draft, &world.snapshot, &context).unwrap();
    assert_eq!(checked.tally().voluntary, []);
    // The same snapshot and the same plan: nothing here is rolled.
    assert_eq!(with_params(&params, &world), *checked.draft());
}

#[test]
fn probes_end_with_the_money_the_period_and_the_last_weak_edge() {
    let mut world = two_of_a_model();
    // With a budget a better swap of the same job would be taken instead.
    world.snapshot.state.slow.swap_budget = 0;
    let params = Params {
        probe_regret_max: 0.5,
        probe_usd_per_day: 10_000.0,
        ..Params::default()
    };
    assert_eq!(with_params(&params, &world).probes.len(), 1);
    let off = Params {
        probe_usd_per_day: 0.0,
        ..params
    };
    assert!(with_params(&off, &world).probes.is_empty());
    let ledger = &mut world.snapshot.state.slow.probes;
    for n in [1, 2] {
        ledger.last_tick.insert(job_id(n), crate::ids::TickId(1));
    }
    assert!(with_params(&params, &world).probes.is_empty());
    world.snapshot.state.slow.probes.last_tick.clear();
    let mut powers = EdgePowers::default();
    for edge in context().causal.edges() {
        for environment in ["e1", "e2", "e3"] {
            let power = EdgePower {
                n_contrasts: 9,
                standard_error: Some(1e-6),
                surrogate_error: 0.0,
            };
            powers.insert(&edge.id, environment, power);
        }
    }
    world.snapshot.edge_powers = Some(powers);
    assert!(with_params(&params, &world).probes.is_empty());
}

#[test]
fn every_rank_commits_a_mechanism_through_which_its_advantage_runs() {
    let mut world = World::fleet();
    let job = world.job(1, chat("chat"));
    let draft = world.plan();
    let action = draft.actions.iter().find(|a| a.job == job).unwrap();
    let id = action.mechanism_id.as_ref().unwrap();
    let mechanism = context().causal.mechanism(id).unwrap();
    let promise = action.promise.as_ref().unwrap();
    let predicted = |v: &Mediator| promise.ranks[0].mediators.get(*v).is_some();
    assert!(mechanism.mediators.iter().any(predicted), "{id}");
    let weights = world.snapshot.state.jobs[&job].spec.preference.weights;
    let matters = |y: &Outcome| weights[y.index()] > 0.0 && promise.outcomes.get(*y).is_some();
    assert!(mechanism.outcomes.iter().any(matters), "{id}");
}

#[test]
fn numbers_differ_by_a_factor_and_levels_by_name() {
    let number = FeatureValue::Number;
    assert!(differs(&number(4.0), &number(8.0)) && !differs(&number(100.0), &number(115.0)));
    assert!(differs(&number(0.0), &number(1.0)) && !differs(&number(0.0), &number(0.0)));
    let text = |t: &str| FeatureValue::Text(t.to_owned());
    assert!(differs(&text("H100"), &text("A100")) && !differs(&text("H100"), &text("H100")));
    assert!(differs(
        &FeatureValue::Flag(true),
        &FeatureValue::Flag(false)
    ));
}
