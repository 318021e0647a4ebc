//! Tests of the fan-out: what one evidence row moves, and by how much.

use proptest::prelude::*;

use super::*;
use crate::causal::testing::model;
use crate::validation::evidence::testing::{row, verdict};
use crate::validation::{Exercise, Quadrant};

fn events(rows: &[EvidenceRow]) -> Vec<BeliefEvent> {
    fan_out(
        rows,
        &model(),
        &UpdateTable::embedded().unwrap(),
        &Params::default(),
    )
}

fn change_of(event: &BeliefEvent, key: &str) -> (i64, i64) {
    let key: BeliefKey = key.parse().unwrap();
    let change = event.changes.iter().find(|c| c.key == key);
    change.map_or((0, 0), |c| (c.alpha_micro, c.beta_micro))
}

#[test]
fn a_row_moves_its_mechanisms_in_full_and_an_unshared_edge_in_full() {
    let q4 = verdict(
        "M_admission_queue",
        Some(Quadrant::Q4),
        Exercise::NotComputed,
    );
    let got = events(&[row(7, vec![q4])]);
    assert_eq!(got.len(), 1);
    assert_eq!(
        change_of(&got[0], "mechanism:M_admission_queue"),
        (0, 1_500_000)
    );
    assert_eq!(
        change_of(&got[0], "edge:queue_depth->p99_ttft_ms"),
        (0, 500_000)
    );
    assert_eq!(got[0].changes.len(), 5);
}

#[test]
fn an_edge_carried_twice_takes_each_delta_divided_by_two() {
    let mut model = model();
    let twin = crate::causal::mechanism::MechanismDraft {
        id: None,
        edges: vec![
            "request_arrival_rate->queue_depth".to_owned(),
            "queue_depth->p99_ttft_ms".to_owned(),
        ],
        scope: crate::causal::Scope::default(),
        narrative: "Requests wait.".to_owned(),
        prior: None,
    };
    let kind_of = crate::causal::testing::kind_of;
    let origin = crate::lifecycle::Origin::Proposal;
    let twin = crate::lifecycle::admit(twin, origin, &model, &kind_of).unwrap();
    let id = twin.id.clone();
    model.insert(twin);
    let rows = [row(
        1,
        vec![
            verdict("M_admission_queue", Some(Quadrant::Q1), Exercise::Exercised),
            verdict(&id, Some(Quadrant::Q3), Exercise::Exercised),
        ],
    )];
    let table = UpdateTable::embedded().unwrap();
    let got = fan_out(&rows, &model, &table, &Params::default());
    assert_eq!(
        change_of(&got[0], "edge:queue_depth->p99_ttft_ms"),
        (50_000, 125_000)
    );
    assert_eq!(
        change_of(&got[0], "edge:max_num_seqs->queue_depth"),
        (100_000, 0)
    );
    let whole = Params {
        normalize_shared_edges: false,
        ..Params::default()
    };
    let got = fan_out(&rows, &model, &table, &whole);
    assert_eq!(
        change_of(&got[0], "edge:queue_depth->p99_ttft_ms"),
        (100_000, 250_000)
    );
}

#[test]
fn rows_that_do_not_exercise_count_little_and_undecided_ones_not_at_all() {
    let weak = verdict("M_kv_pressure", Some(Quadrant::Q1), Exercise::Unexercised);
    let none = verdict("M_batch_amortisation", None, Exercise::Exercised);
    let unknown = verdict("M_nobody", Some(Quadrant::Q1), Exercise::Exercised);
    let got = events(&[
        row(1, vec![weak, none.clone(), unknown]),
        row(2, vec![none]),
    ]);
    assert_eq!(got.len(), 1);
    assert_eq!(change_of(&got[0], "mechanism:M_kv_pressure"), (50_000, 0));
    assert_eq!(change_of(&got[0], "mechanism:M_batch_amortisation"), (0, 0));
}

#[test]
fn rounding_is_to_the_nearest_and_ties_go_to_even() {
    for (numerator, denominator, expected) in [
        (5, 2, 2),
        (7, 2, 4),
        (-5, 2, -2),
        (-7, 2, -4),
        (10, 3, 3),
        (-10, 3, -3),
        (11, 3, 4),
    ] {
        assert_eq!(
            round_half_even(numerator, denominator),
            expected,
            "{numerator}/{denominator}"
        );
    }
}

#[test]
fn forgetting_keeps_the_mean_and_hits_the_bound_exactly() {
    let key = BeliefKey::Mechanism("M_a".to_owned());
    let small = BeliefKey::Mechanism("M_b".to_owned());
    let beliefs = BTreeMap::from([
        (
            key.clone(),
            Belief {
                alpha_micro: 333_333_333,
                beta_micro: 100_000_001,
            },
        ),
        (small.clone(), Belief::of_counts(399, 1)),
    ]);
    let event = forget(TickId(3), &beliefs, &Params::default()).unwrap();
    let after = replay(&beliefs, [&event]);
    assert_eq!(
        after[&key].alpha_micro + after[&key].beta_micro,
        400_000_000
    );
    assert!((after[&key].mean() - beliefs[&key].mean()).abs() < 1e-8);
    assert_eq!(after[&small], beliefs[&small]);
    assert_eq!(forget(TickId(4), &after, &Params::default()), None);
}

proptest! {
    #[test]
    fn beliefs_equal_the_seeds_plus_the_sum_of_events_in_any_order(
        quadrants in prop::collection::vec((0..4_usize, 0..6_usize, any::<bool>()), 1..60),
    ) {
        let model = model();
        let ids: Vec<String> = model.mechanisms().map(|m| m.id.clone()).collect();
        let rows: Vec<EvidenceRow> = quadrants
            .iter()
            .enumerate()
            .map(|(i, (q, m, exercised))| {
                let exercise = if *exercised { Exercise::Exercised } else { Exercise::Unexercised };
                row(i as i64, vec![verdict(&ids[*m % ids.len()], Some(Quadrant::ALL[*q]), exercise)])
            })
            .collect();
        let events = events(&rows);
        prop_assert_eq!(&events, &fan_out(&rows, &model, &UpdateTable::embedded().unwrap(), &Params::default()));
        let seeds = model.seed_beliefs();
        let forward = replay(&seeds, &events);
        let backward = replay(&seeds, events.iter().rev());
        prop_assert_eq!(&forward, &backward);
        for (key, belief) in &forward {
            let moved: i64 = events.iter().flat_map(|e| &e.changes).filter(|c| c.key == *key).map(|c| c.alpha_micro).sum();
            prop_assert_eq!(belief.alpha_micro, seeds[key].alpha_micro + moved);
        }
    }
}
