//! Lists of module names in quantization configs: plain names, globs and simple regular expressions.
//!
//! Not a regular-expression engine: `.`, `.*`, `.+`, `\d+`, escapes and alternatives in brackets are
//! understood, anything else is refused. Plain names match whole dotted components.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::model::json_text::shown;

/// Most patterns that are not bound to one layer.
const MAX_GENERAL: usize = 128;
/// Most alternatives that one pattern may expand to.
const MAX_ALTERNATIVES: usize = 64;

/// A compiled list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Patterns {
    /// Dotted names below one layer.
    by_layer: BTreeMap<u32, Vec<String>>,
    /// Dotted names in any layer, or at the top.
    plain: Vec<String>,
    /// Wild patterns over whole names: `*` stands for any text.
    wild: Vec<Wild>,
}

/// A wild pattern; an open end may be followed by anything.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wild {
    glob: String,
    open_end: bool,
}

impl Patterns {
    /// Adds a JSON list of patterns, or one pattern.
    ///
    /// # Errors
    /// What is wrong with the list or with a pattern of it.
    pub(super) fn add_list(&mut self, list: &Value) -> Result<(), String> {
        if let Some(one) = list.as_str() {
            return self.add(one);
        }
        let Some(list) = list.as_array() else {
            return Err("must be a list of module names".to_owned());
        };
        for entry in list {
            match entry.as_str() {
                Some(pattern) => self.add(pattern)?,
                None => return Err("must hold text only".to_owned()),
            }
        }
        Ok(())
    }

    fn add(&mut self, pattern: &str) -> Result<(), String> {
        if let Some(regex) = pattern.strip_prefix("re:") {
            let globs = globs_of_regex(regex)
                .ok_or_else(|| format!("the expression {:?} is not understood", shown(regex)))?;
            for (glob, open_end) in globs {
                self.wild.push(Wild { glob, open_end });
            }
        } else if let Some((layer, name)) = split_layer(pattern) {
            self.by_layer
                .entry(layer)
                .or_default()
                .push(name.to_owned());
        } else if pattern.contains('*') {
            let (glob, open_end) = (pattern.to_owned(), false);
            self.wild.push(Wild { glob, open_end });
        } else {
            self.plain.push(pattern.to_owned());
        }
        if self.plain.len() + self.wild.len() > MAX_GENERAL {
            return Err(format!(
                "has more than {MAX_GENERAL} patterns that name no layer"
            ));
        }
        Ok(())
    }

    /// Whether the list tells layers apart.
    pub(super) fn has_layers(&self) -> bool {
        !self.by_layer.is_empty() || !self.wild.is_empty()
    }

    /// Whether a module below a layer is listed, by its own name or by one above it.
    pub(super) fn matches(&self, layer: u32, name: &str) -> bool {
        let is_it =
            |p: &String| is_component_run(name, p) || (p.contains('*') && glob_or_above(p, name));
        let here = self.by_layer.get(&layer);
        if here.is_some_and(|list| list.iter().any(is_it)) {
            return true;
        }
        if self.plain.iter().any(|p| is_component_run(name, p)) {
            return true;
        }
        let full = |prefix: &str| format!("{prefix}layers.{layer}.{name}");
        !self.wild.is_empty()
            && ["model.", "language_model.model.", "model.language_model."]
                .into_iter()
                .any(|prefix| self.wild_matches(&full(prefix)))
    }

    /// Whether a module outside the layers is listed.
    pub(super) fn matches_top(&self, name: &str) -> bool {
        self.plain.iter().any(|p| is_component_run(p, name)) || self.wild_matches(name)
    }

    fn wild_matches(&self, name: &str) -> bool {
        let hit = |wild: &Wild| {
            glob_or_above(&wild.glob, name)
                || (wild.open_end && glob_matches(&format!("{}*", wild.glob), name))
        };
        self.wild.iter().any(hit)
    }
}

/// Whether a glob matches a name or one above it.
fn glob_or_above(glob: &str, name: &str) -> bool {
    glob_matches(glob, name) || glob_matches(&format!("{glob}.*"), name)
}

