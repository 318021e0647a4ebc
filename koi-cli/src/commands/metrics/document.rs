//! What `koi metrics parse` answers, as one document. Not its form for people (`text.rs`).

mod samples;

use std::collections::BTreeMap;

use koi_core::telemetry::engine_metrics::{
    CounterChange, EngineChange, EnginePage, Expectation, MissingSeries, PageChange, ValueProblem,
};
use koi_core::telemetry::histogram::{BucketDelta, CumulativeHistogram};
use koi_core::telemetry::metrics_text::{Page, Problem};
use koi_core::telemetry::sample::{CachePool, EngineKey, EngineSample};
use koi_core::telemetry::series::TpotSource;
use serde::Serialize;

use crate::args::MetricsParseArgs;
use samples::SampleDocument;

/// What a document is made of.
pub(super) struct Input<'a> {
    /// Where the page came from.
    pub(super) file: String,
    /// Its size.
    pub(super) n_bytes: usize,
    /// The page.
    pub(super) page: &'a Page<'a>,
    /// Its engines.
    pub(super) engines: &'a EnginePage,
    /// What happened since an earlier page.
    pub(super) change: Option<PageChange>,
    /// Options.
    pub(super) args: &'a MetricsParseArgs,
}

#[derive(Debug, Serialize)]
pub(super) struct Document {
    pub(super) file: String,
    pub(super) format: &'static str,
    pub(super) read: Counts,
    pub(super) process_start_seconds: Option<f64>,
    pub(super) engines: Vec<EngineDocument>,
    /// Series of the engine asked for, when the page has no such engine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<MissingDocument>,
    /// Engines that only the previous page has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) gone: Vec<Who>,
    /// The serving process started again after the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) restarted: Option<bool>,
    pub(super) problems: Vec<ProblemDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) samples: Option<Vec<SampleDocument>>,
}

/// What was read, and what was not.
#[derive(Debug, Serialize)]
pub(super) struct Counts {
    pub(super) bytes: usize,
    pub(super) lines: u32,
    pub(super) samples: usize,
    pub(super) families: usize,
    pub(super) created_dropped: usize,
    pub(super) bad_lines: usize,
    pub(super) remarks: usize,
    pub(super) repeated_series: usize,
    pub(super) bad_values: usize,
    pub(super) bad_histograms: usize,
    pub(super) samples_over_limit: usize,
    pub(super) engines_over_limit: usize,
    pub(super) bytes_cut: usize,
    pub(super) last_line_cut: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Who {
    pub(super) engine: &'static str,
    pub(super) model_name: String,
    pub(super) index: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) replica: String,
}

