//! Is a replica ready, and does it still make progress? A real token decides, not `/health`.

pub mod progress;

use std::net::SocketAddr;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;

use crate::scrape::fetch::{FetchError, FetchLimits, fetch};

/// Bounds of the list of models.
const MODELS_LIMITS: FetchLimits = FetchLimits {
    max_bytes: 1 << 20,
    total: Duration::from_secs(5),
};
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Why a replica is not ready.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It does not answer, or not in time.
    #[error(transparent)]
    Exchange(#[from] FetchError),
    /// It serves something else: a foreign or an old process on our port.
    #[error("it serves {found:?} and not {wanted:?}")]
    WrongModel {
        /// The served model name that was launched.
        wanted: String,
        /// What it says.
        found: Vec<String>,
    },
    /// It answers, but not with a token.
    #[error("it gave no token: {0}")]
    NoToken(String),
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ModelEntry>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: String,
}

#[derive(Deserialize)]
struct Completion {
    model: String,
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: Option<u64>,
}

/// Asks for the served models and then for one real token.
///
/// # Errors
/// [`ProbeError`] when either answer is not the expected one within `limit`.
pub async fn probe_token(
    address: SocketAddr,
    served_model_name: &str,
    limit: Duration,
) -> Result<(), ProbeError> {
    let probe = async {
        check_models(address, served_model_name).await?;
        check_token(address, served_model_name, limit).await
    };
    tokio::time::timeout(limit, probe)
        .await
        .unwrap_or(Err(ProbeError::Exchange(FetchError::TooSlow(limit))))
}

async fn check_models(address: SocketAddr, wanted: &str) -> Result<(), ProbeError> {
    let answer = fetch(address, Method::GET, "/v1/models", None, MODELS_LIMITS).await?;
    if answer.status != 200 {
        return Err(FetchError::Status(answer.status).into());
    }
    let list: ModelList = serde_json::from_slice(&answer.body)
        .map_err(|error| FetchError::Broken(error.to_string()))?;
    if list.data.iter().any(|model| model.id == wanted) {
        return Ok(());
    }
    let found = list
        .data
        .into_iter()
        .take(8)
        .map(|m| m.id.chars().take(128).collect())
        .collect();
    Err(ProbeError::WrongModel {
        wanted: wanted.to_owned(),
        found,
    })
}

async fn check_token(address: SocketAddr, wanted: &str, total: Duration) -> Result<(), ProbeError> {
    let request = serde_json::json!({
        "model": wanted, "prompt": "a", "max_tokens": 1, "temperature": 0.0, "stream": false,
    });
    let limits = FetchLimits {
        max_bytes: MAX_ANSWER_BYTES,
        total,
    };
    let json = Some(request.to_string());
    let answer = fetch(address, Method::POST, "/v1/completions", json, limits).await?;
    if answer.status != 200 {
        return Err(FetchError::Status(answer.status).into());
    }
    let completion: Completion = serde_json::from_slice(&answer.body)
        .map_err(|error| ProbeError::NoToken(error.to_string()))?;
    if completion.model != wanted {
        let found = vec![completion.model.chars().take(128).collect()];
        return Err(ProbeError::WrongModel {
            wanted: wanted.to_owned(),
            found,
        });
    }
    let finished = completion
        .choices
        .first()
        .is_some_and(|c| c.finish_reason.is_some());
    let n_tokens = completion.usage.and_then(|u| u.completion_tokens);
    match (finished, n_tokens) {
        (true, Some(1..)) => Ok(()),
        (false, _) => Err(ProbeError::NoToken("no finished choice".to_owned())),
        (true, n) => Err(ProbeError::NoToken(format!("completion_tokens is {n:?}"))),
    }
}

#[cfg(test)]
mod tests;
