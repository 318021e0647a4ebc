//! The slow loop in the `Beliefs` service: the newest tick, and the ticks before it.

use koi_core::ids::TickId;
use koi_core::slow_loop::convergence::{Convergence, Criterion};
use koi_core::slow_loop::{SlowState, SlowTick, TickSignals};
use koi_core::variables::{OUTCOME_COUNT, Outcome};
use koi_proto::v1;
use tonic::Status;

use super::beliefs::BeliefsApi;
use super::encode::outcomes;
use super::status::{refused, store_failed};

/// Ticks shown when no number is asked for, and the most.
const LAST: (u32, u32) = (50, 1_000);

fn named(values: &[f64; OUTCOME_COUNT]) -> Vec<v1::NamedValue> {
    let pairs = Outcome::ALL.into_iter().zip(values);
    pairs
        .map(|(y, value)| v1::NamedValue {
            name: y.name().to_owned(),
            value: *value,
        })
        .collect()
}

fn criterion(c: &Criterion) -> v1::Criterion {
    v1::Criterion {
        name: c.name.name().to_owned(),
        meaning: c.name.meaning().to_owned(),
        value: c.value,
        bound: c.bound,
        is_floor: c.name.is_floor(),
        holds: c.holds,
    }
}

fn wire(tick: &SlowTick) -> v1::SlowTick {
    let (state, signals) = (&tick.state, &tick.signals);
    let weights = state
        .objective_weights
        .iter()
        .map(|(class, w)| v1::ClassWeights {
            class: class.name().to_owned(),
            weights: named(w),
            gradient: signals.gradients.get(class).map(named).unwrap_or_default(),
        });
    v1::SlowTick {
        tick_id: tick.tick.0,
        q1_rate: signals.q1_rate,
        regret: state.regret,
        explore_weight: state.explore_weight,
        swap_budget: state.swap_budget,
        churn_price: state.churn_price,
        dro_radius: state.dro_radius,
        weights: weights.collect(),
        n_active_jobs: signals.active_jobs,
        n_swapped_jobs: signals.swapped_jobs,
        n_probed_jobs: signals.probed_jobs,
        swap_target: signals.swap_target,
        coverage: signals.coverage(),
        n_evidence_rows: signals.n_rows,
        criteria: tick.convergence.criteria.iter().map(criterion).collect(),
        ticks_converged: tick.convergence.ticks_converged,
        probe_usd_today: state.probes.spent_usd_micro as f64 / 1e6,
        tick_count: state.tick_count,
    }
}

/// A state of which no tick was kept yet.
fn without_history(state: SlowState) -> SlowTick {
    SlowTick {
        tick: TickId(0),
        signals: TickSignals::default(),
        state,
        convergence: Convergence::default(),
    }
}

impl BeliefsApi {
    pub(super) async fn slow_state(&self) -> Result<v1::GetSlowStateReply, Status> {
        let read = self.core.read(|m| m.state().slow.clone());
        let state = read.await.map_err(|refusal| refused(&refusal))?;
        let newest = self.store.slow_history(None, 1).await;
        let newest = newest.map_err(|e| store_failed(&e))?.pop();
        let tick = newest.unwrap_or_else(|| without_history(state));
        let ideal_points = tick.state.ideal_points.iter().map(|group| v1::IdealPoint {
            class: group.class.name().to_owned(),
            model_class: group.model_class.name().to_owned(),
            ideal: outcomes(&group.point.ideal),
            range: outcomes(&group.point.range),
        });
        Ok(v1::GetSlowStateReply {
            ideal_points: ideal_points.collect(),
            tick: Some(wire(&tick)),
        })
    }

    pub(super) async fn slow_ticks(&self, last: u32) -> Result<v1::GetSlowHistoryReply, Status> {
        let limit = match last {
            0 => LAST.0,
            n => n.min(LAST.1),
        };
        let ticks = self.store.slow_history(None, limit).await;
        let ticks = ticks.map_err(|e| store_failed(&e))?;
        Ok(v1::GetSlowHistoryReply {
            ticks: ticks.iter().map(wire).collect(),
        })
    }
}
