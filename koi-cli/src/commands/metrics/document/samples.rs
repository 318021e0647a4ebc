//! The samples of a page in a document. Not the values of engines.

use std::collections::BTreeMap;

use koi_core::telemetry::metrics_text::{Labels, Sample};
use serde::Serialize;
use serde_json::Value;

/// One sample, as written on the page.
#[derive(Debug, Serialize)]
pub(in crate::commands::metrics) struct SampleDocument {
    line: u32,
    name: String,
    labels: BTreeMap<String, String>,
    value: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exemplar: Option<ExemplarDocument>,
}

#[derive(Debug, Serialize)]
struct ExemplarDocument {
    labels: BTreeMap<String, String>,
    value: Value,
    timestamp: Option<f64>,
}

impl SampleDocument {
    pub(in crate::commands::metrics) fn of(sample: &Sample<'_>) -> Self {
        Self {
            line: sample.line,
            name: sample.name.to_string(),
            labels: labels(sample.labels),
            value: value(sample.value),
            timestamp: sample.timestamp,
            exemplar: sample.exemplar().map(|e| ExemplarDocument {
                labels: labels(e.labels),
                value: value(e.value),
                timestamp: e.timestamp,
            }),
        }
    }
}

fn labels(labels: Labels<'_>) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|l| (l.name.into_owned(), l.value.into_owned()))
        .collect()
}

/// JSON has no NaN and no infinity: these are words.
fn value(value: f64) -> Value {
    if value.is_finite() {
        Value::from(value)
    } else if value.is_nan() {
        Value::from("NaN")
    } else if value > 0.0 {
        Value::from("+Inf")
    } else {
        Value::from("-Inf")
    }
}
