//! The catalog's rows of mediators and outcomes.
//!
//! The closed sets themselves are [`crate::variables`]; rows add aliases, a recipe and a sentence,
//! and the load check holds both together.

use serde::{Deserialize, Serialize};

/// How a mediator is observed from scraped series and device counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Observation {
    /// Time mean of a gauge; the first name that is present counts.
    Gauge(Vec<String>),
    /// Δ of the first counter over Δ of the second.
    Ratio([String; 2]),
    /// Δsum over Δcount of a histogram.
    HistogramMean(String),
    /// Δ of a counter (or of a histogram's count) per second.
    Rate(String),
    /// A formula in code, under this name.
    Derived(String),
    /// A device counter, by name.
    Device(String),
    /// Not observed: why.
    Absent(String),
}

/// One mediator V.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediatorRow {
    /// Published name.
    pub id: String,
    /// Other spellings.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Family of Appendix C.
    pub family: String,
    /// Unit.
    pub unit: String,
    /// How it is observed.
    pub observe: Observation,
    /// One sentence.
    pub doc: String,
}

/// One outcome Y.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeRow {
    /// Published name.
    pub id: String,
    /// Other spellings.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Unit.
    pub unit: String,
    /// True when more is better.
    pub maximise: bool,
    /// One sentence.
    pub doc: String,
}
