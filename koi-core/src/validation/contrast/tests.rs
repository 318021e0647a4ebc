//! A small world in which a true, an absent, a wrong-signed and a one-environment edge are told
//! apart, through the same book, contrasts and sums as in the product.
//!
//! Truth: what the surrogate says, bent by errors of its own: a shift per place and job, and other
//! strengths of two settings than it believes. One setting works in one place alone, which the
//! surrogate does not know.

mod replay;
mod world;

use super::*;
use crate::score::eig::EdgePowers;
use world::{ENVIRONMENTS, World, claims};

/// Confidence in a mechanism after a run.
fn confidence(world: &World, mechanism: &str) -> f64 {
    world.belief(mechanism).mean()
}

#[test]
fn true_and_false_mechanisms_part_within_two_hundred_ticks() {
    let mut world = World::new(1, true);
    world.run(200);
    let all = claims().map(|id| (id, confidence(&world, id)));
    let c = |id: &str| confidence(&world, id);
    assert!(c("M_true") >= 0.9, "{all:?} {}", world.report());
    assert!(c("M_absent") <= 0.2, "{all:?}");
    assert!(c("M_wrong_sign") <= 0.2, "{all:?}");
    assert!(c("M_one_environment") <= 0.35, "{all:?} {}", world.report());
}

#[test]
fn without_contrasts_they_all_look_alike() {
    let mut world = World::new(1, false);
    world.run(60);
    for id in claims() {
        assert!(confidence(&world, id) > 0.9, "{id}");
    }
}

#[test]
fn the_effect_of_one_place_is_seen_there_and_refuted_elsewhere() {
    let mut world = World::new(2, true);
    world.run(200);
    let book = &world.book;
    let errors = errors::ChangeErrors::of(book);
    let edge = world
        .model
        .edge("api_server_count->running_requests")
        .unwrap();
    let verdicts: Vec<(String, EdgeVerdict)> = book
        .sums_by_environment(&edge.id, "Any;Any")
        .map(|(e, sums)| {
            (
                e.to_owned(),
                judgement::edge_judgement(edge, sums, &errors)
                    .unwrap()
                    .verdict,
            )
        })
        .collect();
    assert!(verdicts.len() >= 4, "{verdicts:?}");
    for (environment, verdict) in &verdicts {
        if environment == ENVIRONMENTS[world::SPECIAL] {
            assert_eq!(*verdict, EdgeVerdict::Exercised);
        }
    }
    let refuted = verdicts.iter().filter(|v| v.1 == EdgeVerdict::Contradicted);
    assert!(refuted.count() >= 3, "{verdicts:?}");
    let icp = judgement::effect_leg(edge, "Any;Any", book, &errors);
    assert_eq!(icp, crate::validation::Icp::Reject);
}

#[test]
fn a_row_pays_for_what_others_of_its_place_have_found() {
    let mut world = World::new(6, true);
    world.run(120);
    let catalog = crate::catalog::Catalog::embedded();
    let (params, none) = (crate::params::Params::default(), Default::default());
    let ctx = CompareContext {
        catalog,
        model: &world.model,
        params: &params,
        residual_invariance: &none,
    };
    let errors = errors::ChangeErrors::of(&world.book);
    let mut tests = exercise::Tests::new(&world.book, &errors, ctx);
    let mut judged = |id: &str, environment: &str| {
        let q1 = Some(crate::validation::Quadrant::Q1);
        let exercise = crate::validation::Exercise::Unexercised;
        let mut verdict = crate::validation::evidence::testing::verdict(id, q1, exercise);
        let mechanism = world.model.mechanism(id).unwrap();
        // Of a deployment that has made no contrast of its own.
        tests.judge(&mut verdict, mechanism, (environment, None));
        verdict
    };
    let mut paid = 0;
    for environment in ENVIRONMENTS {
        let absent = judged("M_absent", environment);
        if !absent.contradicted.is_empty() {
            paid += 1;
            assert_eq!(absent.quadrant, Some(crate::validation::Quadrant::Q3));
            assert!((absent.weight(&params) - 1.0).abs() < 1e-12);
        }
        let held = judged("M_true", environment);
        assert!(held.contradicted.is_empty(), "{held:?}");
        assert!((held.weight(&params) - params.unexercised_weight).abs() < 1e-12);
    }
    assert!(paid >= 4, "{paid} {}", world.report());
    assert!(
        judged("M_absent", "reserved/lab/eu/nowhere/H100")
            .contradicted
            .is_empty()
    );
}

#[test]
fn the_planner_is_told_what_the_sums_know_of_every_edge_and_place() {
    let mut world = World::new(5, true);
    assert_eq!(
        edge_powers(&world.book, &world.model),
        EdgePowers::default()
    );
    world.run(40);
    let errors = errors::ChangeErrors::of(&world.book);
    let powers = edge_powers(&world.book, &world.model);
    let mut told = 0;
    for (key, sums) in world.book.sums().filter(|(_, sums)| sums.n() > 0) {
        let edge = world.model.edge(&key.edge).unwrap();
        let power = powers.power(&key.edge, &key.environment).unwrap();
        let judged = judgement::edge_judgement(edge, sums, &errors).unwrap();
        assert_eq!(power.n_contrasts, judged.n);
        assert_eq!(
            power.standard_error,
            judged.effect.map(|e| e.standard_error)
        );
        let claim = errors.claim(edge, sums).unwrap();
        let told_error = Some(power.surrogate_error);
        assert_eq!(told_error, Some(claim.surrogate_error));
        told += 1;
    }
    assert!(told > 5, "{told}");
}

#[test]
fn a_narrower_scope_does_not_hide_what_a_wider_one_knows() {
    let mut world = World::new(5, true);
    world.run(40);
    let powers = edge_powers(&world.book, &world.model);
    let few = |key: &SumKey| SumChange {
        key: SumKey {
            scope: "AA;AA".to_owned(),
            ..key.clone()
        },
        sums: EdgeSums {
            steps: ContrastSums {
                n: 1,
                zz: 1.0,
                zd: 1.0,
                dd: 1.0,
            },
            ..EdgeSums::default()
        },
    };
    let known = world.book.sums().filter(|(_, sums)| sums.n() > 1);
    let sums: Vec<SumChange> = known.map(|(key, _)| few(key)).collect();
    assert!(sums.len() > 5);
    let update = ContrastUpdate {
        sums,
        ..ContrastUpdate::default()
    };
    world.book.write(&update).unwrap();
    assert_eq!(edge_powers(&world.book, &world.model), powers);
}

#[test]
fn a_pair_of_deployments_counts_once_however_long_both_live() {
    let mut world = World::new(3, true);
    world.run(7);
    let pairs: usize = world.book.deployments().map(|d| d.contrasts.len()).sum();
    let counted: u32 = world.book.sums().map(|(_, s)| s.n()).sum();
    assert!(pairs > 20, "{pairs}");
    assert!(counted as usize >= pairs);
    // Nothing left the book in so few ticks, so the sums are exactly its contrasts.
    assert_eq!(counted as usize, pairs);
}

#[test]
fn rows_that_were_counted_change_nothing_when_they_come_again() {
    let mut world = World::new(4, true);
    world.run(30);
    let newest = world.rows.last().unwrap()[0].tick;
    for rows in &world.rows {
        let (again, _) = fold_tick(&world.book, newest, rows);
        let late = rows[0].tick < newest;
        assert!(!late || again == world.book, "tick {}", rows[0].tick);
    }
}
