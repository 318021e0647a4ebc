//! Results of `vllm bench serve --save-result`: one JSON object per run, alone or one per line.

use serde_json::Value;

use super::json::{digest_id, number, positive, require_given, text};
use super::{Given, Import};
use crate::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use crate::violation::{FieldViolation, Violations};

const SOURCE: &str = "vllm bench serve";

pub(super) fn read(text: &str, given: &Given) -> Result<Import, Vec<FieldViolation>> {
    require_given(given)?;
    let mut import = Import::default();
    let stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    for (index, result) in stream.enumerate() {
        let place = format!("result {}", index + 1);
        match result {
            Ok(Value::Array(results)) => {
                for (i, result) in results.iter().enumerate() {
                    import.take(&format!("result {}", i + 1), row(result, given));
                }
            }
            Ok(result) => import.take(&place, row(&result, given)),
            Err(error) => {
                let message = format!("is not JSON: {error}");
                let problem = FieldViolation {
                    field: "result".to_owned(),
                    message,
                };
                import.take(&place, Err(vec![problem]));
                break;
            }
        }
    }
    Ok(import)
}

fn row(result: &Value, given: &Given) -> Result<PerformanceRow, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let completed = positive(result, &["completed"]);
    if completed.is_none() {
        problems.add("completed", "no request was completed");
    }
    let failed = number(result, &["failed"]).unwrap_or(0.0);
    let mean_tokens = |total: &str| Some(positive(result, &[total])? / completed?);
    let date = text(result, &["date"]).unwrap_or_default();
    let model = given
        .model
        .clone()
        .or_else(|| text(result, &["model_id"]))
        .unwrap_or_default();
    let load = load(result, &mut problems);
    let duration = number(result, &["duration"]).map_or_else(String::new, |d| d.to_string());
    let label = text(result, &["label"]).unwrap_or_default();
    let pp = given.pp.unwrap_or(1);
    let row = PerformanceRow {
        source: given.source.clone().unwrap_or_else(|| SOURCE.to_owned()),
        row_id: digest_id(&[&date, &model, &label, &duration, &format!("{load:?}")]),
        date,
        model,
        gpu_type: given.gpu_type.clone().unwrap_or_default(),
        n_gpus: given.n_gpus.or_else(|| given.tp.map(|tp| tp * pp)),
        tp: given.tp,
        pp: Some(pp),
        ep: given.ep,
        dp: None,
        engine: given.engine.clone().or_else(|| Some("vllm".to_owned())),
        engine_version: given.engine_version.clone(),
        weight_dtype: given.weight_dtype.clone(),
        kv_dtype: given.kv_dtype.clone(),
        isl: mean_tokens("total_input_tokens"),
        osl: mean_tokens("total_output_tokens"),
        load,
        disaggregated: false,
        measured: measured(result),
        notes: if failed > 0.0 {
            format!("{failed} requests failed")
        } else {
            String::new()
        },
    };
    problems.finish(row)
}

/// A limit on requests in flight makes a closed loop; without one the rate counts, and an infinite
/// rate sends everything at once.
fn load(result: &Value, problems: &mut Violations) -> Option<Load> {
    let prompts = positive(result, &["num_prompts"]);
    let rate = result.get("request_rate");
    let is_infinite = rate.and_then(Value::as_str).is_some_and(|r| r == "inf");
    let rate = rate
        .and_then(Value::as_f64)
        .filter(|r| r.is_finite() && *r > 0.0);
    if let Some(limit) = positive(result, &["max_concurrency"]) {
        if rate.is_none() {
            // Fewer prompts than the limit never reach it.
            let value = Some(prompts.map_or(limit, |n| n.min(limit)));
            let kind = LoadKind::Concurrency;
            return Some(Load { kind, value });
        }
        problems.add(
            "request_rate",
            "a rate together with max_concurrency is neither a closed loop nor an open one",
        );
        return None;
    }
    match rate {
        Some(rate) => Some(Load {
            kind: LoadKind::RateRps,
            value: Some(rate),
        }),
        None if is_infinite => Some(Load {
            kind: LoadKind::AllAtOnce,
            value: prompts,
        }),
        None => {
            problems.add("request_rate", "is missing; a number or \"inf\" is needed");
            None
        }
    }
}

fn measured(result: &Value) -> Measured {
    let mean = |key: &str| {
        positive(result, &[key]).map(|ms| Timing {
            ms,
            statistic: Statistic::Mean,
        })
    };
    Measured {
        output_tokens_per_sec: positive(result, &["output_throughput"]),
        ttft: mean("mean_ttft_ms"),
        tpot: mean("mean_tpot_ms"),
        ttft_p99_ms: positive(result, &["p99_ttft_ms"]),
        tpot_p99_ms: positive(result, &["p99_tpot_ms"]),
    }
}