/// The layer number and the name below it, for names such as `model.layers.7.mlp.gate`.
fn split_layer(pattern: &str) -> Option<(u32, &str)> {
    let at = [".layers.", ".h.", ".blocks."]
        .into_iter()
        .find_map(|mark| pattern.find(mark).map(|i| i + mark.len()))?;
    let (number, name) = pattern[at..].split_once('.')?;
    Some((number.parse().ok()?, name))
}

/// Whether `part`'s dotted components stand in a row in `name`.
fn is_component_run(name: &str, part: &str) -> bool {
    let name: Vec<&str> = name.split('.').collect();
    let part: Vec<&str> = part.split('.').collect();
    name.windows(part.len()).any(|run| run == part)
}

/// Glob match with `*` for any text, iterative, linear in memory.
fn glob_matches(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                star = Some((g, n));
                g += 1;
            }
            // A full stop of an expression and of a name look alike; both match.
            Some(c) if *c == name[n] || *c == b'?' => {
                g += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    g = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|c| *c == b'*')
}

/// The globs of a regular expression, or `None` when it is beyond this reader. The second of each
/// pair says that the expression matches a beginning only.
fn globs_of_regex(regex: &str) -> Option<Vec<(String, bool)>> {
    let (body, open_end) = match regex.strip_suffix('$') {
        Some(body) => (body, false),
        None => (regex, true),
    };
    let body = body.strip_prefix('^').unwrap_or(body);
    let mut globs = vec![String::new()];
    let mut rest = body;
    while let Some(c) = rest.chars().next() {
        let (choices, used): (Vec<&str>, usize) = match c {
            '.' if rest.starts_with(".*") || rest.starts_with(".+") => (vec!["*"], 2),
            '.' => (vec!["?"], 1),
            '\\' if rest.starts_with("\\d+") => (vec!["*"], 3),
            '\\' if rest.starts_with("\\.") => (vec!["."], 2),
            '(' => {
                let end = rest.find(')')?;
                let inner = rest.get(1..end)?;
                let inner = inner.strip_prefix("?:").unwrap_or(inner);
                (inner.split('|').collect(), end + 1)
            }
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => (vec![rest.get(..1)?], 1),
            _ => return None,
        };
        let is_plain = |t: &&str| {
            t.bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'*' | b'?'))
        };
        if !choices.iter().all(is_plain) {
            return None;
        }
        globs = globs
            .iter()
            .flat_map(|glob| choices.iter().map(move |t| format!("{glob}{t}")))
            .collect();
        if globs.len() > MAX_ALTERNATIVES {
            return None;
        }
        rest = rest.get(used..)?;
    }
    Some(globs.into_iter().map(|glob| (glob, open_end)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(list: &[&str]) -> Patterns {
        let mut patterns = Patterns::default();
        patterns.add_list(&serde_json::json!(list)).unwrap();
        patterns
    }

    #[test]
    fn names_match_whole_components() {
        let list = patterns(&["gate", "model.layers.3.self_attn", "lm_head"]);
        assert!(list.matches(0, "mlp.gate"));
        assert!(!list.matches(0, "mlp.gate_proj"));
        assert!(list.matches(3, "self_attn.q_proj"));
        assert!(!list.matches(4, "self_attn.q_proj"));
        assert!(list.matches_top("lm_head"));
    }

    #[test]
    fn globs_and_expressions_match() {
        let list = patterns(&[
            "model.layers.*.self_attn",
            "re:.*mlp\\.gate$",
            "re:.*(k|v)_proj",
        ]);
        assert!(list.matches(7, "self_attn.q_proj"));
        assert!(list.matches(7, "mlp.gate"));
        assert!(!list.matches(7, "mlp.gate_proj"));
        assert!(list.matches(1, "attn.k_proj"));
        assert!(!list.matches(1, "mlp.up_proj"));
        let list = patterns(&["model.layers.5.self_attn*"]);
        assert!(list.matches(5, "self_attn.q_proj") && !list.matches(6, "self_attn.q_proj"));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let mut list = Patterns::default();
        let bad = list.add_list(&serde_json::json!(["re:[a-z]{3}"]));
        assert!(bad.unwrap_err().contains("[a-z]"));
        assert!(list.add_list(&serde_json::json!({"a": 1})).is_err());
        let long: Vec<String> = (0..1_000).map(|i| format!("m{i}")).collect();
        assert!(list.add_list(&serde_json::json!(long)).is_err());
    }
}
