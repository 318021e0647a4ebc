//! Reads single fields of a config.json: bounds, sources, named defaults and problems.
//!
//! Which fields a model needs is [`super::shape`]'s business.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::json_text::shown;
use super::spec::{Bias, Keys};
use crate::violation::{FieldViolation, Violations};

/// A config of a language model inside a wrapper's config.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nested<'a> {
    /// Dotted path of the inner object.
    pub(super) path: &'static str,
    /// The inner object.
    pub(super) map: &'a Map<String, Value>,
}

/// Reads numbers, remembers where each came from and what was wrong.
pub(super) struct Reader<'a> {
    root: &'a Map<String, Value>,
    nested: Option<Nested<'a>>,
    /// Config class whose defaults may stand in, by name.
    class: &'static str,
    pub(super) sources: BTreeMap<String, String>,
    pub(super) notes: Vec<FieldViolation>,
    pub(super) violations: Violations,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        root: &'a Map<String, Value>,
        nested: Option<Nested<'a>>,
        class: &'static str,
    ) -> Self {
        Self {
            root,
            nested,
            class,
            sources: BTreeMap::new(),
            notes: vec![],
            violations: Violations::default(),
        }
    }

    pub(super) const fn is_nested(&self) -> bool {
        self.nested.is_some()
    }

    /// The value of a key, nested first, with its dotted path; `null` is absent.
    pub(super) fn find(&self, key: &str) -> Option<(String, &'a Value)> {
        let inner = self
            .nested
            .and_then(|n| Some((format!("{}.{key}", n.path), n.map.get(key)?)));
        let outer = || Some((key.to_owned(), self.root.get(key)?));
        inner
            .filter(|(_, value)| !value.is_null())
            .or_else(outer)
            .filter(|(_, value)| !value.is_null())
    }

    /// The first of these keys that has a value.
    pub(super) fn find_any(&self, keys: Keys) -> Option<(String, &'a Value)> {
        keys.iter().find_map(|key| self.find(key))
    }

    /// Whether one of the keys is there with the value `null`: said to be nothing.
    pub(super) fn is_null(&self, keys: Keys) -> bool {
        let null = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(Value::is_null);
        keys.iter()
            .any(|key| null(self.root, key) || self.nested.is_some_and(|n| null(n.map, key)))
    }

    pub(super) fn source(&mut self, fact: &str, from: impl Into<String>) {
        self.sources.insert(fact.to_owned(), from.into());
    }

    /// Notes something that a reader of the facts should know and that is no error.
    pub(super) fn note(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.notes.push(FieldViolation {
            field: field.into(),
            message: message.into(),
        });
    }

    /// Records that a class default stands in for an absent field, and says so.
    pub(super) fn default_used(&mut self, fact: &str, key: &str, value: impl std::fmt::Display) {
        let class = self.class;
        self.source(fact, format!("default of {class} ({key} is absent)"));
        self.note(key, format!("absent; {value} is the default of {class}"));
    }

    /// A whole number within bounds, or `None` when absent; out of range is a violation, and so
    /// are two names of one number that disagree.
    pub(super) fn optional(
        &mut self,
        fact: &str,
        keys: Keys,
        (min, max): (u32, u32),
    ) -> Option<u32> {
        let mut first: Option<(String, u32)> = None;
        for key in keys {
            let Some((path, value)) = self.find(key) else {
                continue;
            };
            let Some(n) = whole_number(value).filter(|n| (min..=max).contains(n)) else {
                let got = shown(&value.to_string());
                self.violations.add(
                    path,
                    format!("must be a whole number from {min} to {max}, is {got}"),
                );
                return None;
            };
            match &first {
                None => first = Some((path, n)),
                Some((other, m)) if *m != n => {
                    let message = format!("is {n}, but {other} is {m}; make them agree");
                    self.violations.add(path, message);
                    return None;
                }
                Some(_) => {}
            }
        }
        let (path, n) = first?;
        self.source(fact, path);
        Some(n)
    }

    /// A number that must be there.
    pub(super) fn required(&mut self, fact: &str, keys: Keys, max: u32) -> Option<u32> {
        if self.find_any(keys).is_none() {
            self.missing(keys, format!("a whole number from 1 to {max}"));
            return None;
        }
        self.optional(fact, keys, (1, max))
    }

    /// A number with a class default, which is named when it is used.
    pub(super) fn or_default(
        &mut self,
        fact: &str,
        keys: Keys,
        bounds: (u32, u32),
        default: u32,
    ) -> Option<u32> {
        if self.find_any(keys).is_some() {
            return self.optional(fact, keys, bounds);
        }
        self.default_used(fact, keys.first().copied().unwrap_or_default(), default);
        Some(default)
    }

    /// Reports a missing field with what to write.
    pub(super) fn missing(&mut self, keys: Keys, what: String) {
        let key = keys.first().copied().unwrap_or_default();
        let field = match self.nested {
            Some(n) => format!("{}.{key}", n.path),
            None => key.to_owned(),
        };
        self.violations.add(field, format!("missing; write {what}"));
    }

    /// A flag, or the class's default.
    pub(super) fn flag_or(&mut self, fact: &str, keys: Keys, default: bool) -> bool {
        let class = self.class;
        let Some((path, value)) = self.find_any(keys) else {
            let key = keys.first().copied().unwrap_or_default();
            self.source(
                fact,
                format!("{default}, default of {class} ({key} is absent)"),
            );
            return default;
        };
        match value.as_bool() {
            Some(flag) => {
                self.source(fact, path);
                flag
            }
            None => {
                self.violations.add(path, "must be true or false");
                default
            }
        }
    }

    /// Whether a projection has a bias.
    pub(super) fn bias(&mut self, fact: &str, bias: Bias) -> bool {
        match bias {
            Bias::Never => false,
            Bias::Always => true,
            Bias::Flag(keys, default) => self.flag_or(fact, keys, default),
        }
    }

    /// A list of whole numbers below a bound; anything else is a violation.
    pub(super) fn numbers(&mut self, keys: Keys, max_len: usize, max: u32) -> Option<Vec<u32>> {
        let (path, value) = self.find_any(keys)?;
        let list = value
            .as_array()
            .filter(|list| list.len() <= max_len)
            .and_then(|list| {
                let numbers = list.iter().map(|v| whole_number(v).filter(|n| *n <= max));
                numbers.collect::<Option<Vec<u32>>>()
            });
        if list.is_none() {
            self.violations.add(
                path,
                format!("must be a list of at most {max_len} whole numbers up to {max}"),
            );
        }
        list
    }
}

/// A JSON number that is whole and fits 32 bits.
pub(super) fn whole_number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}
