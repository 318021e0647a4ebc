//! What a configuration's settings beyond the main ones do to the analytic member, folded once.
//!
//! A closed vocabulary of terms, each one quantity of the physics; which knob contributes what to
//! which term is data (the effects of the catalog's rows). Not a list of knobs, and no names: the hot
//! path reads numbers from a fixed array. Spec §4, member 1.

mod terms;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use terms::{TERM_COUNT, Term};

/// How contributions of several knobs to one term meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// They multiply.
    Product,
    /// They add up.
    Sum,
    /// The least counts.
    Least,
    /// The most counts.
    Most,
    /// One knob alone decides.
    Alone,
}

/// One value for every term; neutral where no knob says anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapeEffects {
    values: [f64; TERM_COUNT],
    is_neutral: bool,
}

impl ShapeEffects {
    /// Nothing beyond the main settings.
    pub const NEUTRAL: Self = Self {
        values: Term::NEUTRAL,
        is_neutral: true,
    };

    /// The value of a term.
    #[must_use]
    pub const fn get(&self, term: Term) -> f64 {
        self.values[term as usize]
    }

    /// Whether a term has any value but its neutral one.
    #[must_use]
    pub fn is_set(&self, term: Term) -> bool {
        self.get(term).total_cmp(&term.neutral()).is_ne()
    }

    /// Whether no knob says anything.
    #[must_use]
    pub const fn is_neutral(&self) -> bool {
        self.is_neutral
    }

    /// Terms that are not neutral, in order.
    pub fn set_terms(&self) -> impl Iterator<Item = (Term, f64)> + '_ {
        Term::ALL
            .into_iter()
            .filter(|t| self.is_set(*t))
            .map(|t| (t, self.get(t)))
    }

    /// Adds one knob's contribution; one that is not finite says nothing.
    pub fn add(&mut self, term: Term, value: f64) {
        if !value.is_finite() {
            return;
        }
        let (min, max) = term.bounds();
        let slot = &mut self.values[term as usize];
        *slot = match term.rule() {
            Rule::Product => (*slot * value).clamp(min, max),
            Rule::Sum => (*slot + value).clamp(min, max),
            Rule::Least => slot.min(value),
            Rule::Most => slot.max(value),
            Rule::Alone => value,
        };
        self.is_neutral = self.set_terms().count() == 0;
    }
}

impl Default for ShapeEffects {
    fn default() -> Self {
        Self::NEUTRAL
    }
}

impl Serialize for ShapeEffects {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.set_terms().map(|(term, value)| (term.name(), value)))
    }
}

impl<'de> Deserialize<'de> for ShapeEffects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut effects = Self::NEUTRAL;
        for (name, value) in BTreeMap::<String, f64>::deserialize(deserializer)? {
            let term = Term::from_name(&name)
                .ok_or_else(|| serde::de::Error::custom(format!("unknown term {name:?}")))?;
            if !term.accepts(value) {
                let message = format!("{name} is {value}; it must be {}", term.range());
                return Err(serde::de::Error::custom(message));
            }
            effects.values[term as usize] = value;
        }
        effects.is_neutral = effects.set_terms().count() == 0;
        Ok(effects)
    }
}
