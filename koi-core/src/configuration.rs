//! One point x of the decision space: what a replica's engine is told to do.
//!
//! Not a settings file. A draft is names and values that somebody offered; a [`Configuration`] is
//! checked, complete and canonical, and is made only by [`Catalog::configuration`]. White paper V1,
//! Appendix C, Decision Variables; layout-and-style 4.3.

mod check;
mod effects;
mod render;
mod shape;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use effects::{Rule, ShapeEffects, TERM_COUNT, Term};
pub use render::engine_args;
pub use shape::EngineShape;

use crate::catalog::Value;

/// Names and values as offered by a planner, a wire message or a person.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConfigurationDraft(pub BTreeMap<String, Value>);

/// A checked configuration: every planner-set variable under its id, defaults filled in.
///
/// It can be read back without a catalog only from rows that our own server wrote; what comes from
/// anywhere else is a [`ConfigurationDraft`]. `Catalog::recheck` brings an old row up to date.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Configuration(BTreeMap<String, Value>);

impl Configuration {
    /// The value of one variable, by id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Value> {
        self.0.get(id)
    }

    /// All variables in order of id.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(id, value)| (id.as_str(), value))
    }

    /// The same configuration as a draft, to change a few values and check again.
    #[must_use]
    pub fn to_draft(&self) -> ConfigurationDraft {
        ConfigurationDraft(self.0.clone())
    }
}
