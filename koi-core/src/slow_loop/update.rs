//! S3: one tick's evidence moves beliefs once, then the adaptive variables.
//!
//! A pure function of what the store holds; replayed, it gives the same events. White paper V1,
//! Tick Algorithm S3; spec §6 and §9.

use std::collections::BTreeMap;

use super::state::{SlowSignals, SlowState};
use super::{dro_radius, regret};
use crate::causal::{Belief, BeliefEvent, BeliefKey, CausalModel, fan_out, forget, replay};
use crate::ids::TickId;
use crate::params::Params;
use crate::validation::{EvidenceRow, UpdateTable};

/// What S3 reads.
#[derive(Debug, Clone, Copy)]
pub struct SlowUpdateInput<'a> {
    /// The tick.
    pub tick: TickId,
    /// Evidence rows that S2 wrote in this tick and that no S3 has applied.
    pub rows: &'a [EvidenceRow],
    /// Rows of the last `q1_window_ticks` ticks, those of this tick left out.
    pub earlier_rows: &'a [EvidenceRow],
    /// Decided rows per mechanism over its life, by id.
    pub decided_rows: &'a BTreeMap<String, u32>,
    /// Every belief before this tick: seed plus the sum of its events.
    pub beliefs: &'a BTreeMap<BeliefKey, Belief>,
    /// Adaptive variables before this tick.
    pub state: &'a SlowState,
    /// Jobs that run.
    pub active_jobs: u32,
    /// Voluntary swaps and preemptions of the last tick.
    pub swapped_jobs: u32,
}

/// What S3 writes, in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowUpdate {
    /// New belief events, in order.
    pub events: Vec<BeliefEvent>,
    /// Beliefs after them.
    pub beliefs: BTreeMap<BeliefKey, Belief>,
    /// Adaptive variables after this tick.
    pub state: SlowState,
}

/// One tick of S3.
#[must_use]
pub fn slow_update(
    input: &SlowUpdateInput<'_>,
    model: &CausalModel,
    table: &UpdateTable,
    params: &Params,
) -> SlowUpdate {
    let mut events = fan_out(input.rows, model, table, params);
    let mut beliefs = replay(input.beliefs, &events);
    if let Some(event) = forget(input.tick, &beliefs, params) {
        beliefs = replay(&beliefs, [&event]);
        events.push(event);
    }
    let window = || input.earlier_rows.iter().chain(input.rows);
    let decided_now = input
        .rows
        .iter()
        .flat_map(|r| &r.mechanisms)
        .any(|m| m.quadrant.is_some());
    let signals = SlowSignals {
        q1_rate: decided_now
            .then(|| regret::q1_rate(window(), &beliefs, input.decided_rows, params))
            .flatten(),
        active_jobs: input.active_jobs,
        swap_rate: (input.active_jobs > 0)
            .then(|| f64::from(input.swapped_jobs) / f64::from(input.active_jobs)),
        // Only new rows: the same miss must not widen the band tick after tick.
        coverage: dro_radius::coverage(input.rows),
    };
    SlowUpdate {
        events,
        beliefs,
        state: input.state.step(&signals, params),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::testing::model;
    use crate::validation::evidence::testing::{row, verdict};
    use crate::validation::{Exercise, Quadrant};
    use crate::variables::Outcome;

    fn update(rows: &[EvidenceRow], beliefs: &BTreeMap<BeliefKey, Belief>) -> SlowUpdate {
        let params = Params::default();
        let input = SlowUpdateInput {
            tick: TickId(9),
            rows,
            earlier_rows: &[],
            decided_rows: &BTreeMap::new(),
            beliefs,
            state: &SlowState::initial(&params),
            active_jobs: 3,
            swapped_jobs: 0,
        };
        slow_update(&input, &model(), &UpdateTable::embedded().unwrap(), &params)
    }

    fn decided(quadrant: Quadrant) -> EvidenceRow {
        row(
            9,
            vec![verdict(
                "M_kv_pressure",
                Some(quadrant),
                Exercise::NotComputed,
            )],
        )
    }

    #[test]
    fn a_tick_without_evidence_moves_no_belief_and_holds_regret() {
        let seeds = model().seed_beliefs();
        let got = update(&[], &seeds);
        assert!(got.events.is_empty());
        assert_eq!(got.beliefs, seeds);
        assert_eq!(got.state.regret, None);
    }

    #[test]
    fn events_sum_to_the_beliefs_and_forgetting_is_one_of_them() {
        let mut before = model().seed_beliefs();
        let key = BeliefKey::Mechanism("M_kv_pressure".to_owned());
        before.insert(key.clone(), Belief::of_counts(350, 50));
        let got = update(&[decided(Quadrant::Q4)], &before);
        assert_eq!(got.events.len(), 2);
        assert_eq!(replay(&before, &got.events), got.beliefs);
        let after = got.beliefs[&key];
        assert_eq!(after.alpha_micro + after.beta_micro, 400_000_000);
        assert!(after.mean() < before[&key].mean());
    }

    #[test]
    fn failures_raise_regret_and_misses_widen_the_band() {
        let mut bad = decided(Quadrant::Q3);
        bad.inside_band = BTreeMap::from([(Outcome::P99TtftMs, false)]);
        let got = update(&[bad, decided(Quadrant::Q1)], &model().seed_beliefs());
        assert_eq!(got.state.regret, Some(0.5));
        assert!(got.state.dro_radius > Params::default().dro_radius_initial);
        assert!(got.state.explore_weight > Params::default().explore_weight_initial);
    }

    #[test]
    fn mechanisms_known_to_be_bad_leave_the_q1_rate() {
        let params = Params::default();
        let mut beliefs = model().seed_beliefs();
        beliefs.insert(
            BeliefKey::Mechanism("M_kv_pressure".to_owned()),
            Belief::of_counts(1, 9),
        );
        let rows = [decided(Quadrant::Q4)];
        let counted = |n: u32| BTreeMap::from([("M_kv_pressure".to_owned(), n)]);
        assert_eq!(
            regret::q1_rate(&rows, &beliefs, &counted(29), &params),
            Some(0.0)
        );
        assert_eq!(
            regret::q1_rate(&rows, &beliefs, &counted(30), &params),
            None
        );
    }
}
