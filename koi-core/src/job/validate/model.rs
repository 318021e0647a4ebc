//! The model of a job: a name that can become neither a path nor an option, and facts read from its
//! config.json. Reliability K5, K6.

use super::super::JobModel;
use super::super::draft::{MAX_CONFIG_JSON_BYTES, ModelDraft};
use crate::model::ModelFacts;
use crate::violation::{FieldViolation, Violations};

/// Longest model id in bytes.
const MAX_MODEL_ID_BYTES: usize = 200;
/// Longest owner, name or revision in bytes.
const MAX_PART_BYTES: usize = 96;

pub(super) fn validate(draft: &ModelDraft, bad: &mut Violations) -> Option<JobModel> {
    let id = model_id(draft.id.as_deref(), bad);
    let config = config_json(draft.config_json.as_deref(), bad);
    let (facts, config_json) = config?;
    Some(JobModel {
        id: id?,
        facts,
        config_json,
    })
}

fn model_id(id: Option<&str>, bad: &mut Violations) -> Option<String> {
    let Some(id) = id else {
        bad.add(
            "model.id",
            "is required: owner/name, owner/name@revision or a registered alias",
        );
        return None;
    };
    match check_model_id(id) {
        Ok(()) => Some(id.to_owned()),
        Err(problem) => {
            let shown: String = id.chars().take(80).collect();
            bad.add(
                "model.id",
                format!(
                    "{problem}; write owner/name, owner/name@revision or an alias, got {shown:?}"
                ),
            );
            None
        }
    }
}

/// Checks `owner/name[@revision]` or an alias: ASCII letters, digits, '-', '_' and '.', every part
/// starting with a letter or digit.
///
/// # Errors
/// What is wrong, in words.
pub fn check_model_id(id: &str) -> Result<(), &'static str> {
    if id.is_empty() || id.len() > MAX_MODEL_ID_BYTES {
        return Err("must be 1 to 200 bytes long");
    }
    if id.contains("://") {
        return Err("is a URL");
    }
    if id.starts_with(['/', '\\', '~', '.']) {
        return Err("looks like a path");
    }
    if id.contains("..") {
        return Err("must not contain '..'");
    }
    let (path, revision) = match id.split_once('@') {
        Some((path, revision)) => (path, Some(revision)),
        None => (id, None),
    };
    let parts: Vec<&str> = path.split('/').collect();
    if parts.len() > 2 {
        return Err("has more than one '/'");
    }
    parts.into_iter().chain(revision).try_for_each(check_part)
}

fn check_part(part: &str) -> Result<(), &'static str> {
    if part.is_empty() || part.len() > MAX_PART_BYTES {
        return Err("has an empty part or one longer than 96 bytes");
    }
    if !part.as_bytes()[0].is_ascii_alphanumeric() {
        return Err("has a part that does not start with a letter or digit");
    }
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if part.bytes().all(plain) {
        Ok(())
    } else {
        Err("has a character other than letters, digits, '-', '_', '.'")
    }
}

fn config_json(text: Option<&str>, bad: &mut Violations) -> Option<(ModelFacts, String)> {
    let Some(text) = text else {
        bad.add(
            "model.config_json",
            "is required: the model's config.json (job files name it as model.config)",
        );
        return None;
    };
    if text.len() > MAX_CONFIG_JSON_BYTES {
        let kib = text.len() / 1024;
        bad.add(
            "model.config_json",
            format!("is {kib} KiB long, at most 256 KiB"),
        );
        return None;
    }
    match model_facts(text) {
        Ok(facts) => Some((facts, text.to_owned())),
        Err(problems) => {
            bad.extend("model.config_json", problems);
            None
        }
    }
}

fn model_facts(text: &str) -> Result<ModelFacts, Vec<FieldViolation>> {
    ModelFacts::from_config_json(text)
}
