//! What happened between two pages of the same engines. Not the windows that telemetry keeps
//! (`window.rs`): nothing here knows the time between the pages.

use std::collections::BTreeMap;

use super::EnginePage;
use crate::telemetry::histogram::{BucketDelta, NoDelta};
use crate::telemetry::sample::{EngineKey, EngineSample};
use crate::telemetry::series::{CounterSeries, HistogramSeries};

/// Change of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterChange {
    /// It grew by so much.
    Grew(u64),
    /// It fell: the process started again and counted so far since.
    Reset(u64),
}

/// Change of one histogram: what was observed, or why that cannot be said.
pub type HistogramChange = Result<BucketDelta, NoDelta>;

/// Changes of one engine; series that only one of the pages has are not in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EngineChange {
    /// Counters.
    pub counters: BTreeMap<CounterSeries, CounterChange>,
    /// Histograms.
    pub histograms: BTreeMap<HistogramSeries, HistogramChange>,
}

/// Changes of a page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PageChange {
    /// Engines that both pages have.
    pub engines: BTreeMap<EngineKey, EngineChange>,
    /// Engines that only the earlier page has.
    pub gone: Vec<EngineKey>,
    /// True when the pages name different starts of the serving process: then every count is new,
    /// even where it is larger than before.
    pub restarted: bool,
}

impl EnginePage {
    /// What happened between an earlier page and this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> PageChange {
        let restarted = self
            .process_start_seconds
            .zip(earlier.process_start_seconds)
            .is_some_and(|(now, then)| now.total_cmp(&then).is_ne());
        let both = self.engines.iter().filter_map(|(key, now)| {
            let then = earlier.engines.get(key)?;
            Some((key.clone(), change(now, then, restarted)))
        });
        let gone = earlier.engines.keys();
        PageChange {
            engines: both.collect(),
            gone: gone
                .filter(|key| !self.engines.contains_key(key))
                .cloned()
                .collect(),
            restarted,
        }
    }
}

fn change(now: &EngineSample, then: &EngineSample, restarted: bool) -> EngineChange {
    let counters = now.counters.iter().filter_map(|(series, now)| {
        let then = *then.counters.get(series)?;
        let change = match now.checked_sub(then).filter(|_| !restarted) {
            Some(grown) => CounterChange::Grew(grown),
            None => CounterChange::Reset(*now),
        };
        Some((*series, change))
    });
    let other_source = now.tpot_source != then.tpot_source;
    let histograms = now.histograms.iter().filter_map(|(series, now)| {
        let then = then.histograms.get(series)?;
        let is_tpot = *series == HistogramSeries::TimePerOutputToken;
        let change = if is_tpot && other_source {
            Err(NoDelta::SourceChanged)
        } else if restarted {
            Err(NoDelta::Reset)
        } else {
            now.delta_since(then)
        };
        Some((*series, change))
    });
    EngineChange {
        counters: counters.collect(),
        histograms: histograms.collect(),
    }
}
