//! `architectures` against `model_type`: engines build what the first names, the arithmetic here
//! follows the second.
//!
//! A class that nobody modelled, one that generates no text, or one of another model type is refused by
//! name. Spec §2.

use serde_json::{Map, Value};

use super::Architecture;
use super::json_text::shown;
use crate::violation::Violations;

/// What classes that generate text end in.
const HEADS: [&str; 5] = [
    "ForCausalLM",
    "ForConditionalGeneration",
    "LMHeadModel",
    "ChatModel",
    "Model",
];
/// Families of classes that are named otherwise than their model type.
const RENAMED: [(&str, &str); 3] = [
    ("decilm", "deci"),
    ("stablelmepoch", "stablelm"),
    ("rw", "falcon"),
];

/// Every class that does not fit, as a violation.
pub(super) fn check_classes(
    root: &Map<String, Value>,
    is_nested: bool,
    architecture: Architecture,
) -> Violations {
    let mut found = Violations::default();
    let classes = match root.get("architectures") {
        None | Some(Value::Null) => return found,
        Some(Value::Array(classes)) => classes,
        Some(_) => {
            found.add("architectures", "must be a list of class names");
            return found;
        }
    };
    for class in classes.iter().take(8) {
        let Some(class) = class.as_str() else {
            found.add("architectures", "must be a list of class names");
            continue;
        };
        if let Err(why) = check_class(class, root, is_nested, architecture) {
            found.add("architectures", why);
        }
    }
    found
}

fn check_class(
    class: &str,
    root: &Map<String, Value>,
    is_nested: bool,
    architecture: Architecture,
) -> Result<(), String> {
    let name = shown(class);
    let Some(family) = HEADS.into_iter().find_map(|head| class.strip_suffix(head)) else {
        return Err(format!("{name:?} is no class that generates text"));
    };
    let family = plain(family);
    let renamed = RENAMED.iter().find(|(from, _)| *from == family);
    let family = renamed.map_or(family.as_str(), |(_, to)| to);
    let stated = root.get("model_type").and_then(Value::as_str);
    let is_stated = stated.is_some_and(|t| plain(t) == family);
    if is_stated || is_of(architecture, family) {
        return Ok(());
    }
    let model_type = architecture.model_type();
    let other = Architecture::ALL.iter().find(|a| is_of(**a, family));
    match other {
        Some(other) => Err(format!(
            "{name:?} is a {} model, and model_type says {}; make them agree",
            other.model_type(),
            stated.map_or_else(|| model_type.to_owned(), shown)
        )),
        // A wrapper's class names the whole; its language model is what is counted.
        None if is_nested => Ok(()),
        None => Err(format!(
            "{name:?} is not modelled, whatever model_type says; {model_type} models have other classes"
        )),
    }
}

/// Whether an architecture goes by this name.
fn is_of(architecture: Architecture, family: &str) -> bool {
    let mut types = architecture.spec().model_types.iter();
    types.any(|t| {
        let t = plain(t);
        t == family || t.strip_suffix("text") == Some(family)
    })
}

/// Letters and digits, small.
fn plain(text: &str) -> String {
    let kept = text.chars().filter(char::is_ascii_alphanumeric);
    kept.map(|c| c.to_ascii_lowercase()).collect()
}
