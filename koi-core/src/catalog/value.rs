//! One value of an X variable and the domain it must lie in.
//!
//! Not arithmetic across variables: a domain looks at one value alone.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::printable::is_hidden;

/// A value as it stands in drafts, stored rows and the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// A name.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            // A refusal quotes what was offered; a hostile draft must not flood it.
            Self::Text(value) => write!(f, "{}", value.chars().take(80).collect::<String>()),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// The legal values of one variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Domain {
    /// True or false.
    Bool,
    /// A whole number within bounds, both included.
    Int {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// One of a few whole numbers.
    IntChoice(Vec<i64>),
    /// A finite number within bounds, both included.
    Float {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// One of a few names.
    Choice(Vec<String>),
    /// A name that another part of the catalog or a host defines; at most this many characters.
    Text {
        /// Most characters.
        max_chars: usize,
    },
}

impl Domain {
    /// The value in the domain's own form (a whole number is a legal float), or what would be
    /// right.
    ///
    /// # Errors
    /// A sentence that names the legal values.
    pub fn accept(&self, value: &Value) -> Result<Value, String> {
        let accepted = match (self, value) {
            (Self::Bool, Value::Bool(_)) => Some(value.clone()),
            (Self::Int { min, max }, Value::Int(n)) => {
                (min..=max).contains(&n).then(|| value.clone())
            }
            (Self::IntChoice(choices), Value::Int(n)) => choices.contains(n).then(|| value.clone()),
            (Self::Float { min, max }, Value::Float(x)) => Self::float_within(*x, *min, *max),
            (Self::Float { min, max }, Value::Int(n)) => Self::float_within(*n as f64, *min, *max),
            (Self::Choice(choices), Value::Text(name)) => {
                choices.contains(name).then(|| value.clone())
            }
            (Self::Text { max_chars }, Value::Text(name)) => {
                let n = name.chars().count();
                ((1..=*max_chars).contains(&n) && !name.contains(is_hidden)).then(|| value.clone())
            }
            _ => None,
        };
        accepted.ok_or_else(|| format!("{value} is not legal: {self}"))
    }

    fn float_within(x: f64, min: f64, max: f64) -> Option<Value> {
        // NaN is in no range, so it is refused here.
        (min..=max).contains(&x).then_some(Value::Float(x))
    }

    /// True when the domain itself makes sense: bounds in order, choices present.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Bool => true,
            Self::Int { min, max } => min <= max,
            Self::Float { min, max } => min.is_finite() && max.is_finite() && min <= max,
            Self::IntChoice(choices) => !choices.is_empty(),
            Self::Choice(choices) => !choices.is_empty() && choices.iter().all(|c| !c.is_empty()),
            Self::Text { max_chars } => *max_chars > 0,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("true or false"),
            Self::Int { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Float { min, max } => write!(f, "a number from {min} to {max}"),
            Self::IntChoice(choices) => {
                let list: Vec<String> = choices.iter().map(i64::to_string).collect();
                write!(f, "one of {}", list.join(", "))
            }
            Self::Choice(choices) => write!(f, "one of {}", choices.join(", ")),
            Self::Text { max_chars } => write!(f, "a name of 1 to {max_chars} characters"),
        }
    }
}
