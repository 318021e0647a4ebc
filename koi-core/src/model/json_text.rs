//! The text of a config.json as one JSON object: bounded, and with Python's non-JSON numbers.
//!
//! Not what the fields mean: that is [`super::shape`]. Python's `json` module writes `NaN` and
//! `Infinity` bare; they become text here, so that a field that matters is refused by its value and
//! one that does not matter does no harm.

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
    let value: Result<Value, _> = match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(_) => serde_json::from_str(&quote_python_numbers(text)),
    };
    match value.map_err(|e| refuse(format!("{what} is not JSON: {e}")))? {
        Value::Object(root) => Ok(root),
        _ => Err(refuse(format!("{what} must be a JSON object"))),
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
    fn what_is_no_object_is_refused() {
        let message = |text: &str| parse_object("config.json", text).unwrap_err().message;
        assert!(message("[]").contains("object"));
        assert!(message("{\"a\": nan}").contains("not JSON"));
        assert!(message(&"[".repeat(100_000)).contains("not JSON"));
        assert!(message(&" ".repeat(MAX_CONFIG_BYTES + 1)).contains("bytes"));
    }
}
