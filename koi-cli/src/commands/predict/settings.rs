//! `--set NAME=VALUE`: settings of the engine beside the main options, and what they move.
//!
//! Names, domains and conditions are the catalog's; what a setting does is the surrogate's. A setting
//! that the prediction does not follow is said to be so, never passed over.

use std::collections::BTreeMap;

use koi_core::catalog::{Catalog, Domain, Value};
use koi_core::configuration::{Configuration, ConfigurationDraft, EngineShape};
use koi_core::model::ModelFacts;
use koi_core::surrogate::measured_row::Question;
use koi_core::surrogate::{Answer, Prediction};
use koi_core::variables::Mediator;
use koi_core::violation::Violations;
use serde::Serialize;

use crate::failure::Failure;

/// Most settings of one call.
const MAX_SETTINGS: usize = 256;
/// Settings that have an option of their own, with that option.
const OWN_OPTIONS: [(&str, &str); 6] = [
    ("tp", "--tp"),
    ("pp", "--pp"),
    ("ep", "--expert-parallel"),
    ("weight_dtype", "--weight-dtype"),
    ("kvcache_dtype", "--kv-dtype"),
    ("engine_name", "--engine"),
];
/// Smallest relative difference that is a move.
const LEAST_MOVE: f64 = 1e-9;

/// Checked settings.
pub(super) struct Settings {
    set: BTreeMap<String, Value>,
    configuration: Configuration,
}

/// What settings do.
#[derive(Debug, Serialize)]
pub(super) struct SettingReport {
    /// Each with the terms that the prediction reads from it.
    pub(super) set: Vec<Followed>,
    /// Mediators that all of them together move.
    pub(super) moved: Vec<Moved>,
    /// Whether the same without them would run.
    pub(super) runs_without: bool,
}

/// One setting and how the prediction follows it.
#[derive(Debug, Serialize)]
pub(super) struct Followed {
    pub(super) name: String,
    pub(super) value: Value,
    /// Terms with what their magnitude rests on; `by itself` for a main setting; nothing when the
    /// prediction does not follow it.
    pub(super) through: Vec<String>,
}

/// One mediator before and after.
#[derive(Debug, Serialize)]
pub(super) struct Moved {
    pub(super) mediator: Mediator,
    pub(super) without: Option<f64>,
    pub(super) with: Option<f64>,
}

impl Settings {
    /// Reads and checks the options; all problems together.
    pub(super) fn parse(
        options: &[String],
        engine: &str,
        question: &Question,
    ) -> Result<Self, Failure> {
        let catalog = Catalog::embedded();
        let mut problems = Violations::default();
        if options.len() > MAX_SETTINGS {
            problems.add("--set", format!("at most {MAX_SETTINGS} settings"));
        }
        let mut draft = BTreeMap::new();
        for option in options.iter().take(MAX_SETTINGS) {
            let Some((name, text)) = option.split_once('=') else {
                problems.add("--set", format!("{option:?} is not NAME=VALUE"));
                continue;
            };
            let name = catalog.canonical(name.trim()).unwrap_or(name.trim());
            if let Some((_, own)) = OWN_OPTIONS.iter().find(|(id, _)| *id == name) {
                problems.add(name, format!("has an option of its own: {own}"));
                continue;
            }
            let value = value_of(catalog, name, text.trim());
            if draft.insert(name.to_owned(), value).is_some() {
                problems.add(name, "is set twice");
            }
        }
        let set = draft.clone();
        // Conditions look at the split and at the format of the cache.
        let shape = &question.shape;
        draft.insert(
            "engine_name".to_owned(),
            engine.replace('-', "_").as_str().into(),
        );
        draft.insert("tp".to_owned(), shape.tp.into());
        draft.insert("pp".to_owned(), shape.pp.into());
        draft.insert("ep".to_owned(), shape.ep.into());
        draft.insert("kvcache_dtype".to_owned(), shape.kv_dtype.name().into());
        if set.is_empty() {
            // The split may be beyond the catalog's; without settings nobody asks.
            draft.clear();
        }
        let checked = match catalog.configuration(ConfigurationDraft(draft)) {
            Ok(configuration) => {
                let context = |id: &str| of_model(&question.model, id);
                problems.extend("", catalog.inapplicable(&configuration, &context));
                let settings = Self { set, configuration };
                problems.finish(settings)
            }
            Err(found) => {
                problems.extend("", found);
                Err(problems.into_vec())
            }
        };
        checked.map_err(|found| Failure::invalid("--set", found))
    }

    /// The question's view under these settings.
    pub(super) fn shape(&self, question: &Question) -> EngineShape {
        let shape = self.configuration.shape();
        question.shape.under(&shape, |id| self.set.contains_key(id))
    }

    /// What they do; `None` when there are none.
    pub(super) fn report(&self, plain: &Answer, with: &Prediction) -> Option<SettingReport> {
        if self.set.is_empty() {
            return None;
        }
        let without = match plain {
            Answer::Prediction(plain) => Some(plain),
            Answer::DoesNotFit(_) | Answer::Unsupported(_) => None,
        };
        Some(SettingReport {
            set: self
                .set
                .iter()
                .map(|(name, value)| followed(name, value))
                .collect(),
            moved: without.map_or_else(Vec::new, |without| moved(without, with)),
            runs_without: without.is_some(),
        })
    }
}

/// The value in the type of the setting's domain; what is malformed stays a text, which the domain
/// then refuses.
fn value_of(catalog: &Catalog, name: &str, text: &str) -> Value {
    let domain = catalog.feature(name).map(|row| &row.domain);
    let parsed = match domain {
        Some(Domain::Bool) => text.parse().ok().map(Value::Bool),
        Some(Domain::Int { .. } | Domain::IntChoice(_)) => text.parse().ok().map(Value::Int),
        Some(Domain::Float { .. }) => text.parse().ok().map(Value::Float),
        Some(Domain::Choice(_) | Domain::Text { .. }) | None => None,
    };
    parsed.unwrap_or_else(|| text.into())
}

/// What the model says of variables that conditions look at.
fn of_model(model: &ModelFacts, id: &str) -> Option<Value> {
    let value = match id {
        "is_moe" => model.moe.is_some(),
        "has_recurrent_layers" => model.kinds.iter().any(|kind| kind.state_bytes > 0),
        _ => return None,
    };
    Some(Value::Bool(value))
}

fn followed(name: &str, value: &Value) -> Followed {
    let effects = Catalog::embedded().effects_of(name);
    let mut through: Vec<String> = effects
        .iter()
        .filter(|effect| effect.contribution(value).is_some())
        .map(|effect| format!("{} ({})", effect.term.name(), effect.basis.name()))
        .collect();
    if effects.is_empty() && EngineShape::MAIN_SETTINGS.contains(&name) {
        through.push("by itself".to_owned());
    }
    Followed {
        name: name.to_owned(),
        value: value.clone(),
        through,
    }
}

fn moved(without: &Prediction, with: &Prediction) -> Vec<Moved> {
    let differs = |m: &Moved| match (m.without, m.with) {
        (Some(a), Some(b)) => (a - b).abs() > LEAST_MOVE * a.abs().max(b.abs()),
        (None, None) => false,
        _ => true,
    };
    Mediator::ALL
        .into_iter()
        .map(|mediator| Moved {
            mediator,
            without: without.mediators.get(mediator),
            with: with.mediators.get(mediator),
        })
        .filter(differs)
        .collect()
}

#[cfg(test)]
mod tests;
