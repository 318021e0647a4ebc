//! Problems of one input, reported together: each names the field and the fix.

use serde::{Deserialize, Serialize};

/// One problem of one field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldViolation {
    /// Dotted path of the field, e.g. `slo.p99_ttft_ms`.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Collects problems so that all of them are reported at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations(Vec<FieldViolation>);

impl Violations {
    /// Adds a problem.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldViolation {
            field: field.into(),
            message: message.into(),
        });
    }

    /// Adds all problems of another input under a prefix.
    pub fn extend(&mut self, prefix: &str, other: Vec<FieldViolation>) {
        self.0.extend(other.into_iter().map(|v| FieldViolation {
            field: if prefix.is_empty() {
                v.field
            } else if v.field.is_empty() {
                prefix.to_owned()
            } else {
                format!("{prefix}.{}", v.field)
            },
            message: v.message,
        }));
    }

    /// True when nothing is wrong so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value` when nothing is wrong.
    ///
    /// # Errors
    /// All collected problems otherwise.
    pub fn finish<T>(self, value: T) -> Result<T, Vec<FieldViolation>> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(self.0)
        }
    }

    /// The problems themselves.
    #[must_use]
    pub fn into_vec(self) -> Vec<FieldViolation> {
        self.0
    }
}

/// The valid name nearest to a wrong one, for "did you mean"; `None` when nothing is near.
#[must_use]
pub fn nearest<'a>(wrong: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong: String = wrong.chars().take(64).collect();
    valid
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&wrong, name), name))
        .filter(|(distance, name)| *distance <= 1 + name.len() / 3)
        .min()
        .map(|(_, name)| name)
}

/// The member that `text` names, or a problem with the nearest valid name.
pub(crate) fn choice<T: Copy>(
    field: &str,
    text: &str,
    valid: &[(&str, T)],
    bad: &mut Violations,
) -> Option<T> {
    let found = valid.iter().find(|(name, _)| *name == text);
    if found.is_none() {
        let names: Vec<&str> = valid.iter().map(|(name, _)| *name).collect();
        let hint = nearest(text, names.iter().copied());
        let hint = hint.map_or(String::new(), |name| format!("; did you mean {name}?"));
        let shown: String = text.chars().take(48).collect();
        bad.add(
            field,
            format!("must be one of {}, got {shown:?}{hint}", names.join(", ")),
        );
    }
    found.map(|(_, value)| *value)
}
