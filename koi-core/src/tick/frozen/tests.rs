//! What is frozen stays, and what was seen is learned: by the next plan, in its own environment.

use super::*;
use crate::experience::Experience;
use crate::ids::JobId;
use crate::planner::forecast::{Forecast, JobView, Place, RankPlan, forecast, forecast_running};
use crate::planner::pools::Pools;
use crate::planner::test_world::{World, chat, context};
use crate::surrogate::residual::Quantity;
use crate::surrogate::{LatencyShape, Spread, roll_up};
use crate::validation::VariableVerdict;
use crate::validation::evidence::testing::{committed, row};
use crate::variables::OutcomeValues;

fn world() -> (World, JobId) {
    let mut world = World::new();
    // Slow enough for the engine's buckets to tell one time per token from another.
    world.host("here", "L40S", 4, "reserved", 2.0);
    world.host("there", "L40S", 4, "spot", 2.0);
    let id = world.job(1, chat("chat"));
    world.tick();
    assert!(world.snapshot.state.jobs[&id].active.is_some());
    (world, id)
}

fn ladder(world: &World, id: JobId) -> &CommittedLadder {
    world.snapshot.state.jobs[&id].active.as_ref().unwrap()
}

/// The outcomes of a deployment whose latencies are so many times what first principles say.
fn truth(analytic: &Prediction, [tpot, ttft]: [f64; 2], slo: &crate::job::Slo) -> OutcomeValues {
    let by = |spread: Option<Spread>, factor: f64| {
        spread.map(|s| Spread {
            mu: s.mu + factor.ln(),
            ..s
        })
    };
    let mut real = *analytic;
    real.latency = LatencyShape {
        tpot: by(analytic.latency.tpot, tpot),
        ttft: by(analytic.latency.ttft, ttft),
    };
    roll_up(&[(1.0, &real)], slo, None)
}

/// First principles at what the promise was made for.
fn analytic(world: &World, id: JobId) -> Prediction {
    let promise = &ladder(world, id).promise;
    let (mut bare, members) = (promise.ranks[0], promise.members[0]);
    let back = |spread: Option<Spread>, q: Quantity| {
        spread.map(|s| Spread {
            mu: s.mu - members.of(q).shift(),
            ..s
        })
    };
    bare.latency = LatencyShape {
        tpot: back(bare.latency.tpot, Quantity::Tpot),
        ttft: back(bare.latency.ttft, Quantity::Ttft),
    };
    bare
}

/// So many ticks in which the ladder did what is true.
fn evidence(world: &World, id: JobId, factors: [f64; 2], n: i64) -> Vec<EvidenceRow> {
    let job = &world.snapshot.state.jobs[&id];
    let rank = &ladder(world, id).ladder.ranks[0];
    let promised = ladder(world, id).promise.ranks[0];
    let seen = truth(&analytic(world, id), factors, &job.spec.slo);
    let verdict = |outcome: Outcome| VariableVerdict {
        points: 12,
        observed_mean: seen.get(outcome).unwrap(),
        predicted_mean: promised.outcomes.get(outcome).unwrap(),
        residual_mean: 0.0,
        own_bias: None,
        sigma: None,
        verdict: None,
        peak: None,
        fired_at: None,
    };
    (0..n)
        .map(|tick| {
            let mut one = row(tick, vec![committed("M_kv_pressure")]);
            one.job = id;
            one.environment = rank.environment.clone();
            for outcome in [Outcome::P99TpotMs, Outcome::P99TtftMs] {
                one.variables
                    .insert(outcome.name().to_owned(), verdict(outcome));
            }
            one.stood = stood((job, rank), &one, &[]);
            assert!(one.stood.is_some());
            one
        })
        .collect()
}

fn now(world: &World, id: JobId) -> Forecast {
    let context = context();
    let record = &world.snapshot.state.jobs[&id];
    let view = JobView::of(record, &world.snapshot, &context);
    let ladder = &ladder(world, id).ladder;
    forecast_running(&view, ladder, &world.snapshot, &context).unwrap()
}

/// The same settings with twice the shards, or as they are in the other environment.
fn elsewhere(world: &World, id: JobId, market: &str, tp: u32) -> Forecast {
    let context = context();
    let view = JobView::of(&world.snapshot.state.jobs[&id], &world.snapshot, &context);
    let pools = Pools::of(&world.snapshot);
    let mut keys = pools.pools.iter().map(|p| &p.key);
    let key = keys
        .find(|k| k.environment.market.name() == market)
        .unwrap();
    let rank = &ladder(world, id).ladder.ranks[0];
    let mut shape = rank.configuration.shape();
    shape.tp *= tp;
    let plan = RankPlan {
        place: Place::of(key, &context).unwrap(),
        shape,
        n_replicas: rank.n_replicas,
    };
    forecast(&view, &[plan], false).unwrap()
}

fn off(said: &OutcomeValues, seen: &OutcomeValues, outcome: Outcome) -> f64 {
    let (said, seen) = (said.get(outcome).unwrap(), seen.get(outcome).unwrap());
    (said / seen - 1.0).abs()
}

