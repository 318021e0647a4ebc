//! The walk over a page's samples: which engine each belongs to, and where its value goes. Not which
//! values count (`raw.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::names::{Found, METRIC_NAMES, Meaning, Part, find, find_histogram_part};
use super::raw::{Raw, Reading};
use super::{EnginePage, MAX_ENGINES, PROCESS_START, ValueProblem};
use crate::telemetry::histogram::MAX_COUNT;
use crate::telemetry::metrics_text::{Page, Sample};
use crate::telemetry::sample::{CachePool, EngineKey, EngineSample, MetricsEngine};

pub(super) fn collect(page: &Page<'_>) -> EnginePage {
    let mut collector = Collector::default();
    for sample in page.whole_samples() {
        collector.take(sample);
    }
    collector.finish()
}

/// The labels that matter.
#[derive(Debug, Clone, PartialEq, Default)]
struct Told<'p> {
    model_name: Cow<'p, str>,
    engine: Option<Cow<'p, str>>,
    replica: Cow<'p, str>,
    le: Option<f64>,
    finished_reason: Option<Cow<'p, str>>,
}

impl<'p> Told<'p> {
    fn by(sample: &Sample<'p>) -> Self {
        let mut told = Self::default();
        for label in sample.labels {
            match label.name.as_ref() {
                "model_name" => told.model_name = label.value,
                "engine" | "dp_rank" => told.engine = Some(label.value),
                "ReplicaId" => told.replica = label.value,
                // Ray's worker, where no replica is named.
                "WorkerId" if told.replica.is_empty() => told.replica = label.value,
                "le" => told.le = label.value.parse().ok(),
                "finished_reason" => told.finished_reason = Some(label.value),
                _ => {}
            }
        }
        told
    }

    /// The engine's index. An engine label that is no number names a replica instead.
    fn index(&self) -> (u32, Cow<'p, str>) {
        match self.engine.as_deref().map(str::parse) {
            None => (0, self.replica.clone()),
            Some(Ok(index)) => (index, self.replica.clone()),
            Some(Err(_)) => (0, self.engine.clone().unwrap_or_default()),
        }
    }
}

/// An engine as the labels of one sample name it.
#[derive(Debug, PartialEq)]
struct Owner<'p> {
    model_name: Cow<'p, str>,
    index: u32,
    replica: Cow<'p, str>,
    kind: MetricsEngine,
}

#[derive(Default)]
struct Collector<'p> {
    engines: Vec<(Owner<'p>, Raw<'p>)>,
    /// The engine of the last sample: the next one is most likely of the same.
    current: usize,
    /// The last name that was looked up, and what it stands for.
    known: Option<(&'p str, Option<Found>)>,
    /// By engine label; without one a pool is that of all engines of its kind.
    pools: BTreeMap<Option<(u32, String)>, CachePool>,
    out: EnginePage,
}

impl<'p> Collector<'p> {
    fn take(&mut self, sample: &'p Sample<'p>) {
        let name = sample.name.as_ref();
        let found = match self.known {
            Some((known, found)) if known == name => found,
            _ => {
                let found = find(name);
                self.known = Some((name, found));
                found
            }
        };
        let Some(found) = found else {
            if name == PROCESS_START {
                self.out.process_start_seconds =
                    Some(sample.value).filter(|v| v.is_finite() && *v > 0.0);
            }
            return;
        };
        let told = Told::by(sample);
        if METRIC_NAMES[found.row].meaning == Meaning::CacheInfo {
            self.take_pool(sample, &told);
        } else if let Err(problem) = self.put(sample, found, &told) {
            self.out.note(sample.line, name, problem);
        }
    }

    fn put(
        &mut self,
        sample: &'p Sample<'p>,
        found: Found,
        told: &Told<'p>,
    ) -> Result<(), ValueProblem> {
        let reading = Reading {
            value: sample.value,
            timestamp: sample.timestamp,
            line: sample.line,
        };
        let raw = self.owner(found, told)?;
        raw.has_engine_label |= told.engine.is_some();
        if found.part != Part::Whole {
            return raw.put_part(found.row, found.part, told.le, reading);
        }
        if let Some(part) = find_histogram_part(&sample.name) {
            // Its repetition is reported once, as that of the whole metric.
            raw.put_part(part.row, part.part, None, reading).ok();
        }
        raw.put(
            found.row,
            told.finished_reason.as_deref(),
            sample.labels,
            reading,
        )
    }

    fn owner(&mut self, found: Found, told: &Told<'p>) -> Result<&mut Raw<'p>, ValueProblem> {
        let (index, replica) = told.index();
        let owner = Owner {
            model_name: told.model_name.clone(),
            index,
            replica,
            kind: METRIC_NAMES[found.row].engine,
        };
        let is_current = self.engines.get(self.current).is_some_and(|e| e.0 == owner);
        if !is_current {
            let place = self.engines.iter().position(|e| e.0 == owner);
            self.current = match place {
                Some(place) => place,
                None if self.engines.len() >= MAX_ENGINES => return Err(ValueProblem::TooMany),
                None => {
                    self.engines.push((owner, Raw::new()));
                    self.engines.len() - 1
                }
            };
        }
        Ok(&mut self.engines[self.current].1)
    }

    fn take_pool(&mut self, sample: &Sample<'_>, told: &Told<'_>) {
        let (index, replica) = told.index();
        let named = told.engine.is_some() || !replica.is_empty();
        let key = named.then(|| (index, replica.into_owned()));
        if self.pools.len() < MAX_ENGINES || self.pools.contains_key(&key) {
            self.pools.insert(key, cache_pool(sample));
        }
    }

    fn finish(mut self) -> EnginePage {
        for (owner, raw) in std::mem::take(&mut self.engines) {
            let mut sample = raw.resolve(&mut self.out);
            let key = EngineKey {
                model_name: owner.model_name.into_owned(),
                engine: owner.index,
                replica: owner.replica.into_owned(),
                kind: owner.kind,
            };
            let named = Some((key.engine, key.replica.clone()));
            let pool = self.pools.get(&named).or_else(|| self.pools.get(&None));
            sample.cache = pool.copied().unwrap_or_default();
            if exports_something(&sample) {
                self.out.engines.insert(key, sample);
            }
        }
        self.out
    }
}

/// An engine that is only named, by a value that was not believed, is none.
fn exports_something(sample: &EngineSample) -> bool {
    !sample.counters.is_empty()
        || !sample.gauges.is_empty()
        || !sample.histograms.is_empty()
        || sample.prefix_cache_hit_rate.is_some()
}

fn cache_pool(sample: &Sample<'_>) -> CachePool {
    let number = |name: &str| {
        let value = sample.label(name)?;
        value.parse::<u64>().ok().filter(|n| *n > 0)
    };
    CachePool {
        num_gpu_blocks: number("num_gpu_blocks").filter(|n| *n as f64 <= MAX_COUNT),
        block_size_tokens: number("block_size").and_then(|n| u32::try_from(n).ok()),
    }
}
