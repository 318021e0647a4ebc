//! The text of a config.json as one JSON object: bounded, and with Python's non-JSON numbers.
//!
//! Not what the fields mean: that is [`super::shape`]. Python's `json` module writes `NaN` and
//! `Infinity` bare; they become text here, so that a field that matters is refused by its value and
//! one that does not matter does no harm.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::violation::FieldViolation;

/// Largest config.json that is read; real ones are below 64 KiB.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// The object in the text.
///
/// # Errors
/// One violation without a field: too large, not JSON (nesting beyond 127 included), not an object.
pub(super) fn parse_object(what: &str, text: &str) -> Result<Map<String, Value>, FieldViolation> {
    let refuse = |message: String| FieldViolation {
        field: String::new(),
        message,
    };
    if text.len() > MAX_CONFIG_BYTES {
        return Err(refuse(format!(
            "{what} is {} bytes; at most {MAX_CONFIG_BYTES} are read",
            text.len()
        )));
    }
    // Editors of one system begin files with a mark of their encoding.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value = match Unique::read(text) {
        Ok(value) => Ok(value),
        Err(_) => Unique::read(&quote_python_numbers(text)),
    };
    match value.map_err(|e| refuse(format!("{what} is not JSON: {e}")))? {
        Value::Object(root) => Ok(root),
        _ => Err(refuse(format!("{what} must be a JSON object"))),
    }
}

/// A value in which no object has a key twice: readers disagree on which one counts.
struct Unique(Value);

impl Unique {
    fn read(text: &str) -> serde_json::Result<Value> {
        serde_json::from_str(text).map(|Self(value)| value)
    }
}

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Unique(value) = entries.next_value()?;
            if map.contains_key(&key) {
                let message = format!("the key {:?} stands twice in one object", shown(&key));
                return Err(serde::de::Error::custom(message));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// The text with bare `NaN`, `Infinity` and `-Infinity` in quotes; strings are left alone.
fn quote_python_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"]
            .into_iter()
            .find(|word| !in_string && rest.starts_with(word));
        if let Some(word) = word {
            out.push('"');
            out.push_str(word);
            out.push('"');
            rest = &rest[word.len()..];
            continue;
        }
        if in_string && c == '\\' {
            // An escape and what it escapes go over together.
            let end = rest.chars().take(2).map(char::len_utf8).sum();
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        in_string ^= c == '"';
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Text of foreign origin, cut for a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_numbers_become_text_and_strings_stay() {
        let text = r#"{"a": [0.0, Infinity], "b": NaN, "c": "NaN \" Infinity", "d": -Infinity}"#;
        let object = parse_object("x", text).unwrap();
        assert_eq!(object["a"][1], "Infinity");
        assert_eq!(object["b"], "NaN");
        assert_eq!(object["c"], "NaN \" Infinity");
        assert_eq!(object["d"], "-Infinity");
    }

    #[test]
    fn a_key_that_stands_twice_is_named_and_a_mark_of_the_encoding_is_not_text() {
        let twice = parse_object("x", r#"{"a": {"b": 1, "c": 2, "b": 3}}"#).unwrap_err();
        assert!(twice.message.contains("\"b\" stands twice"), "{twice:?}");
        let marked = parse_object("x", "\u{feff}{\"a\": [1, -2, 0.5, null, true]}").unwrap();
        assert_eq!(
            Value::Object(marked)["a"],
            serde_json::json!([1, -2, 0.5, null, true])
        );
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let message = |text: &str| parse_object("config.json", text).unwrap_err().message;
        assert!(message("[]").contains("object"));
        assert!(message("{\"a\": nan}").contains("not JSON"));
        assert!(message(&"[".repeat(100_000)).contains("not JSON"));
        assert!(message(&" ".repeat(MAX_CONFIG_BYTES + 1)).contains("bytes"));
    }
}