#[derive(Debug, Serialize)]
pub(super) struct EngineDocument {
    #[serde(flatten)]
    pub(super) who: Who,
    pub(super) counters: BTreeMap<&'static str, u64>,
    pub(super) gauges: BTreeMap<&'static str, f64>,
    pub(super) histograms: BTreeMap<&'static str, HistogramDocument>,
    pub(super) tpot_source: Option<TpotSource>,
    pub(super) prefix_cache_hit_rate: Option<f64>,
    pub(super) cache: CachePool,
    pub(super) missing: Vec<MissingDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since_previous: Option<ChangeDocument>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) mean: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p99: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct HistogramDocument {
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// Finite bucket edges.
    edges: Vec<f64>,
    /// Observations up to each edge, and the total last.
    cumulative: Vec<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct MissingDocument {
    pub(super) series: &'static str,
    pub(super) metric: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ChangeDocument {
    pub(super) counters: BTreeMap<&'static str, Increase>,
    pub(super) histograms: BTreeMap<&'static str, HistogramChangeDocument>,
}

#[derive(Debug, Serialize)]
pub(super) struct Increase {
    pub(super) increase: u64,
    /// The counter fell; the increase is what was counted since it started again.
    pub(super) reset: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum HistogramChangeDocument {
    /// What was observed in between.
    Observed(Summary),
    /// Why that cannot be said.
    Unknown {
        /// Reason.
        no_difference: String,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct ProblemDocument {
    pub(super) line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metric: Option<String>,
    pub(super) problem: String,
    /// The line's sample is gone.
    pub(super) lost: bool,
}

impl Document {
    pub(super) fn of(input: &Input<'_>) -> Self {
        let (page, engines, args) = (input.page, input.engines, input.args);
        let repeated = page.repeated_series();
        let change = input.change.as_ref();
        Self {
            file: input.file.clone(),
            format: if page.ended {
                "openmetrics"
            } else {
                "prometheus"
            },
            read: counts(input, repeated.count),
            process_start_seconds: engines.process_start_seconds,
            engines: engines
                .engines
                .iter()
                .map(|(key, sample)| {
                    let change = change.and_then(|c| c.engines.get(key));
                    engine(key, sample, change, args)
                })
                .collect(),
            missing: missing_engine(engines, args),
            gone: change.map_or_else(Vec::new, |c| c.gone.iter().map(who).collect()),
            restarted: change.map(|c| c.restarted),
            problems: problems(page, &repeated.problems, engines),
            samples: args
                .samples
                .then(|| page.samples.iter().map(SampleDocument::of).collect()),
        }
    }
}

fn counts(input: &Input<'_>, repeated_series: usize) -> Counts {
    let (page, engines) = (input.page, input.engines);
    Counts {
        bytes: input.n_bytes,
        lines: page.lines,
        samples: page.samples.len(),
        families: page.families.len(),
        created_dropped: page.created_dropped,
        bad_lines: page.bad_lines,
        remarks: page.remarks,
        repeated_series,
        bad_values: engines.out_of_range,
        bad_histograms: engines.bad_histograms,
        samples_over_limit: page.over_limit,
        engines_over_limit: engines.over_limit,
        bytes_cut: page.bytes_cut,
        last_line_cut: page.unterminated,
    }
}

fn who(key: &EngineKey) -> Who {
    Who {
        engine: key.kind.name(),
        model_name: key.model_name.clone(),
        index: key.engine,
        replica: key.replica.clone(),
    }
}

fn engine(
    key: &EngineKey,
    sample: &EngineSample,
    change: Option<&EngineChange>,
    args: &MetricsParseArgs,
) -> EngineDocument {
    let told = args.engine.filter(|engine| *engine == key.kind);
    let expected = match (told, args.version) {
        (Some(engine), Some(version)) => Expectation { engine, version },
        _ => Expectation::guessed(key.kind, sample),
    };
    let counters = sample.counters.iter().map(|(s, v)| (s.name(), *v));
    let gauges = sample.gauges.iter().map(|(s, v)| (s.name(), *v));
    let histograms = sample.histograms.iter();
    EngineDocument {
        who: who(key),
        counters: counters.collect(),
        gauges: gauges.collect(),
        histograms: histograms.map(|(s, h)| (s.name(), histogram(h))).collect(),
        tpot_source: sample.tpot_source,
        prefix_cache_hit_rate: sample.prefix_cache_hit_rate,
        cache: sample.cache,
        missing: expected.missing(sample).into_iter().map(missing).collect(),
        since_previous: change.map(|c| change_document(c, sample)),
    }
}

fn histogram(histogram: &CumulativeHistogram) -> HistogramDocument {
    HistogramDocument {
        summary: Summary {
            count: histogram.count(),
            sum: histogram.sum(),
            mean: histogram.mean(),
            p50: histogram.quantile(0.5),
            p90: histogram.quantile(0.9),
            p99: histogram.quantile(0.99),
        },
        edges: histogram.edges().to_vec(),
        cumulative: histogram.cumulative().to_vec(),
    }
}

fn missing(missing: MissingSeries) -> MissingDocument {
    MissingDocument {
        series: missing.series,
        metric: missing.metric,
    }
}

/// Everything that an engine asked for should export, when the page has no such engine.
fn missing_engine(page: &EnginePage, args: &MetricsParseArgs) -> Vec<MissingDocument> {
    let Some(engine) = args.engine else {
        return Vec::new();
    };
    if page.engines.keys().any(|key| key.kind == engine) {
        return Vec::new();
    }
    let newest = Expectation::newest(engine);
    let expected = Expectation {
        version: args.version.unwrap_or(newest.version),
        ..newest
    };
    let nothing = EngineSample::default();
    expected
        .missing(&nothing)
        .into_iter()
        .map(missing)
        .collect()
}

fn change_document(change: &EngineChange, now: &EngineSample) -> ChangeDocument {
    let counters = change.counters.iter().map(|(series, change)| {
        let (increase, reset) = match change {
            CounterChange::Grew(by) => (*by, false),
            CounterChange::Reset(since) => (*since, true),
        };
        (series.name(), Increase { increase, reset })
    });
    let histograms = change.histograms.iter().map(|(series, change)| {
        let edges = now.histograms.get(series).map(CumulativeHistogram::edges);
        let document = match change {
            Ok(delta) => HistogramChangeDocument::Observed(delta_summary(delta, edges)),
            Err(why) => HistogramChangeDocument::Unknown {
                no_difference: why.to_string(),
            },
        };
        (series.name(), document)
    });
    ChangeDocument {
        counters: counters.collect(),
        histograms: histograms.collect(),
    }
}

fn delta_summary(delta: &BucketDelta, edges: Option<&[f64]>) -> Summary {
    let quantile = |q| delta.quantile(q, edges?);
    Summary {
        count: delta.count,
        sum: delta.sum,
        mean: delta.mean(),
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
    }
}

/// Lines first, then repeated series, then values; a repeated line is reported once.
fn problems(page: &Page<'_>, repeated: &[Problem], engines: &EnginePage) -> Vec<ProblemDocument> {
    let of_line = |p: &Problem| ProblemDocument {
        line: p.line,
        metric: None,
        problem: p.problem.to_string(),
        lost: p.problem.loses_the_line(),
    };
    let is_told = |line: u32| repeated.iter().any(|p| p.line == line);
    let values = engines
        .problems
        .iter()
        .filter(|p| p.problem != ValueProblem::Duplicate || !is_told(p.line))
        .map(|p| ProblemDocument {
            line: p.line,
            metric: Some(p.metric.clone()),
            problem: p.problem.to_string(),
            lost: false,
        });
    let lines = page.problems.iter().chain(repeated).map(of_line);
    lines.chain(values).collect()
}
