//! What a job did over an interval: its windows pooled into one, and its verdicts on the SLO counted.

use super::{Observatory, RankKey, find_rank, observe_facts};
use crate::catalog::Catalog;
use crate::ids::{Generation, JobId};
use crate::rollout::SloTally;
use crate::snapshot::MeasuredJob;
use crate::store::{JobRecord, ServerState};
use crate::telemetry::observe::{Observation, observe};
use crate::telemetry::pool::PooledWindow;
use crate::telemetry::series::HistogramSeries;
use crate::time::UtcMicros;
use crate::variables::Mediator;

/// Windows older than this say nothing about now.
const RECENT_SECONDS: i64 = 120;

/// What ends after `from` and no later than `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Start, outside.
    pub from: UtcMicros,
    /// End, inside.
    pub to: UtcMicros,
}

impl Interval {
    /// The `seconds` before a moment.
    #[must_use]
    pub fn before(to: UtcMicros, seconds: i64) -> Self {
        let from = to.plus_seconds(-seconds);
        Self { from, to }
    }

    fn has(self, end: UtcMicros) -> bool {
        end > self.from && end <= self.to
    }
}

/// What a job did over an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct CurrentView {
    /// The windows behind it, pooled.
    pub pooled: PooledWindow,
    /// Observed V and Y.
    pub observation: Observation,
}

impl CurrentView {
    /// The view as the planner's snapshot carries it.
    #[must_use]
    pub fn measured(&self, tokens_done: u64) -> MeasuredJob {
        let v = &self.observation.mediators;
        let finished = self
            .pooled
            .observations(HistogramSeries::GenerationTokensPerRequest);
        let seconds = self.pooled.end.seconds_since(self.pooled.start).max(1.0);
        MeasuredJob {
            rate_rps: finished as f64 / seconds,
            lengths: v
                .get(Mediator::InputLengthObserved)
                .zip(v.get(Mediator::OutputLengthObserved)),
            mediators: *v,
            outcomes: self.observation.outcomes,
            tokens_done,
        }
    }
}

impl Observatory {
    /// What a job did over the last two minutes, pooled over the ranks of its newest generation.
    #[must_use]
    pub fn now(
        &self,
        state: &ServerState,
        catalog: &Catalog,
        job: &JobRecord,
        now: UtcMicros,
    ) -> Option<CurrentView> {
        let generation = running_generation(job)?;
        let interval = Interval::before(now, RECENT_SECONDS);
        self.pooled(state, catalog, job, interval, |key| {
            key.generation == generation
        })
    }

    /// What a job did over an interval, pooled over all ranks that served it then: a planned
    /// change is a part of the job's life.
    #[must_use]
    pub fn over(
        &self,
        state: &ServerState,
        catalog: &Catalog,
        job: &JobRecord,
        interval: Interval,
    ) -> Option<CurrentView> {
        self.pooled(state, catalog, job, interval, |_| true)
    }

    fn pooled(
        &self,
        state: &ServerState,
        catalog: &Catalog,
        job: &JobRecord,
        interval: Interval,
        keep: impl Fn(&RankKey) -> bool,
    ) -> Option<CurrentView> {
        let mut pooled: Option<PooledWindow> = None;
        let mut facts = None;
        // Newest generation first: facts about devices are those of what runs now.
        for (key, watch) in self.ranks.iter().rev() {
            if key.job != job.id || !keep(key) {
                continue;
            }
            if facts.is_none() {
                let found = find_rank(state, *key);
                facts = found.map(|(_, rank)| observe_facts(state, catalog, job, rank, *key));
            }
            for window in watch.recent.iter().filter(|w| interval.has(w.end)) {
                match &mut pooled {
                    Some(all) => all.add(&PooledWindow::from(window)),
                    None => pooled = Some(PooledWindow::from(window)),
                }
            }
        }
        let (pooled, facts) = (pooled?, facts?);
        let observation = observe(&pooled, &self.edges, &facts);
        Some(CurrentView {
            pooled,
            observation,
        })
    }

    /// Verdicts on the SLO of a job over an interval, all generations together.
    #[must_use]
    pub fn tally(&self, job: JobId, interval: Interval) -> SloTally {
        let mut tally = SloTally::default();
        for (_, watch) in self.ranks.iter().filter(|(key, _)| key.job == job) {
            for point in watch.judged.iter().filter(|p| interval.has(p.end)) {
                tally.judged += 1;
                tally.inside += u32::from(point.inside);
            }
        }
        tally
    }
}

fn running_generation(job: &JobRecord) -> Option<Generation> {
    let ladder = job
        .active
        .as_ref()
        .or(job.rollout.as_ref().map(|r| &r.target))?;
    Some(ladder.generation)
}
