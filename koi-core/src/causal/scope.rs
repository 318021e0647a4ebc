//! Where a mechanism claims to hold, and whether a rank is inside.
//!
//! White paper V1, Mechanisms; spec §5.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::edge::KindOf;
use crate::catalog::Value;
use crate::job::JobClass;
use crate::variables::VariableKind;
use crate::violation::Violations;

/// Parameter count, in billions, at which a dense model counts as large.
pub const DENSE_LARGE_FROM_BILLION: f64 = 15.0;
/// Most conditions of one scope: a claim with more is no law.
pub const MAX_CONDITIONS: usize = 8;

/// A feature's value as scopes compare it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FeatureValue {
    /// A flag.
    Flag(bool),
    /// A number.
    Number(f64),
    /// A name, such as a GPU type.
    Text(String),
}

impl From<&Value> for FeatureValue {
    /// Whole numbers and fractions compare alike.
    fn from(value: &Value) -> Self {
        match value {
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Int(n) => Self::Number(*n as f64),
            Value::Float(x) => Self::Number(*x),
            Value::Text(text) => Self::Text(text.clone()),
        }
    }
}

/// What is known of one rank: its job's class and values of features by catalog id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FeatureValues {
    class: Option<JobClass>,
    values: BTreeMap<String, FeatureValue>,
}

impl FeatureValues {
    /// Values of a job of this class; nothing else is known yet.
    #[must_use]
    pub const fn of_class(class: JobClass) -> Self {
        Self {
            class: Some(class),
            values: BTreeMap::new(),
        }
    }

    /// Stores a value; a number that is not finite counts as absent.
    pub fn insert(&mut self, feature: &str, value: FeatureValue) {
        let absent = matches!(value, FeatureValue::Number(x) if !x.is_finite());
        if !absent {
            self.values.insert(feature.to_owned(), value);
        }
    }

    /// Builder form of [`Self::insert`] with a number.
    #[must_use]
    pub fn with_number(mut self, feature: &str, value: f64) -> Self {
        self.insert(feature, FeatureValue::Number(value));
        self
    }

    /// Builder form of [`Self::insert`] with a flag.
    #[must_use]
    pub fn with_flag(mut self, feature: &str, value: bool) -> Self {
        self.insert(feature, FeatureValue::Flag(value));
        self
    }

    /// Builder form of [`Self::insert`] with a name.
    #[must_use]
    pub fn with_text(mut self, feature: &str, value: &str) -> Self {
        self.insert(feature, FeatureValue::Text(value.to_owned()));
        self
    }

    /// The value of a feature.
    #[must_use]
    pub fn get(&self, feature: &str) -> Option<&FeatureValue> {
        self.values.get(feature)
    }
}

/// How a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Comparison {
    /// Greater.
    #[serde(rename = ">")]
    Greater,
    /// Less.
    #[serde(rename = "<")]
    Less,
    /// Greater or equal.
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// Less or equal.
    #[serde(rename = "<=")]
    LessOrEqual,
    /// Equal.
    #[serde(rename = "==")]
    Equal,
}

impl Comparison {
    const fn symbol(self) -> &'static str {
        match self {
            Self::Greater => ">",
            Self::Less => "<",
            Self::GreaterOrEqual => ">=",
            Self::LessOrEqual => "<=",
            Self::Equal => "==",
        }
    }

    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Greater => left > right,
            Self::Less => left < right,
            Self::GreaterOrEqual => left >= right,
            Self::LessOrEqual => left <= right,
            Self::Equal => left.total_cmp(&right).is_eq(),
        }
    }
}

/// One condition on a feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Catalog id of the feature.
    pub feature: String,
    /// How to compare.
    pub op: Comparison,
    /// With what.
    pub value: FeatureValue,
}

impl Condition {
    /// True or false when the feature is known and comparable, `None` otherwise.
    #[must_use]
    pub fn holds(&self, values: &FeatureValues) -> Option<bool> {
        match (values.get(&self.feature)?, &self.value) {
            (FeatureValue::Number(left), FeatureValue::Number(right)) => {
                Some(self.op.holds(*left, *right))
            }
            (FeatureValue::Flag(left), FeatureValue::Flag(right)) => Some(left == right),
            (FeatureValue::Text(left), FeatureValue::Text(right)) => Some(left == right),
            _ => None,
        }
    }
}

/// Job classes a mechanism speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadType {
    /// Both.
    #[default]
    Any,
    /// Latency-bound jobs.
    Online,
    /// Deadline-bound jobs.
    Batch,
}

