//! Reads typed fields out of a JSON mapping and collects what is wrong with them; job files, fleet
//! files and load settings are read with it.
//!
//! Not validation of values: a rate of −1 is a fine number here. Every text of the user that ends up
//! in a message is quoted, so control characters arrive escaped, and cut.

mod checked;

use serde_json::{Map, Value};

use crate::violation::{Violations, nearest};

/// Entries read from one list.
const MAX_LIST_ENTRIES: usize = 256;
/// Characters of the user's text repeated in a message.
const MAX_QUOTED_CHARS: usize = 48;

/// Unit suffixes of field names, so that `p99_ttft_s` finds `p99_ttft_ms`.
const UNITS: [&str; 16] = [
    "ms", "us", "s", "sec", "seconds", "min", "minutes", "hours", "hour", "days", "rps", "rpm",
    "qps", "tokens", "usd", "pct",
];

/// One mapping of the document, and the keys that were asked for.
pub struct Reader<'a> {
    map: Option<&'a Map<String, Value>>,
    path: String,
    known: Vec<&'static str>,
    /// Something else stands where the mapping should: nothing in it can be missed.
    is_broken: bool,
}

/// The user's text in quotes, cut and escaped.
#[must_use]
pub fn quoted(text: &str) -> String {
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

/// The whole number that a value is; one beyond 64 bits has come as a float, and fits nothing.
fn whole_of(value: &Value) -> Option<i128> {
    let whole = value.as_u64().map(i128::from);
    let far = |x: f64| match x {
        x if x >= u64::MAX as f64 => Some(i128::MAX),
        x if x <= i64::MIN as f64 => Some(i128::MIN),
        _ => None,
    };
    whole
        .or_else(|| value.as_i64().map(i128::from))
        .or_else(|| value.as_f64().and_then(far))
}

/// What is wrong with a number that `T` cannot hold, and the last one that it can.
fn beyond<T: TryFrom<i128>>(number: i128) -> String {
    let (lowest, highest) = (
        [i64::MIN, i64::from(i32::MIN)].map(i128::from),
        [
            u64::MAX,
            i64::MAX as u64,
            u32::MAX.into(),
            u16::MAX.into(),
            u8::MAX.into(),
        ]
        .map(i128::from),
    );
    let fits = |n: &i128| T::try_from(*n).is_ok();
    let (word, limit) = if number < 0 {
        ("too low; write at least", lowest.into_iter().find(fits))
    } else {
        ("too large; write at most", highest.into_iter().find(fits))
    };
    limit.map_or_else(|| "is too large".to_owned(), |n| format!("is {word} {n}"))
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
    pub fn new(value: Option<&'a Value>, path: &str, bad: &mut Violations) -> Self {
        let map = match value {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(other) => {
                bad.add(
                    path,
                    format!("must be a mapping of fields, got {}", kind(other)),
                );
                None
            }
        };
        Self {
            map,
            path: path.to_owned(),
            known: vec![],
            is_broken: map.is_none() && value.is_some_and(|v| !v.is_null()),
        }
    }

    fn at(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.map.and_then(|m| m.get(key)).filter(|v| !v.is_null())
    }

    /// A text.
    pub fn text(&mut self, key: &'static str, bad: &mut Violations) -> Option<String> {
        match self.take(key)? {
            Value::String(s) => Some(s.clone()),
            other => {
                bad.add(self.at(key), format!("must be a text, got {}", kind(other)));
                None
            }
        }
    }

    /// A truth value.
    pub fn flag(&mut self, key: &'static str, bad: &mut Violations) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(b) => Some(*b),
            other => {
                bad.add(
                    self.at(key),
                    format!("must be true or false, got {}", kind(other)),
                );
                None
            }
        }
    }

    /// A number; `.inf` and `.nan` of YAML arrive as null or text and are refused by name.
    pub fn number(&mut self, key: &'static str, bad: &mut Violations) -> Option<f64> {
        let value = self.take(key)?;
        if let Some(x) = value.as_f64() {
            return Some(x);
        }
        let unit = unit_of(key).map_or(String::new(), |u| format!(" in {u}, without a unit"));
        bad.add(
            self.at(key),
            format!("must be a number{unit}, got {}", kind(value)),
        );
        None
    }

    /// A whole number that fits `T`.
    pub fn whole<T: TryFrom<i128>>(
        &mut self,
        key: &'static str,
        bad: &mut Violations,
    ) -> Option<T> {
        let value = self.take(key)?;
        let wide = whole_of(value);
        let number = wide.and_then(|n| T::try_from(n).ok());
        if number.is_none() {
            let problem = match wide {
                Some(n) if n < 0 && T::try_from(-1).is_err() => "must not be negative".to_owned(),
                Some(n) => beyond::<T>(n),
                None => "must be a whole number".to_owned(),
            };
            bad.add(self.at(key), format!("{problem}, got {}", kind(value)));
        }
        number
    }

    /// A list of values, each read by its own reader.
    pub fn sections(&mut self, key: &'static str, bad: &mut Violations) -> Vec<Reader<'a>> {
        self.sections_up_to(MAX_LIST_ENTRIES, key, bad)
    }

    /// The same for lists of another length.
    pub fn sections_up_to(
        &mut self,
        max: usize,
        key: &'static str,
        bad: &mut Violations,
    ) -> Vec<Reader<'a>> {
        let Some(value) = self.take(key) else {
            return vec![];
        };
        let Value::Array(items) = value else {
            bad.add(self.at(key), format!("must be a list, got {}", kind(value)));
            return vec![];
        };
        if items.len() > max {
            bad.add(
                self.at(key),
                format!("has {} entries, at most {max}", items.len()),
            );
            return vec![];
        }
        let reader = |(i, item)| Reader::new(Some(item), &format!("{}[{i}]", self.at(key)), bad);
        items.iter().enumerate().map(reader).collect()
    }

    /// The names in a mapping with free keys, each with a reader of what is behind it.
    pub fn named_sections(
        &mut self,
        key: &'static str,
        bad: &mut Violations,
    ) -> Vec<(String, Reader<'a>)> {
        let Some(value) = self.take(key) else {
            return vec![];
        };
        let Value::Object(map) = value else {
            bad.add(
                self.at(key),
                format!("must be a mapping, got {}", kind(value)),
            );
            return vec![];
        };
        let path = self.at(key);
        let mut reader = |(name, item): (&String, &'a Value)| {
            let shown: String = name
                .chars()
                .take(MAX_QUOTED_CHARS)
                .flat_map(char::escape_debug)
                .collect();
            (
                name.clone(),
                Reader::new(Some(item), &format!("{path}.{shown}"), bad),
            )
        };
        map.iter().take(MAX_LIST_ENTRIES).map(&mut reader).collect()
    }

    /// Dotted path of a field of this mapping, for problems found later.
    #[must_use]
    pub fn field(&self, key: &str) -> String {
        self.at(key)
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str, bad: &mut Violations) -> Vec<String> {
        let Some(value) = self.take(key) else {
            return vec![];
        };
        let Value::Array(items) = value else {
            bad.add(
                self.at(key),
                format!("must be a list of texts, got {}", kind(value)),
            );
            return vec![];
        };
        if items.len() > MAX_LIST_ENTRIES {
            bad.add(
                self.at(key),
                format!("has {} entries, at most {MAX_LIST_ENTRIES}", items.len()),
            );
            return vec![];
        }
        let mut texts = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item {
                Value::String(s) => texts.push(s.clone()),
                other => bad.add(
                    format!("{}[{i}]", self.at(key)),
                    format!("must be a text, got {}", kind(other)),
                ),
            }
        }
        texts
    }

    /// A mapping from names to numbers; the names are checked by the validator.
    pub fn numbers(&mut self, key: &'static str, bad: &mut Violations) -> Vec<(String, f64)> {
        let Some(value) = self.take(key) else {
            return vec![];
        };
        let Value::Object(map) = value else {
            bad.add(
                self.at(key),
                format!(
                    "must be a mapping from outcome to number, got {}",
                    kind(value)
                ),
            );
            return vec![];
        };
        if map.len() > MAX_LIST_ENTRIES {
            bad.add(
                self.at(key),
                format!("has {} entries, at most {MAX_LIST_ENTRIES}", map.len()),
            );
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
    #[must_use]
    pub fn section(&mut self, key: &'static str, bad: &mut Violations) -> Reader<'a> {
        let value = self.take(key);
        Reader::new(value, &self.at(key), bad)
    }

    /// A raw value, for fields with more than one form.
    pub fn raw(&mut self, key: &'static str) -> Option<&'a Value> {
        self.take(key)
    }

    /// Reports every key that nobody asked for, with the nearest valid one.
    pub fn finish(self, bad: &mut Violations) {
        let Some(map) = self.map else { return };
        for key in map.keys().filter(|k| !self.known.contains(&k.as_str())) {
            let shown: String = key
                .chars()
                .take(MAX_QUOTED_CHARS)
                .flat_map(char::escape_debug)
                .collect();
            bad.add(self.at(&shown), self.unknown(key));
        }
    }

    fn unknown(&self, key: &str) -> String {
        let same_stem = self
            .known
            .iter()
            .find(|k| **k != key && stem(k) == stem(key));
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

#[cfg(test)]
mod tests;
