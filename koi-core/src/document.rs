//! A text of YAML, JSON or TOML as one tree of values, before anybody asks it for fields.
//!
//! Generic over the format, whose parser the caller brings. Numbers that a value cannot hold stay in the
//! tree as something that [`crate::job::draft::reader`] refuses by name: one such number must not hide
//! what else is wrong with the text.

use std::fmt;

use serde::de::{Deserialize, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::job::draft::reader::quoted;
use crate::violation::FieldViolation;

/// The key under which the TOML parser hands out a date.
const TOML_DATE: &str = "$__toml_private_datetime";

/// One text's tree.
///
/// Integers beyond 64 bits become floats, which no whole field accepts; what is no number at all (`.nan`,
/// `.inf`) becomes a text, which no number accepts; dates without quotes become texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Document(pub Value);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Tree).map(Self)
    }
}

/// The tree of a TOML text.
///
/// # Errors
/// Where the syntax is wrong; it is then the only problem that can be told.
pub fn of_toml(text: &str) -> Result<Value, Vec<FieldViolation>> {
    match toml::from_str::<Document>(text) {
        Ok(Document(value)) => Ok(value),
        Err(error) => Err(vec![FieldViolation {
            field: String::new(),
            message: error.to_string(),
        }]),
    }
}

/// The start of a text that nobody bounded.
fn cut(text: &str) -> String {
    text.chars().take(48).collect()
}

struct Tree;

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let spelled = || match value {
            v if v.is_nan() => ".nan",
            v if v > 0.0 => ".inf",
            _ => "-.inf",
        };
        Ok(Number::from_f64(value).map_or_else(|| Value::from(spelled()), Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Document(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Document(key)) = entries.next_key()? {
            let Value::String(key) = key else {
                let shown = cut(&key.to_string());
                return Err(A::Error::custom(format!("keys must be texts, got {shown}")));
            };
            let Document(value) = entries.next_value()?;
            if key == TOML_DATE {
                return Ok(value);
            }
            if map.contains_key(&key) {
                let shown = quoted(&key);
                return Err(A::Error::custom(format!(
                    "duplicate entry with key {shown}; keep one"
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Value, A::Error> {
        let (Document(tag), _) = data.variant()?;
        let tag = cut(tag.as_str().unwrap_or_default());
        Err(A::Error::custom(format!(
            "tags such as !{tag} mean nothing here"
        )))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_any_size_stay_in_the_tree() {
        let text = "small = -3\nmost = 9223372036854775807\nwide = 99999999999999999999999\n\
                    deep = -99999999999999999999999\nhalf = 0.5\nnone = nan\nfar = -inf\n";
        let want = json!({
            "small": -3, "most": 9_223_372_036_854_775_807_u64, "wide": 1e23, "deep": -1e23,
            "half": 0.5, "none": ".nan", "far": "-.inf",
        });
        assert_eq!(of_toml(text).unwrap(), want);
    }

    #[test]
    fn dates_are_texts_and_tables_nest() {
        let text = "day = 2026-07-20\n[a]\nb = [true, { c = \"x\" }]\n";
        let want = json!({ "day": "2026-07-20", "a": { "b": [true, { "c": "x" }] } });
        assert_eq!(of_toml(text).unwrap(), want);
    }

    #[test]
    fn json_reads_the_same() {
        let Document(value) = serde_json::from_str(r#"{"a":[1,null,"x",1.5]}"#).unwrap();
        assert_eq!(value, json!({"a": [1, null, "x", 1.5]}));
        let twice = serde_json::from_str::<Document>(r#"{"a":1,"a":2}"#).unwrap_err();
        assert!(twice.to_string().contains("\"a\""), "{twice}");
    }

    #[test]
    fn wrong_syntax_is_one_problem_with_its_place() {
        let found = of_toml("a = [").unwrap_err();
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("line 1"), "{found:?}");
    }
}