/// Model families a mechanism speaks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelType {
    /// All.
    #[default]
    Any,
    /// Mixture of experts.
    Moe,
    /// Dense, below 15 billion parameters.
    DenseSmall,
    /// Dense, from 15 billion parameters on.
    DenseLarge,
}

/// Where a mechanism claims to hold; all parts must agree.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scope {
    /// Job classes.
    #[serde(default)]
    pub workload_type: WorkloadType,
    /// Model families.
    #[serde(default)]
    pub model_type: ModelType,
    /// Conditions on features.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// How well a rank fits a scope; the order is from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeMatch {
    /// Some part is known to fail.
    No,
    /// Nothing fails, and something is not known.
    Partial,
    /// Everything is known and holds.
    Exact,
}

impl ScopeMatch {
    const fn of(holds: Option<bool>) -> Self {
        match holds {
            Some(true) => Self::Exact,
            Some(false) => Self::No,
            None => Self::Partial,
        }
    }
}

impl Scope {
    /// Whether a rank with these values is inside.
    #[must_use]
    pub fn matches(&self, values: &FeatureValues) -> ScopeMatch {
        let class = match self.workload_type {
            WorkloadType::Any => Some(true),
            WorkloadType::Online => values.class.map(|c| c == JobClass::Online),
            WorkloadType::Batch => values.class.map(|c| c == JobClass::Batch),
        };
        let mut parts = [class, self.model_type.holds(values)]
            .into_iter()
            .chain(self.conditions.iter().map(|c| c.holds(values)))
            .map(ScopeMatch::of);
        // Every candidate of every plan is asked for every mechanism: the first part that fails ends it.
        let worst = parts.try_fold(ScopeMatch::Exact, |worst, part| match part {
            ScopeMatch::No => Err(ScopeMatch::No),
            ScopeMatch::Partial | ScopeMatch::Exact => Ok(worst.min(part)),
        });
        worst.unwrap_or_else(|no| no)
    }

    /// One text per meaning: conditions in a fixed order, equal for equal scopes.
    #[must_use]
    pub fn canonical(&self) -> String {
        let mut conditions: Vec<String> = self
            .conditions
            .iter()
            .map(|c| format!("{:?} {} {:?}", c.feature, c.op.symbol(), c.value))
            .collect();
        conditions.sort();
        conditions.dedup();
        let mut text = format!("{:?};{:?}", self.workload_type, self.model_type);
        for condition in conditions {
            write!(text, ";{condition}").expect("invariant: writing to a String cannot fail");
        }
        text
    }

    /// Adds every way in which the scope is not well-typed.
    pub(crate) fn check(&self, kind_of: KindOf<'_>, violations: &mut Violations) {
        if self.conditions.len() > MAX_CONDITIONS {
            violations.add(
                "scope.conditions",
                format!("at most {MAX_CONDITIONS} conditions"),
            );
        }
        for (i, condition) in self.conditions.iter().enumerate().take(MAX_CONDITIONS) {
            let field = format!("scope.conditions[{i}]");
            if kind_of(&condition.feature) != Some(VariableKind::Feature) {
                violations.add(
                    format!("{field}.feature"),
                    format!("{:.80?} is no feature of the catalog", condition.feature),
                );
            }
            match &condition.value {
                FeatureValue::Number(x) if !x.is_finite() => {
                    violations.add(format!("{field}.value"), "must be finite");
                }
                FeatureValue::Flag(_) | FeatureValue::Text(_)
                    if condition.op != Comparison::Equal =>
                {
                    violations.add(
                        format!("{field}.op"),
                        "flags and names compare with == only",
                    );
                }
                _ => {}
            }
        }
    }
}

impl ModelType {
    fn holds(self, values: &FeatureValues) -> Option<bool> {
        let is_moe = match values.get("is_moe") {
            Some(FeatureValue::Flag(flag)) => Some(*flag),
            _ => None,
        };
        let is_large = match values.get("model_params_b") {
            Some(FeatureValue::Number(billions)) => Some(*billions >= DENSE_LARGE_FROM_BILLION),
            _ => None,
        };
        let dense_and = |large: bool| match (is_moe, is_large) {
            (Some(true), _) => Some(false),
            (_, Some(size)) if size != large => Some(false),
            (Some(false), Some(_)) => Some(true),
            _ => None,
        };
        match self {
            Self::Any => Some(true),
            Self::Moe => is_moe,
            Self::DenseSmall => dense_and(false),
            Self::DenseLarge => dense_and(true),
        }
    }
}
