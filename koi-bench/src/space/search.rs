//! One search, from a snapshot to the ladder that it would take, on any number of threads.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::anyhow;
use koi_core::ids::JobId;
use koi_core::planner::PlanningContext;
use koi_core::planner::enumerate::LadderOption;
use koi_core::planner::forecast::JobView;
use koi_core::planner::pools::Pools;
use koi_core::planner::scoring::{Change, Scorer, current_beliefs};
use koi_core::planner::space::{Axes, Found, Space};
use koi_core::snapshot::Snapshot;

/// Parts that each thread gets, so that none waits long for the last one.
const PARTS_PER_THREAD: u32 = 16;

/// What to search.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) job: JobId,
    pub(super) context: &'a PlanningContext<'a>,
    pub(super) axes: &'a Axes,
}

impl<'a> Question<'a> {
    /// The question about the job of a world.
    pub(super) const fn of(
        (snapshot, job): &'a (Snapshot, JobId),
        context: &'a PlanningContext<'a>,
        axes: &'a Axes,
    ) -> Self {
        Self {
            snapshot,
            job: *job,
            context,
            axes,
        }
    }

    /// Builds the space and hands it on.
    pub(super) fn with_space<T>(
        &self,
        then: impl FnOnce(&Space<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let beliefs = current_beliefs(self.snapshot, self.context);
        let scorer = Scorer {
            context: self.context,
            snapshot: self.snapshot,
            beliefs: &beliefs,
            exploration: None,
        };
        let record = self.snapshot.state.jobs.get(&self.job);
        let record = record.ok_or_else(|| anyhow!("no job {}", self.job))?;
        let view = JobView::of(record, self.snapshot, self.context);
        let pools = Pools::of(self.snapshot);
        let space = Space::of(&view, &pools, &scorer, Change::Place, self.axes)?;
        then(&space)
    }

    /// The whole way: space, every candidate, and the best one in full.
    pub(super) fn answer(&self, threads: u32) -> anyhow::Result<(Found, Option<LadderOption>)> {
        self.with_space(|space| {
            let found = evaluate(space, threads);
            let best = found.best().map(|best| space.option(best.candidate));
            let best = best.transpose().map_err(anyhow::Error::msg)?;
            Ok((found, best))
        })
    }
}

/// Looks at every candidate. Threads take parts as they become free; the result does not depend on
/// who took which.
fn evaluate(space: &Space<'_>, threads: u32) -> Found {
    if threads <= 1 {
        let parts = space.parts(1).into_iter();
        let found = parts.map(|part| space.evaluate(part));
        return found.fold(Found::default(), |all, part| all.merge(&part));
    }
    let parts = space.parts(threads.saturating_mul(PARTS_PER_THREAD));
    let next = AtomicU32::new(0);
    let work = || {
        let mut all = Found::default();
        while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            all = all.merge(&space.evaluate(part.clone()));
        }
        all
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        let found = others.into_iter().filter_map(|thread| thread.join().ok());
        found.fold(own, |all, part| all.merge(&part))
    })
}
