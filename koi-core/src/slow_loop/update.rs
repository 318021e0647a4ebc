//! S3: one tick's evidence moves beliefs once, then the adaptive variables.
//!
//! A pure function of what the store holds; replayed, it gives the same events and the same state.
//! White paper V1, Tick Algorithm S3; spec §6 and §9.

use std::collections::{BTreeMap, BTreeSet};

use super::backlog::Backlog;
use super::convergence::{self, ConvergenceInput};
use super::coverage_gradient::{class_gaps, r2_gradient};
use super::record::{SlowTick, TickSignals};
use super::regret::Tallies;
use super::state::{GroupIdeal, SlowState};
use super::{churn_price, dro_radius, ideal_point, meta, regret};
use crate::causal::{
    Belief, BeliefEvent, BeliefKey, CausalModel, MechanismStatus, add_events, fan_out, forget,
};
use crate::experience::Experience;
use crate::ids::{JobId, PlanSeq, TickId};
use crate::job::JobClass;
use crate::lifecycle::{MechanismTrack, Review, review};
use crate::model::ModelClass;
use crate::params::Params;
use crate::plan::PlanTally;
use crate::time::UtcMicros;
use crate::validation::meta::Calibration;
use crate::validation::{EvidenceRow, UpdateTable};

#[cfg(test)]
mod tests;

/// A running job as the slow loop sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveJob {
    /// Which.
    pub job: JobId,
    /// Its class.
    pub class: JobClass,
    /// Class of its model.
    pub model_class: ModelClass,
}

/// The newest committed plan as the slow loop counts it.
#[derive(Debug, Clone, Copy)]
pub struct CommittedPlan<'a> {
    /// Its number: a plan is counted once.
    pub seq: PlanSeq,
    /// Tick that made it.
    pub tick: TickId,
    /// When it was committed.
    pub at: UtcMicros,
    /// What it swapped.
    pub tally: &'a PlanTally,
}

/// What S3 reads.
#[derive(Debug, Clone, Copy)]
pub struct SlowUpdateInput<'a> {
    /// The tick.
    pub tick: TickId,
    /// Evidence rows that no S3 has applied, in the order of ticks: those that S2 wrote in this tick,
    /// and those of ticks whose S3 failed.
    pub rows: &'a [EvidenceRow],
    /// What was decided about each mechanism over its life, this tick included, by id.
    pub tracks: &'a BTreeMap<String, MechanismTrack>,
    /// How the detector is set: what it judged by guessed thresholds archives nothing.
    pub calibration: &'a Calibration,
    /// Every belief before this tick: seed plus the sum of its events.
    pub beliefs: &'a BTreeMap<BeliefKey, Belief>,
    /// Adaptive variables before this tick.
    pub state: &'a SlowState,
    /// Jobs that run.
    pub active_jobs: &'a [ActiveJob],
    /// Newest committed plan, if any.
    pub last_plan: Option<CommittedPlan<'a>>,
    /// Past outcomes.
    pub experience: &'a Experience,
    /// The last ticks of the slow loop, oldest first, as many as its longest window has.
    pub history: &'a [SlowTick],
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
    /// The tick for the history: what the controllers read and wrote, and convergence.
    pub record: SlowTick,
    /// Mechanisms that are archived from now on, by id.
    pub archived: Vec<String>,
    /// This tick ends with a recalibration of thresholds.
    pub meta_is_due: bool,
}

/// One tick of S3.
#[must_use]
pub fn slow_update(
    input: &SlowUpdateInput<'_>,
    model: &CausalModel,
    table: &UpdateTable,
    params: &Params,
) -> SlowUpdate {
    let (events, beliefs) = applied(input, model, table, params);
    let signals = signals(input, &beliefs, params);
    let mut state = input.state.step(&signals, params);
    count_plan(&mut state, input, params);
    state.applied_through = Some(through(input));
    state.ideal_points = ideal_points(input, params);
    let exercised = window(input, &signals.verdicts, params)
        .into_iter()
        .map(|(id, tally)| (id, tally.weight))
        .collect();
    let regret_window = params.regret_window_ticks as usize;
    let older = input.history.len().saturating_sub(regret_window);
    let convergence = convergence::judge(
        &ConvergenceInput {
            before: input.state,
            after: &state,
            signals: &signals,
            history: input.history.get(older..).unwrap_or_default(),
            beliefs: &beliefs,
            exercised: &exercised,
        },
        params,
    );
    SlowUpdate {
        events,
        archived: archived(input, &beliefs, model, params),
        beliefs,
        meta_is_due: meta::is_due(state.tick_count, params),
        record: SlowTick {
            tick: input.tick,
            signals,
            state: state.clone(),
            convergence,
        },
        state,
    }
}

/// Last tick of which every row is applied now.
fn through(input: &SlowUpdateInput<'_>) -> TickId {
    let through = Backlog::of(input.state, input.tick).through;
    input.rows.last().map_or(through, |r| r.tick.max(through))
}