#[test]
fn twenty_rows_move_the_prediction_to_what_was_seen_and_others_less() {
    for factors in [[1.6, 1.8], [2.5, 3.0], [0.4, 0.5], [4.6, 1.0]] {
        let (mut world, id) = world();
        let home = ladder(&world, id).ladder.ranks[0].environment.market.name();
        let away = if home == "spot" { "reserved" } else { "spot" };
        let slo = world.snapshot.state.jobs[&id].spec.slo;
        let seen = truth(&analytic(&world, id), factors, &slo);
        let before = now(&world, id);
        let wide = elsewhere(&world, id, home, 2);
        let there = elsewhere(&world, id, away, 1);

        let rows = evidence(&world, id, factors, 20);
        world.snapshot.tick = crate::ids::TickId(20);
        world.snapshot.experience = Experience::from_rows(&rows, &world.snapshot.state);
        let after = now(&world, id);
        let y = &after.summary.outcomes;
        let tpot = off(y, &seen, Outcome::P99TpotMs);
        let ttft = off(y, &seen, Outcome::P99TtftMs);
        println!("{factors:?}: p99 TPOT off by {tpot:.3}, p99 TTFT by {ttft:.3}");
        assert!(tpot <= 0.09, "{factors:?}: TPOT {tpot}");
        assert!(ttft <= 0.20, "{factors:?}: TTFT {ttft}");
        let own = after.members[0].of(Quantity::Tpot).own;
        assert!(own.coverage > 0.85, "{own:?}");
        // Twice the shards hear of it, and less; the other environment does not.
        let moved = |a: &Forecast, b: &Forecast| {
            (b.ranks[0].tpot_mean_ms.unwrap() / a.ranks[0].tpot_mean_ms.unwrap())
                .ln()
                .abs()
        };
        let (here, beside) = (
            moved(&before, &after),
            moved(&wide, &elsewhere(&world, id, home, 2)),
        );
        println!("    moved by {here:.3} here, by {beside:.3} with twice the shards");
        assert!(here > 0.3, "{here}");
        assert!(beside < 0.75 * here, "{beside} against {here}");
        assert_eq!(elsewhere(&world, id, away, 1), there);
    }
}

#[test]
fn few_rows_and_falsified_mechanisms_say_less() {
    let (mut world, id) = world();
    let rows = evidence(&world, id, [1.6, 1.8], 20);
    let heard = |world: &mut World, rows: &[EvidenceRow], tick: i64| {
        world.snapshot.tick = crate::ids::TickId(tick);
        world.snapshot.experience = Experience::from_rows(rows, &world.snapshot.state);
        now(world, id).members[0].of(Quantity::Tpot).own.coverage
    };
    let many = heard(&mut world, &rows, 20);
    let few = heard(&mut world, &rows[..2], 20);
    assert!(few < 0.8 * many, "{few} against {many}");
    let old = heard(&mut world, &rows[..2], 20 + 10 * 288);
    assert!(old < 0.1 * few, "{old} against {few}");
    let key = crate::causal::BeliefKey::Mechanism("M_kv_pressure".to_owned());
    let moved = world.snapshot.state.beliefs.entry(key).or_default();
    moved.beta_micro += 200_000_000;
    let falsified = heard(&mut world, &rows, 20);
    assert!(falsified < 0.6 * many, "{falsified} against {many}");
}

/// What a plan made with corrections promises is what verdicts on it are held against, and what is
/// then learned is the whole error again, not what the correction left.
#[test]
fn verdicts_hold_what_was_promised_whatever_is_heard_later() {
    let (mut world, id) = world();
    let factors = [1.6, 1.8];
    let rows = evidence(&world, id, factors, 20);
    world.snapshot.tick = crate::ids::TickId(20);
    world.snapshot.experience = Experience::from_rows(&rows, &world.snapshot.state);
    let said = now(&world, id);
    let job = world.job_mut(id);
    let active = job.active.as_mut().unwrap();
    active.promise.ranks.clone_from(&said.ranks);
    active.promise.members.clone_from(&said.members);

    let job = &world.snapshot.state.jobs[&id];
    let rank = &ladder(&world, id).ladder.ranks[0];
    let deployment = Deployment {
        model: &job.spec.model.facts,
        gpu: crate::catalog::Catalog::embedded()
            .gpu_type("L40S")
            .unwrap(),
        shape: rank.configuration.shape(),
        n_replicas: rank.n_replicas,
        price_usd_per_hour_per_replica: None,
    };
    let demand = Demand {
        workload: &job.spec.workload,
        class: job.spec.class,
        slo: &job.spec.slo,
        rate_rps_per_replica: job.spec.workload.arrival_rate_rps / f64::from(rank.n_replicas),
        batch_concurrency: None,
    };
    let Answer::Prediction(held) = predict_as_promised((job, rank), &deployment, &demand) else {
        panic!("it runs");
    };
    let promised = said.ranks[0];
    assert_eq!(held.latency, promised.latency);
    assert_eq!(held.mediators, promised.mediators);
    let Answer::Prediction(bare) = predict(&deployment, &demand) else {
        panic!("it runs");
    };
    assert_ne!(held.latency, bare.latency);
    // Mediators are those of first principles, corrected or not.
    assert_eq!(held.mediators, bare.mediators);

    let first = rows[0].stood.unwrap().log_errors;
    let again = evidence(&world, id, factors, 1)[0]
        .stood
        .unwrap()
        .log_errors;
    for (first, again) in first.into_iter().zip(again) {
        let gap = first.unwrap_or(0.0) - again.unwrap_or(0.0);
        assert!(
            gap.abs() < 0.15 * first.unwrap_or(1.0).abs(),
            "{first:?} {again:?}"
        );
    }
}

#[test]
fn a_ladder_without_frozen_members_is_held_against_first_principles() {
    let (mut world, id) = world();
    let job = world.job_mut(id);
    job.active.as_mut().unwrap().promise.members.clear();
    let job = &world.snapshot.state.jobs[&id];
    let rank = &ladder(&world, id).ladder.ranks[0];
    assert!(promised(job, rank).unwrap().1.is_none());
    assert!(stood((job, rank), &row(1, Vec::new()), &[]).is_none());
    // A rank of nobody has no promise.
    assert!(promised(job, &rank.clone()).is_none());
}
