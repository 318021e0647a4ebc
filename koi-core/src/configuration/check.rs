//! From a draft to a [`Configuration`]: all refusals at once, each with the fix.
//!
//! Only what one row says is checked here; arithmetic across variables (does tp divide the heads,
//! do the weights fit) belongs to the model facts, the surrogate and the plan check.

use std::collections::BTreeMap;

use super::{Configuration, ConfigurationDraft};
use crate::catalog::{Catalog, Condition, Feature, SetBy, Status, Value};
use crate::violation::{FieldViolation, Violations};

/// Most entries that a draft may have; a catalog has fewer planner-set rows than this.
const MAX_DRAFT_ENTRIES: usize = 256;

impl Catalog {
    /// Checks a draft and fills in defaults.
    ///
    /// # Errors
    /// Everything wrong at once: unknown names (with the nearest valid one), names given twice
    /// through aliases, variables that are not the planner's or cannot be set yet, values out of
    /// their domain, and variables that do not apply to this engine or beside these values.
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
        for (id, default) in self.defaults() {
            if !values.contains_key(id) {
                values.insert(id.clone(), default.clone());
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

    /// Variables that a configuration sets away from their defaults although they do not apply in a
    /// context: conditions on the model, the job, the place and the traffic. A condition on a
    /// variable that `context` does not know is left open.
    #[must_use]
    pub fn inapplicable(
        &self,
        configuration: &Configuration,
        context: &dyn Fn(&str) -> Option<Value>,
    ) -> Vec<FieldViolation> {
        let mut problems = Violations::default();
        for (id, set) in configuration.iter() {
            let Some(row) = self.feature(id).filter(|r| r.default.as_ref() != Some(set)) else {
                continue;
            };
            for condition in &row.applies {
                let Some(about) = self.feature(&condition.feature) else {
                    continue;
                };
                let value = context(&condition.feature);
                let fails = value.as_ref().is_some_and(|v| !condition.holds(v));
                if about.set_by != SetBy::Planner && fails {
                    problems.add(id, needs(condition, value.as_ref()));
                }
            }
        }
        problems.into_vec()
    }

    /// What a variable is in a configuration: its value, or what the engine does by itself where
    /// the catalog knows that.
    #[must_use]
    pub fn effective<'a>(
        &'a self,
        configuration: &'a Configuration,
        name: &str,
    ) -> Option<&'a Value> {
        let row = self.feature(name)?;
        configuration.get(&row.id).or(row.default.as_ref())
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
                Ok(value) if row.status != Status::Active => {
                    // Rows stored while it could be set hold its default; that says nothing.
                    if row.default.as_ref() != Some(&value) {
                        problems.add(shown, unavailable(row));
                    }
                }
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
        let engine = all.get("engine_name").map(ToString::to_string);
        for id in all.keys() {
            let Some(row) = self.feature(id) else {
                continue;
            };
            let refusal = self
                .failed_condition(row, &all)
                .map(|c| needs(c, self.standing(&c.feature, &all)))
                .or_else(|| self.unknown_to_engine(row, engine.as_deref()?));
            let Some(refusal) = refusal else {
                continue;
            };
            values.remove(id);
            if given.contains_key(id) {
                problems.add(id.clone(), refusal);
            }
        }
    }

    /// The first condition on the planner's own variables that does not hold; conditions on context
    /// wait for [`Self::inapplicable`].
    fn failed_condition<'a>(
        &self,
        row: &'a Feature,
        values: &BTreeMap<String, Value>,
    ) -> Option<&'a Condition> {
        row.applies.iter().find(|condition| {
            self.feature(&condition.feature).is_some_and(|about| {
                let value = self.standing(&about.id, values);
                about.set_by == SetBy::Planner && !condition.holds_for(value)
            })
        })
    }

    fn unknown_to_engine(&self, row: &Feature, engine: &str) -> Option<String> {
        (row.no_flag.is_none() && !self.speaks(engine, &row.id))
            .then(|| format!("does not apply: engine_name is {engine}, which has no such setting"))
    }

    /// The value that a variable has: given, filled in, or what the engine does by itself.
    fn standing<'a>(&'a self, id: &str, values: &'a BTreeMap<String, Value>) -> Option<&'a Value> {
        values
            .get(id)
            .or_else(|| self.feature(id)?.default.as_ref())
    }
}

fn unavailable(row: &Feature) -> String {
    let why = row.no_flag.as_deref().unwrap_or("no reason is known");
    format!("cannot be set ({}): {why}", row.status.name())
}

fn needs(condition: &Condition, value: Option<&Value>) -> String {
    let is = value.map_or_else(|| "is not set".to_owned(), |v| format!("is {v}"));
    format!(
        "does not apply: it needs {condition}, and {} {is}",
        condition.feature
    )
}
