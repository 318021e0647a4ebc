//! What a knob does to the analytic member, as data of its row.
//!
//! An effect names a term of the closed vocabulary ([`Term`]) and says how the knob's value becomes
//! a contribution to it: a number per value, or one of a few formulas. It says where the number comes
//! from, and plainly when nobody has measured it. The physics of a term is the surrogate's. Spec §4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::value::{Domain, Value};
use super::{Catalog, Feature};
use crate::configuration::{Configuration, ShapeEffects, Term};

/// Where a magnitude comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// It is what the setting means; nothing is estimated.
    Mechanism,
    /// Measured, in tables that the source names.
    Measured,
    /// A published number.
    Published,
    /// An engineering prior that nobody has measured here.
    Prior,
}

impl Basis {
    /// Every basis.
    pub const ALL: [Self; 4] = [
        Self::Mechanism,
        Self::Measured,
        Self::Published,
        Self::Prior,
    ];

    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mechanism => "mechanism",
            Self::Measured => "measured",
            Self::Published => "published",
            Self::Prior => "prior",
        }
    }
}

/// How the value of a knob becomes a contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Formula {
    /// x
    Value,
    /// x · by
    Times,
    /// 1 − by + by/x: the share `by` is spread over x.
    Amortised,
}

impl Formula {
    /// Every formula.
    pub const ALL: [Self; 3] = [Self::Value, Self::Times, Self::Amortised];

    /// The word in the catalog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Times => "times",
            Self::Amortised => "amortised",
        }
    }

    /// Whether it needs the constant `by`.
    #[must_use]
    pub const fn needs_constant(self) -> bool {
        !matches!(self, Self::Value)
    }

    fn of(self, x: f64, by: f64) -> f64 {
        match self {
            Self::Value => x,
            Self::Times => x * by,
            Self::Amortised => 1.0 - by + by / x,
        }
    }
}

/// One effect as written in a row; names are checked when the catalog is loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectRow {
    /// Name of a [`Term`].
    pub term: String,
    /// Contribution by value; a value that is not named contributes nothing.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// Name of a [`Formula`], instead of values.
    #[serde(default)]
    pub formula: Option<String>,
    /// Constant of the formula.
    #[serde(default)]
    pub by: Option<f64>,
    /// Name of a [`Basis`].
    pub basis: String,
    /// Where the magnitude comes from, in words; a published one has its year.
    pub source: String,
}

/// One checked effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// What it changes.
    pub term: Term,
    /// Where the magnitude comes from.
    pub basis: Basis,
    amount: Amount,
}

#[derive(Debug, Clone, PartialEq)]
enum Amount {
    ByValue(BTreeMap<String, f64>),
    Formula(Formula, f64),
}

impl EffectRow {
    /// The formula and its constant; `None` for a table of values or a name that is not known.
    pub(super) fn named_formula(&self) -> Option<Formula> {
        let name = self.formula.as_deref()?;
        Formula::ALL.into_iter().find(|f| f.name() == name)
    }

    /// The basis, when it is known.
    pub(super) fn named_basis(&self) -> Option<Basis> {
        Basis::ALL.into_iter().find(|b| b.name() == self.basis)
    }

    /// The checked form; `None` for rows that the check refuses.
    pub(super) fn resolve(&self) -> Option<Effect> {
        let amount = match self.formula {
            Some(_) => Amount::Formula(self.named_formula()?, self.by.unwrap_or(1.0)),
            None => Amount::ByValue(self.values.clone()),
        };
        Some(Effect {
            term: Term::from_name(&self.term)?,
            basis: self.named_basis()?,
            amount,
        })
    }
}

impl Effect {
    /// What a value contributes; `None` where it says nothing about this term.
    #[must_use]
    pub fn contribution(&self, value: &Value) -> Option<f64> {
        match &self.amount {
            Amount::ByValue(values) => values.get(&value.to_string()).copied(),
            Amount::Formula(formula, by) => number(value).map(|x| formula.of(x, *by)),
        }
    }
}

/// The number of a value that has one.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// Values at the ends of a domain, and all of a choice: what a formula must be legal at.
pub(super) fn extremes(domain: &Domain) -> Vec<Value> {
    match domain {
        Domain::Bool => vec![Value::Bool(false), Value::Bool(true)],
        Domain::Int { min, max } => vec![Value::Int(*min), Value::Int(*max)],
        Domain::IntChoice(choices) => choices.iter().copied().map(Value::Int).collect(),
        Domain::Float { min, max } => vec![Value::Float(*min), Value::Float(*max)],
        Domain::Choice(choices) => choices.iter().cloned().map(Value::Text).collect(),
        Domain::Text { .. } => Vec::new(),
    }
}

impl Catalog {
    /// What the settings of a configuration do to the analytic member beyond the main ones. A knob
    /// at its default does nothing: the constants were found with it there.
    #[must_use]
    pub fn shape_effects(&self, configuration: &Configuration) -> ShapeEffects {
        let mut effects = ShapeEffects::NEUTRAL;
        for (id, value) in configuration.iter() {
            let Some(of_knob) = self.effects.get(id) else {
                continue;
            };
            let default = self.features.get(id).and_then(|row| row.default.as_ref());
            if default == Some(value) {
                continue;
            }
            for effect in of_knob {
                if let Some(amount) = effect.contribution(value) {
                    effects.add(effect.term, amount);
                }
            }
        }
        effects
    }

    /// The effects of a knob, by id; none for one that the analytic member follows by itself or not
    /// at all.
    #[must_use]
    pub fn effects_of(&self, id: &str) -> &[Effect] {
        self.effects.get(id).map_or(&[], Vec::as_slice)
    }
}

/// The checked effects of all rows that have any.
pub(super) fn resolve_all(features: &BTreeMap<String, Feature>) -> BTreeMap<String, Vec<Effect>> {
    let effects = |row: &Feature| row.effect.iter().filter_map(EffectRow::resolve).collect();
    features
        .values()
        .filter(|row| !row.effect.is_empty())
        .map(|row| (row.id.clone(), effects(row)))
        .collect()
}
