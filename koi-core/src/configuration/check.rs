//! From a draft to a [`Configuration`]: all refusals at once, each with the fix.
//!
//! Only what one row says is checked here; arithmetic across variables (does tp divide the heads,
//! do the weights fit) belongs to the model facts, the surrogate and the plan check.

use std::collections::BTreeMap;

use super::{Configuration, ConfigurationDraft};
use crate::catalog::{Catalog, Feature, SetBy, Value};
use crate::violation::{FieldViolation, Violations};

/// Most entries that a draft may have; a catalog has fewer planner-set rows than this.
const MAX_DRAFT_ENTRIES: usize = 256;

impl Catalog {
    /// Checks a draft and fills in defaults.
    ///
    /// # Errors
    /// Everything wrong at once: unknown names (with the nearest valid one), names given twice
    /// through aliases, variables that are not the planner's, values out of their domain, and
    /// variables that do not apply to this engine.
    pub fn configuration(
        &self,
        draft: ConfigurationDraft,
    ) -> Result<Configuration, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        if draft.0.len() > MAX_DRAFT_ENTRIES {
            problems.add(
                "",
                format!("{} entries; at most {MAX_DRAFT_ENTRIES}", draft.0.len()),
            );
            return Err(problems.into_vec());
        }
        let given = self.given_values(&draft, &mut problems);
        let mut values = given.clone();
        for row in self.features().filter(|row| row.set_by == SetBy::Planner) {
            if let (false, Some(default)) = (values.contains_key(&row.id), &row.default) {
                values.insert(row.id.clone(), default.clone());
            }
        }
        self.drop_inapplicable(&given, &mut values, &mut problems);
        problems.finish(Configuration(values))
    }

    /// Brings a stored configuration up to date with this catalog.
    ///
    /// # Errors
    /// As [`Self::configuration`].
    pub fn recheck(&self, stored: &Configuration) -> Result<Configuration, Vec<FieldViolation>> {
        self.configuration(stored.to_draft())
    }

    fn given_values(
        &self,
        draft: &ConfigurationDraft,
        problems: &mut Violations,
    ) -> BTreeMap<String, Value> {
        let mut given = BTreeMap::new();
        for (name, value) in &draft.0 {
            let shown: String = name.chars().take(80).collect();
            let Some(row) = self.feature(name) else {
                problems.add(shown, self.unknown(name));
                continue;
            };
            if row.set_by != SetBy::Planner {
                problems.add(
                    shown,
                    format!("is set by the {}, not by the planner", row.set_by.name()),
                );
                continue;
            }
            match row.domain.accept(value) {
                Err(message) => problems.add(shown, message),
                Ok(value) => {
                    if given.insert(row.id.clone(), value).is_some() {
                        problems.add(shown, format!("{} is given twice, under two names", row.id));
                    }
                }
            }
        }
        given
    }

    fn unknown(&self, name: &str) -> String {
        if self.kind_of(name).is_some() {
            return "is a mediator or an outcome; only X variables can be set".to_owned();
        }
        self.nearest_knob(name).map_or_else(
            || "is not a variable of the catalog".to_owned(),
            |near| format!("is not a variable of the catalog; did you mean {near}?"),
        )
    }

    /// A given variable that does not apply is refused; a defaulted one is left out.
    fn drop_inapplicable(
        &self,
        given: &BTreeMap<String, Value>,
        values: &mut BTreeMap<String, Value>,
        problems: &mut Violations,
    ) {
        let all = values.clone();
        let failed = |row: &Feature| {
            row.applies
                .iter()
                .find(|c| !all.get(&c.feature).is_some_and(|v| c.holds(v)))
                .cloned()
        };
        for row in self.features().filter(|row| all.contains_key(&row.id)) {
            let Some(condition) = failed(row) else {
                continue;
            };
            values.remove(&row.id);
            if given.contains_key(&row.id) {
                problems.add(
                    row.id.clone(),
                    format!(
                        "does not apply: it needs {} to be other than it is here",
                        condition.feature
                    ),
                );
            }
        }
    }
}
