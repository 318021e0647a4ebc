//! One X variable as a row, and the condition under which a row applies.
//!
//! Not a value: see [`super::Value`]. White paper V1, Appendix C, Knobs X and Workload Context.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::effect::EffectRow;
use super::value::{Domain, Value};

/// Who decides the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// The planner, in a configuration.
    Planner,
    /// The job's author.
    Job,
    /// The model's config.json.
    Model,
    /// The place where the replica runs.
    Environment,
    /// The traffic.
    Workload,
}

impl SetBy {
    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Planner => "planner",
            Self::Job => "job",
            Self::Model => "model",
            Self::Environment => "environment",
            Self::Workload => "workload",
        }
    }
}

/// What a running replica must go through when the value changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Nothing: the value is context, not a setting of the engine.
    None,
    /// A call to the running engine.
    Hot,
    /// A restart of the engine on the same GPUs.
    Restart,
    /// New GPUs.
    Redeploy,
}

impl Change {
    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hot => "hot",
            Self::Restart => "restart",
            Self::Redeploy => "redeploy",
        }
    }
}

/// Whether a row can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It can.
    #[default]
    Active,
    /// A variable of the paper that cannot be set yet; `no_flag` says why.
    Deferred,
    /// Kept so that old rows parse; `no_flag` says why it went.
    Retired,
}

impl Status {
    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Deferred => "deferred",
            Self::Retired => "retired",
        }
    }
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    /// Equal.
    #[serde(rename = "==")]
    Equal,
    /// Not equal.
    #[serde(rename = "!=")]
    NotEqual,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// Whether there is a value at all; the constant is true or false.
    #[serde(rename = "set")]
    Set,
}

impl Operator {
    /// The spelling in the catalog.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
            Self::Set => "set",
        }
    }
}

/// A comparison of one X variable with a constant: applicability, version gates, scopes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Name of an X variable.
    pub feature: String,
    /// Comparison.
    pub op: Operator,
    /// Constant.
    pub value: Value,
}

impl Condition {
    /// Whether the condition holds for a value; an order over names or booleans never holds.
    #[must_use]
    pub fn holds(&self, value: &Value) -> bool {
        let ordering = match (number(value), number(&self.value)) {
            (Some(left), Some(right)) => left.partial_cmp(&right),
            _ => None,
        };
        let equal = ordering.map_or_else(|| *value == self.value, std::cmp::Ordering::is_eq);
        match self.op {
            Operator::Equal => equal,
            Operator::NotEqual => !equal,
            Operator::AtLeast => ordering.is_some_and(std::cmp::Ordering::is_ge),
            Operator::AtMost => ordering.is_some_and(std::cmp::Ordering::is_le),
            Operator::Set => self.value == Value::Bool(true),
        }
    }

    /// Whether the condition holds for a variable that may have no value; without one only
    /// `set = false` holds.
    #[must_use]
    pub fn holds_for(&self, value: Option<&Value>) -> bool {
        value.map_or_else(
            || self.op == Operator::Set && self.value == Value::Bool(false),
            |value| self.holds(value),
        )
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.op, &self.value) {
            (Operator::Set, Value::Bool(false)) => write!(f, "{} is not set", self.feature),
            (Operator::Set, _) => write!(f, "{} is set", self.feature),
            (op, value) => write!(f, "{} {} {value}", self.feature, op.symbol()),
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// One X variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Published name; the engine's or the paper's spelling.
    pub id: String,
    /// Other spellings.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Family of Appendix C.
    pub family: String,
    /// Legal values.
    pub domain: Domain,
    /// Value when nobody sets one. Of an optional row it is what the engine does by itself and is
    /// not written; absent where that depends on the engine or the device, and for context.
    #[serde(default)]
    pub default: Option<Value>,
    /// True when a planner-set row may be absent from a configuration.
    #[serde(default)]
    pub optional: bool,
    /// Unit of the value.
    pub unit: String,
    /// Who decides.
    pub set_by: SetBy,
    /// Price of changing it.
    pub change: Change,
    /// Whether it can be used.
    #[serde(default)]
    pub status: Status,
    /// All must hold for the row to apply.
    #[serde(default)]
    pub applies: Vec<Condition>,
    /// Why a planner-set row has no engine flag, or why it is deferred or retired.
    #[serde(default)]
    pub no_flag: Option<String>,
    /// What it does to the analytic member, where that is not one of the main settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effect: Vec<EffectRow>,
    /// One sentence.
    pub doc: String,
}

impl Feature {
    /// The id and all aliases.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.id.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    /// Whether the planner may set it.
    #[must_use]
    pub fn is_knob(&self) -> bool {
        self.set_by == SetBy::Planner && self.status == Status::Active
    }
}
