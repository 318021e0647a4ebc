//! S3 of a run: the real slow update on the store's rows, its events written back.

use std::collections::BTreeMap;

use koi_core::slow_loop::update::{SlowUpdateInput, slow_update};
use koi_core::store::{Change, TxKind};
use koi_core::validation::EvidenceRow;

use super::course::Run;

/// Applies a tick's evidence once.
pub(super) fn step(run: &mut Run<'_>, rows: &[EvidenceRow]) -> anyhow::Result<()> {
    let decided = decided_rows(run);
    let beliefs = run.snapshot.state.beliefs_from(&run.model);
    let input = SlowUpdateInput {
        tick: run.snapshot.tick,
        rows,
        earlier_rows: run.earlier_rows(),
        decided_rows: &decided,
        beliefs: &beliefs,
        state: &run.snapshot.state.slow,
        active_jobs: u32::try_from(run.jobs.len()).unwrap_or(u32::MAX),
        swapped_jobs: run.swapped(),
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
    run.commit(
        TxKind::LearningApplied,
        vec![
            Change::BeliefEvents(update.events),
            Change::Slow(Box::new(update.state)),
        ],
    )
}

/// Rows that decided about each mechanism so far.
fn decided_rows(run: &Run<'_>) -> BTreeMap<String, u32> {
    run.course
        .counts
        .iter()
        .map(|(id, ticks)| (id.clone(), ticks.iter().map(|c| c.decided).sum()))
        .collect()
}
