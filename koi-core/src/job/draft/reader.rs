//! Reads typed fields out of a JSON mapping and collects what is wrong with them.
//!
//! Not validation of values: a rate of −1 is a fine number here. Every text of the user that ends up
//! in a message is quoted, so control characters arrive escaped, and cut.

use serde_json::{Map, Value};

use crate::violation::{Violations, nearest};

/// Entries read from one list.
const MAX_LIST_ENTRIES: usize = 256;
/// Characters of the user's text repeated in a message.
const MAX_QUOTED_CHARS: usize = 48;

/// Unit suffixes of field names, so that `p99_ttft_s` finds `p99_ttft_ms`.
const UNITS: [&str; 16] = [
    "ms", "us", "s", "sec", "seconds", "min", "minutes", "hours", "hour", "days", "rps", "rpm", "qps",
    "tokens", "usd", "pct",
];

/// One mapping of the document, and the keys that were asked for.
pub(super) struct Reader<'a> {
    map: Option<&'a Map<String, Value>>,
    path: String,
    known: Vec<&'static str>,
}

/// The user's text in quotes, cut and escaped.
pub(super) fn quoted(text: &str) -> String {
    let cut: String = text.chars().take(MAX_QUOTED_CHARS).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{dots}")
}

/// What kind of thing a value is, in the user's words.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(b) => format!("{b}"),
        Value::Number(n) => format!("the number {n}"),
        Value::String(s) => format!("the text {}", quoted(s)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

/// The unit that a field name ends in, for messages.
fn unit_of(key: &str) -> Option<&'static str> {
    let last = key.rsplit('_').next()?;
    match last {
        "ms" => Some("milliseconds"),
        "us" => Some("microseconds since the Unix epoch"),
        "hours" => Some("hours"),
        "hour" => Some("USD per hour"),
        "rps" => Some("requests per second"),
        "tokens" => Some("tokens"),
        _ => None,
    }
}

fn stem(key: &str) -> &str {
    match key.rsplit_once('_') {
        Some((stem, unit)) if UNITS.contains(&unit) => stem,
        _ => key,
    }
}

impl<'a> Reader<'a> {
    /// A reader of `value` at `path`; anything but a mapping is a problem, absence is not.
    pub(super) fn new(value: Option<&'a Value>, path: &str, bad: &mut Violations) -> Self {
        let map = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => {
                bad.add(path, format!("must be a mapping of fields, got {}", kind(other)));
                None
            }
        };
        Self { map, path: path.to_owned(), known: vec![] }
    }

    fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.map.and_then(|m| m.get(key)).filter(|v| !v.is_null())
    }

    /// A text.
    pub(super) fn text(&mut self, key: &'static str, bad: &mut Violations) -> Option<String> {
        match self.take(key)? {
            Value::String(s) => Some(s.clone()),
            other => {
                bad.add(self.at(key), format!("must be a text, got {}", kind(other)));
                None
            }
        }
    }

    /// A truth value.
    pub(super) fn flag(&mut self, key: &'static str, bad: &mut Violations) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(b) => Some(*b),
            other => {
                bad.add(self.at(key), format!("must be true or false, got {}", kind(other)));
                None
            }
        }
    }

    /// A number; `.inf` and `.nan` of YAML arrive as null or text and are refused by name.
    pub(super) fn number(&mut self, key: &'static str, bad: &mut Violations) -> Option<f64> {
        let value = self.take(key)?;
        if let Some(x) = value.as_f64() {
            return Some(x);
        }
        let unit = unit_of(key).map_or(String::new(), |u| format!(" in {u}, without a unit"));
        bad.add(self.at(key), format!("must be a number{unit}, got {}", kind(value)));
        None
    }

    /// A whole number that fits `T`.
    pub(super) fn whole<T: TryFrom<i128>>(&mut self, key: &'static str, bad: &mut Violations) -> Option<T> {
        let value = self.take(key)?;
        let wide = value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from));
        let number = wide.and_then(|n| T::try_from(n).ok());
        if number.is_none() {
            let problem = match wide {
                Some(n) if n < 0 => "must not be negative".to_owned(),
                Some(_) => "is too large".to_owned(),
                None => "must be a whole number".to_owned(),
            };
            bad.add(self.at(key), format!("{problem}, got {}", kind(value)));
        }
        number
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, key: &'static str, bad: &mut Violations) -> Vec<String> {
        let Some(value) = self.take(key) else { return vec![] };
        let Value::Array(items) = value else {
            bad.add(self.at(key), format!("must be a list of texts, got {}", kind(value)));
            return vec![];
        };
        if items.len() > MAX_LIST_ENTRIES {
            bad.add(self.at(key), format!("has {} entries, at most {MAX_LIST_ENTRIES}", items.len()));
            return vec![];
        }
        let mut texts = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item {
                Value::String(s) => texts.push(s.clone()),
                other => bad.add(format!("{}[{i}]", self.at(key)), format!("must be a text, got {}", kind(other))),
            }
        }
        texts
    }

    /// A mapping from names to numbers; the names are checked by the validator.
    pub(super) fn numbers(&mut self, key: &'static str, bad: &mut Violations) -> Vec<(String, f64)> {
        let Some(value) = self.take(key) else { return vec![] };
        let Value::Object(map) = value else {
            bad.add(self.at(key), format!("must be a mapping from outcome to number, got {}", kind(value)));
            return vec![];
        };
        if map.len() > MAX_LIST_ENTRIES {
            bad.add(self.at(key), format!("has {} entries, at most {MAX_LIST_ENTRIES}", map.len()));
            return vec![];
        }
        let mut numbers = Vec::with_capacity(map.len());
        for (name, value) in map {
            match value.as_f64() {
                Some(x) => numbers.push((name.clone(), x)),
                None => {
                    let field = format!("{}.{}", self.at(key), quoted(name).trim_matches('"'));
                    bad.add(field, format!("must be a number, got {}", kind(value)));
                }
            }
        }
        numbers
    }

    /// A nested mapping.
    pub(super) fn section(&mut self, key: &'static str, bad: &mut Violations) -> Reader<'a> {
        let value = self.take(key);
        Reader::new(value, &self.at(key), bad)
    }

    /// A raw value, for fields with more than one form.
    pub(super) fn raw(&mut self, key: &'static str) -> Option<&'a Value> {
        self.take(key)
    }

    /// Reports every key that nobody asked for, with the nearest valid one.
    pub(super) fn finish(self, bad: &mut Violations) {
        let Some(map) = self.map else { return };
        for key in map.keys().filter(|k| !self.known.contains(&k.as_str())) {
            let shown: String = key.chars().take(MAX_QUOTED_CHARS).flat_map(char::escape_debug).collect();
            bad.add(self.at(&shown), self.unknown(key));
        }
    }

    fn unknown(&self, key: &str) -> String {
        let same_stem = self.known.iter().find(|k| **k != key && stem(k) == stem(key));
        if let Some(right) = same_stem {
            let unit = unit_of(right).map_or(String::new(), |u| format!(", in {u}"));
            return format!("unknown key; write {right}{unit}");
        }
        match nearest(key, self.known.iter().copied()) {
            Some(right) => format!("unknown key; did you mean {right}?"),
            None => format!("unknown key; valid keys are {}", self.known.join(", ")),
        }
    }
}
