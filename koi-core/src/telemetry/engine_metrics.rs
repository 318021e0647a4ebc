//! From a parsed metrics page to typed samples per engine: one set of series for the names of vLLM V0
//! and V1, SGLang and TGI.
//!
//! Not a general mapping: the closed set of series is in `series.rs`, the names in `names.rs`. A
//! series that is missing, malformed or out of range is absent and listed, never zero. Spec §14;
//! reliability.md C7, E13–E16.

mod change;
mod collect;
mod expected;
mod names;
mod raw;

use std::collections::{BTreeMap, BTreeSet};

use crate::telemetry::histogram::BadHistogram;
use crate::telemetry::metrics_text::Page;
use crate::telemetry::sample::{EngineKey, EngineSample, MetricsEngine};

pub use change::{CounterChange, EngineChange, HistogramChange, PageChange};
pub use expected::{Expectation, MissingSeries};
pub use names::{METRIC_NAMES, Meaning, MetricName};

/// Engines (model name × index) read of one page.
pub const MAX_ENGINES: usize = 64;
/// Problems that are described; all of them are counted.
pub const MAX_ENGINE_PROBLEMS: usize = 20;

const PROCESS_START: &str = "process_start_time_seconds";

/// True for the metric names this module reads: the allow-list for
/// [`parse_selected`](crate::telemetry::metrics_text::parse_selected).
#[must_use]
pub fn is_wanted(name: &str) -> bool {
    names::find(name).is_some() || name == PROCESS_START
}

/// Why a value was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// NaN, infinite, negative, or too large for the series.
    #[error("the value is outside the range of its series")]
    OutOfRange,
    /// A series that stands on the page already.
    #[error("the series stands on the page already; the first one counts")]
    Duplicate,
    /// A bucket whose `le` is missing or no number.
    #[error("the bucket has no label le with a number")]
    BadEdge,
    /// A histogram whose parts do not fit together.
    #[error("the histogram was left out: {0}")]
    Histogram(BadHistogram),
    /// One engine more than [`MAX_ENGINES`], or one split of a counter more than are added up.
    #[error("more engines or splits than are read of one page")]
    TooMany,
}

/// One value that was not believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineProblem {
    /// Line of the sample; of a histogram its last one.
    pub line: u32,
    /// Metric name as on the page, for a histogram that of the engine.
    pub metric: String,
    /// Why.
    pub problem: ValueProblem,
}

/// What a page says, per engine.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EnginePage {
    /// Samples by model name and engine index.
    pub engines: BTreeMap<EngineKey, EngineSample>,
    /// Start of the serving process, Unix seconds.
    pub process_start_seconds: Option<f64>,
    /// Values that were NaN, infinite, negative or too large for their series.
    pub out_of_range: usize,
    /// Repeated series; the first one counts, or the newest where they carry timestamps.
    pub duplicates: usize,
    /// Histograms whose parts do not fit together.
    pub bad_histograms: usize,
    /// Samples of engines past [`MAX_ENGINES`].
    pub over_limit: usize,
    /// The first [`MAX_ENGINE_PROBLEMS`] of all these.
    pub problems: Vec<EngineProblem>,
}

impl EnginePage {
    /// Reads the typed samples of a page. A last line without a line end is left out: its value may
    /// be cut short.
    #[must_use]
    pub fn from_page(page: &Page<'_>) -> Self {
        collect::collect(page)
    }

    /// Engines that serve this model.
    pub fn of_model<'a>(
        &'a self,
        model_name: &'a str,
    ) -> impl Iterator<Item = (&'a EngineKey, &'a EngineSample)> + 'a {
        self.engines
            .iter()
            .filter(move |(key, _)| key.model_name == model_name)
    }

    /// Series of the newest vLLM that at least one engine of the model does not export, by preferred
    /// metric name; all of them when no engine serves the model.
    #[must_use]
    pub fn missing(&self, model_name: &str) -> BTreeSet<String> {
        let newest = Expectation::newest(MetricsEngine::Vllm);
        let mut engines = self
            .of_model(model_name)
            .map(|(_, sample)| sample)
            .peekable();
        let nothing = EngineSample::default();
        let nobody = engines.peek().is_none().then_some(&nothing);
        let missing = engines
            .chain(nobody)
            .flat_map(|sample| newest.missing(sample));
        missing.map(|m| m.metric).collect()
    }

    fn note(&mut self, line: u32, metric: &str, problem: ValueProblem) {
        *match problem {
            ValueProblem::OutOfRange => &mut self.out_of_range,
            ValueProblem::Duplicate => &mut self.duplicates,
            ValueProblem::BadEdge | ValueProblem::Histogram(_) => &mut self.bad_histograms,
            ValueProblem::TooMany => &mut self.over_limit,
        } += 1;
        if self.problems.len() < MAX_ENGINE_PROBLEMS {
            self.problems.push(EngineProblem {
                line,
                metric: metric.to_owned(),
                problem,
            });
        }
    }
}

#[cfg(test)]
mod tests;
