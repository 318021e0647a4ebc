//! Reads single fields of a config.json: bounds, sources and problems.
//!
//! Which fields a model needs is [`super::config_json`]'s business.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::violation::Violations;

/// Reads numbers, remembers where each came from and what was wrong.
pub(super) struct Reader<'a> {
    root: &'a Map<String, Value>,
    nested: Option<&'a Map<String, Value>>,
    pub(super) sources: BTreeMap<String, String>,
    pub(super) violations: Violations,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        root: &'a Map<String, Value>,
        nested: Option<&'a Map<String, Value>>,
    ) -> Self {
        Self {
            root,
            nested,
            sources: BTreeMap::new(),
            violations: Violations::default(),
        }
    }

    /// The value of a key, nested first, with its dotted path; `null` is absent.
    pub(super) fn find(&self, key: &str) -> Option<(String, &'a Value)> {
        let inner = self
            .nested
            .and_then(|map| map.get(key))
            .filter(|v| !v.is_null());
        if let Some(value) = inner {
            return Some((format!("text_config.{key}"), value));
        }
        self.root
            .get(key)
            .filter(|v| !v.is_null())
            .map(|value| (key.to_owned(), value))
    }

    pub(super) fn source(&mut self, fact: &str, from: impl Into<String>) {
        self.sources.insert(fact.to_owned(), from.into());
    }

    /// A whole number within bounds, or `None` when absent; out of range is a violation.
    pub(super) fn optional(
        &mut self,
        fact: &str,
        key: &str,
        (min, max): (u32, u32),
    ) -> Option<u32> {
        let (path, value) = self.find(key)?;
        let number = value.as_u64().and_then(|n| u32::try_from(n).ok());
        match number.filter(|n| (min..=max).contains(n)) {
            Some(n) => {
                self.source(fact, path);
                Some(n)
            }
            None => {
                self.violations
                    .add(path, format!("must be a whole number from {min} to {max}"));
                None
            }
        }
    }

    pub(super) fn required(&mut self, fact: &str, key: &str, max: u32) -> Option<u32> {
        if self.find(key).is_none() {
            self.violations.add(
                key,
                format!("missing; write a whole number from 1 to {max}"),
            );
            return None;
        }
        self.optional(fact, key, (1, max))
    }

    pub(super) fn flag(&mut self, fact: &str, key: &str) -> Option<bool> {
        let (path, value) = self.find(key)?;
        match value.as_bool() {
            Some(flag) => {
                self.source(fact, path);
                Some(flag)
            }
            None => {
                self.violations.add(path, "must be true or false");
                None
            }
        }
    }
}
