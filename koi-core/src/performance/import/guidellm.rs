//! GuideLLM reports: one benchmark per load level. The older layout keeps the strategy under `args`,
//! the newer under `config`; the distributions have the same shape in both.

use serde_json::Value;

use super::json::{at, digest_id, number, positive, require_given, text};
use super::{Given, Import};
use crate::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use crate::violation::{FieldViolation, Violations};

const SOURCE: &str = "GuideLLM";

pub(super) fn read(words: &str, given: &Given) -> Result<Import, Vec<FieldViolation>> {
    require_given(given)?;
    let problem = |message: String| {
        vec![FieldViolation {
            field: "file".to_owned(),
            message,
        }]
    };
    let report: Value =
        serde_json::from_str(words).map_err(|e| problem(format!("is not JSON: {e}")))?;
    let benchmarks = report.get("benchmarks").and_then(Value::as_array);
    let benchmarks = benchmarks.ok_or_else(|| problem("has no list \"benchmarks\"".to_owned()))?;
    let mut import = Import::default();
    for (index, benchmark) in benchmarks.iter().enumerate() {
        let place = format!("benchmarks[{index}]");
        import.take(&place, row(&report, benchmark, given));
    }
    Ok(import)
}

fn row(
    report: &Value,
    benchmark: &Value,
    given: &Given,
) -> Result<PerformanceRow, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let load = load(benchmark, &mut problems);
    let model = given
        .model
        .clone()
        .or_else(|| model(report, benchmark))
        .unwrap_or_default();
    let run_id = text(benchmark, &["id_"])
        .or_else(|| text(benchmark, &["run_id"]))
        .unwrap_or_default();
    let start = number(benchmark, &["start_time"]).map_or_else(String::new, |s| s.to_string());
    let pp = given.pp.unwrap_or(1);
    let mean = |name: &str| successful(benchmark, name, &["mean"]);
    let row = PerformanceRow {
        source: given.source.clone().unwrap_or_else(|| SOURCE.to_owned()),
        row_id: digest_id(&[&run_id, &start, &model, &format!("{load:?}")]),
        date: start,
        model,
        gpu_type: given.gpu_type.clone().unwrap_or_default(),
        n_gpus: given.n_gpus.or_else(|| given.tp.map(|tp| tp * pp)),
        tp: given.tp,
        pp: Some(pp),
        ep: given.ep,
        dp: None,
        engine: given.engine.clone(),
        engine_version: given.engine_version.clone(),
        weight_dtype: given.weight_dtype.clone(),
        kv_dtype: given.kv_dtype.clone(),
        isl: mean("prompt_token_count"),
        osl: mean("output_token_count"),
        load,
        disaggregated: false,
        measured: measured(benchmark),
        notes: String::new(),
    };
    problems.finish(row)
}

/// A figure of the distribution over successful requests.
fn successful(benchmark: &Value, metric: &str, path: &[&str]) -> Option<f64> {
    let distribution = at(benchmark, &["metrics", metric, "successful"])?;
    positive(distribution, path)
}

fn model(report: &Value, benchmark: &Value) -> Option<String> {
    let places: [(&Value, &[&str]); 5] = [
        (benchmark, &["worker", "backend_model"]),
        (benchmark, &["config", "backend", "model"]),
        (benchmark, &["args", "model"]),
        (report, &["args", "model"]),
        (report, &["args", "backend", "model"]),
    ];
    places
        .into_iter()
        .find_map(|(value, path)| text(value, path))
}

/// The load of a strategy: `synchronous` is one in flight, `concurrent` as many as it has streams,
/// `throughput` everything at once; `constant` and `poisson` (and the older `async`) have a rate.
fn load(benchmark: &Value, problems: &mut Violations) -> Option<Load> {
    let strategy =
        at(benchmark, &["config", "strategy"]).or_else(|| at(benchmark, &["args", "strategy"]));
    let Some(strategy) = strategy else {
        problems.add(
            "strategy",
            "neither config.strategy nor args.strategy is there",
        );
        return None;
    };
    let kind = text(strategy, &["type_"]).unwrap_or_default();
    let of = |kind, value| Some(Load { kind, value });
    match kind.as_str() {
        "synchronous" => of(LoadKind::Concurrency, Some(1.0)),
        "concurrent" => {
            let streams = positive(strategy, &["streams"])
                .or_else(|| positive(strategy, &["max_concurrency"]))
                .or_else(|| successful(benchmark, "request_concurrency", &["mean"]));
            of(LoadKind::Concurrency, streams)
        }
        "throughput" => {
            let held = positive(strategy, &["max_concurrency"]);
            match held {
                Some(n) => of(LoadKind::Concurrency, Some(n)),
                None => of(LoadKind::AllAtOnce, n_requests(benchmark)),
            }
        }
        "constant" | "poisson" | "async" => of(LoadKind::RateRps, positive(strategy, &["rate"])),
        other => {
            problems.add("strategy.type_", format!("{other:?} is not known"));
            None
        }
    }
}

fn n_requests(benchmark: &Value) -> Option<f64> {
    let places: [&[&str]; 3] = [
        &["metrics", "request_totals", "total"],
        &["request_totals", "total"],
        &["run_stats", "requests_made", "total"],
    ];
    places
        .into_iter()
        .find_map(|path| positive(benchmark, path))
}

/// GuideLLM's time per output token counts the first one too; its inter-token latency is what others
/// call time per output token.
fn measured(benchmark: &Value) -> Measured {
    let mean = |metric: &str| {
        successful(benchmark, metric, &["mean"]).map(|ms| Timing {
            ms,
            statistic: Statistic::Mean,
        })
    };
    let p99 = |metric: &str| successful(benchmark, metric, &["percentiles", "p99"]);
    Measured {
        output_tokens_per_sec: successful(benchmark, "output_tokens_per_second", &["mean"]),
        ttft: mean("time_to_first_token_ms"),
        tpot: mean("inter_token_latency_ms"),
        ttft_p99_ms: p99("time_to_first_token_ms"),
        tpot_p99_ms: p99("inter_token_latency_ms"),
    }
}
