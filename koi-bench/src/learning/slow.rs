//! S3 of a run: the real slow update on the store's rows, its events and its state written back.
//!
//! Tracks are those of the store (`MemStore::mechanism_tracks`), kept up row by row instead of being
//! counted anew in every tick.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::causal::MechanismStatus;
use koi_core::ids::{Generation, JobId};
use koi_core::lifecycle::MechanismTrack;
use koi_core::slow_loop::SlowTick;
use koi_core::slow_loop::update::{ActiveJob, CommittedPlan, SlowUpdateInput, slow_update};
use koi_core::store::{Change, TxKind};
use koi_core::validation::EvidenceRow;
use koi_core::validation::contrast::fold_tick;

use super::course::Run;

/// What S3 carries from tick to tick beside the snapshot.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) tracks: BTreeMap<String, MechanismTrack>,
    deployments: BTreeMap<String, BTreeSet<(JobId, Generation)>>,
    environments: BTreeMap<String, BTreeSet<String>>,
    /// The last ticks of the slow loop, oldest first.
    pub(super) history: Vec<SlowTick>,
}

impl Memory {
    fn count(&mut self, rows: &[EvidenceRow]) {
        for row in rows {
            let environment = row.environment.to_string();
            for verdict in row.mechanisms.iter().filter(|m| m.quadrant.is_some()) {
                let id = &verdict.id;
                let deployments = self.deployments.entry(id.clone()).or_default();
                deployments.insert((row.job, row.generation));
                let environments = self.environments.entry(id.clone()).or_default();
                environments.insert(environment.clone());
                let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
                let track = self.tracks.entry(id.clone()).or_default();
                track.n_decided += 1;
                track.n_deployments = count(deployments.len());
                track.n_environments = count(environments.len());
                track.first_tick = track.first_tick.or(Some(row.tick));
                track.last_tick = Some(row.tick);
            }
        }
    }

    fn keep(&mut self, tick: SlowTick, window: u32) {
        self.history.push(tick);
        let surplus = self.history.len().saturating_sub(window as usize);
        self.history.drain(..surplus);
    }
}

/// Applies a tick's evidence once.
pub(super) fn step(run: &mut Run<'_>, rows: &[EvidenceRow]) -> anyhow::Result<()> {
    run.memory.count(rows);
    let beliefs = run.snapshot.state.beliefs_from(&run.model);
    let active: Vec<ActiveJob> = run
        .snapshot
        .state
        .jobs
        .values()
        .filter(|j| j.active.is_some())
        .map(|j| ActiveJob {
            job: j.id,
            class: j.spec.class,
            model_class: j.spec.model.facts.class(),
        })
        .collect();
    let last_plan = run.last_plan.as_ref().map(|p| CommittedPlan {
        seq: p.seq,
        tick: p.tick,
        at: p.at,
        tally: &p.tally,
    });
    let input = SlowUpdateInput {
        tick: run.snapshot.tick,
        rows,
        tracks: &run.memory.tracks,
        calibration: &run.observatory.statistics.calibration,
        beliefs: &beliefs,
        state: &run.snapshot.state.slow,
        active_jobs: &active,
        last_plan,
        experience: &run.snapshot.experience,
        history: &run.memory.history,
    };
    let update = slow_update(&input, &run.model, &run.table, &run.params);
    for change in update.events.iter().flat_map(|e| &e.changes) {
        let moved = run
            .snapshot
            .state
            .beliefs
            .entry(change.key.clone())
            .or_default();
        moved.alpha_micro += change.alpha_micro;
        moved.beta_micro += change.beta_micro;
    }
    run.snapshot.state.slow = update.state.clone();
    for id in &update.archived {
        run.model.set_status(id, MechanismStatus::Archived);
        run.course.archived.insert(id.clone(), run.snapshot.tick.0);
    }
    run.course.converged.push(update.record.convergence.clone());
    let window = run
        .params
        .regret_window_ticks
        .max(run.params.q1_window_ticks);
    run.memory.keep(update.record.clone(), window);
    let mut changes = vec![
        Change::BeliefEvents(update.events),
        Change::Slow(Box::new(update.state)),
        Change::SlowTick(Box::new(update.record)),
    ];
    let before = &run.snapshot.state.contrasts;
    let (after, contrasts) = fold_tick(before, run.snapshot.tick, rows);
    run.snapshot.state.contrasts = after;
    if !contrasts.is_empty() {
        changes.push(Change::Contrasts(Box::new(contrasts)));
    }
    run.commit(TxKind::LearningApplied, changes)
}