/// The rows tick by tick, each tick forgetting what it would have forgotten on its own: the log does
/// not tell whether an S3 failed.
fn applied(
    input: &SlowUpdateInput<'_>,
    model: &CausalModel,
    table: &UpdateTable,
    params: &Params,
) -> (Vec<BeliefEvent>, BTreeMap<BeliefKey, Belief>) {
    let (mut events, mut beliefs) = (Vec::new(), input.beliefs.clone());
    let of_tick = |rows: &[EvidenceRow]| {
        rows.first()
            .map(|r| (r.tick, fan_out(rows, model, table, params)))
    };
    let groups = input.rows.chunk_by(|a, b| a.tick == b.tick);
    let mut ticks: Vec<_> = groups.filter_map(of_tick).collect();
    let through = through(input);
    if ticks.last().is_none_or(|(tick, _)| *tick != through) {
        ticks.push((through, Vec::new()));
    }
    for (tick, moved) in ticks {
        add_events(&mut beliefs, &moved);
        events.extend(moved);
        if let Some(event) = forget(tick, &beliefs, params) {
            add_events(&mut beliefs, [&event]);
            events.push(event);
        }
    }
    (events, beliefs)
}

/// Active mechanisms that the review archives, by thresholds that were calibrated.
fn archived(
    input: &SlowUpdateInput<'_>,
    beliefs: &BTreeMap<BeliefKey, Belief>,
    model: &CausalModel,
    params: &Params,
) -> Vec<String> {
    let active = model
        .mechanisms()
        .filter(|m| m.status == MechanismStatus::Active);
    let falls = |id: &str| {
        let belief = beliefs.get(&BeliefKey::Mechanism(id.to_owned()));
        let pair = belief.zip(input.tracks.get(id));
        pair.is_some_and(|(belief, track)| review(*belief, track, params) == Review::Archive)
    };
    active
        .filter(|m| falls(&m.id) && input.calibration.has_thresholds_of(m, params))
        .map(|m| m.id.clone())
        .collect()
}

/// A plan that no earlier tick has counted.
fn uncounted<'a>(input: &SlowUpdateInput<'a>) -> Option<CommittedPlan<'a>> {
    input.last_plan.filter(|p| p.seq > input.state.counted_plan)
}

fn signals(
    input: &SlowUpdateInput<'_>,
    beliefs: &BTreeMap<BeliefKey, Belief>,
    params: &Params,
) -> TickSignals {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let verdicts = regret::tally(input.rows, params);
    let rate = || {
        let window = window(input, &verdicts, params);
        regret::q1_rate(&window, beliefs, input.tracks, params)
    };
    let tally = uncounted(input).map(|p| p.tally);
    // Only new rows: the same miss must not widen the band tick after tick.
    let (inside_band, banded) = dro_radius::counted(input.rows);
    TickSignals {
        q1_rate: (!verdicts.is_empty()).then(rate).flatten(),
        active_jobs: count(input.active_jobs.len()),
        swapped_jobs: tally.map_or(0, |t| count(t.voluntary.len())),
        probed_jobs: tally.map_or(0, |t| count(t.probes.len())),
        swap_target: churn_price::swap_target(input.state.tick_count, params),
        banded,
        inside_band,
        gradients: gradients(input, params),
        n_rows: count(input.rows.len()),
        verdicts,
    }
}

/// What was decided in the window of the Q1 rate, from what its ticks kept and what this one says.
fn window(input: &SlowUpdateInput<'_>, now: &Tallies, params: &Params) -> Tallies {
    let first = input
        .tick
        .0
        .saturating_sub(i64::from(params.q1_window_ticks));
    let ticks = input.history.iter().filter(|t| t.tick.0 >= first);
    regret::together(ticks.map(|t| &t.signals.verdicts).chain([now]))
}

/// The gradient of every class of which a running job brought evidence in this tick.
fn gradients(
    input: &SlowUpdateInput<'_>,
    params: &Params,
) -> BTreeMap<JobClass, [f64; crate::variables::OUTCOME_COUNT]> {
    let seen: BTreeSet<JobId> = input.rows.iter().map(|r| r.job).collect();
    let fresh = input.active_jobs.iter().filter(|j| seen.contains(&j.job));
    let classes: BTreeSet<JobClass> = fresh.map(|j| j.class).collect();
    let of = |class: JobClass| {
        let gradient = r2_gradient(&class_gaps(input.experience, class, params))?;
        Some((class, gradient))
    };
    classes.into_iter().filter_map(of).collect()
}

/// Swaps and probes of a plan count once, however many ticks see it.
fn count_plan(state: &mut SlowState, input: &SlowUpdateInput<'_>, params: &Params) {
    if let Some(plan) = uncounted(input) {
        state.counted_plan = plan.seq;
        let made = (plan.tick, plan.at);
        state.probes = state.probes.after(made, plan.tally.paid_learning(), params);
    }
}

fn ideal_points(input: &SlowUpdateInput<'_>, params: &Params) -> Vec<GroupIdeal> {
    let groups: BTreeSet<(JobClass, ModelClass)> = input
        .active_jobs
        .iter()
        .map(|j| (j.class, j.model_class))
        .collect();
    let of = |(class, model_class): (JobClass, ModelClass)| GroupIdeal {
        class,
        model_class,
        point: ideal_point(&input.experience.similar(class, model_class), params),
    };
    groups.into_iter().map(of).collect()
}
