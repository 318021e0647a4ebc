//! From a request body to what the engine is asked: every problem of a body at once.

use koi_sim::prompt::TokenChain;
use koi_sim::vocabulary::{natural_length, piece_token, tokenize};
use serde::Deserialize;
use serde_json::Value;

use super::Server;
use super::errors::ApiError;
use crate::engine_client::NewRequest;

/// Which of the two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `/v1/completions`.
    Completion,
    /// `/v1/chat/completions`.
    Chat,
}

/// Fields that are read; others are accepted and ignored, as the real server does.
#[derive(Debug, Default, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Value>,
    messages: Option<Vec<Value>>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<i64>,
    n: Option<i64>,
    seed: Option<i64>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// A request that can be run.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) prompt_tokens: u32,
    pub(crate) answer_seed: u64,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) request: RequestParts,
}

/// The engine's part.
#[derive(Debug)]
pub(crate) struct RequestParts {
    chain: TokenChain,
    max_tokens: u32,
    natural_end: Option<u32>,
    answer_seed: u64,
}

impl From<RequestParts> for NewRequest {
    fn from(parts: RequestParts) -> Self {
        Self {
            prompt: parts.chain,
            max_tokens: parts.max_tokens,
            natural_end: parts.natural_end,
            answer_seed: parts.answer_seed,
        }
    }
}

/// Reads a body.
pub(crate) fn read(server: &Server, kind: Kind, bytes: &[u8]) -> Result<Asked, ApiError> {
    let body: Body = serde_json::from_slice(bytes)
        .map_err(|error| ApiError::BadRequest(format!("the body is not valid: {error}")))?;
    let model = body
        .model
        .clone()
        .unwrap_or_else(|| server.settings.served_model_names[0].clone());
    if !server.serves(&model) {
        return Err(ApiError::NoModel(model.chars().take(200).collect()));
    }
    let mut problems = Vec::new();
    let tokens = match kind {
        Kind::Completion => prompt_tokens(body.prompt.as_ref(), &mut problems),
        Kind::Chat => message_tokens(body.messages.as_deref(), &mut problems),
    };
    if body.n.is_some_and(|n| n != 1) {
        problems.push("n must be 1: the simulated engine gives one answer".to_owned());
    }
    let prompt_tokens = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    let max_tokens = max_tokens(server, kind, &body, prompt_tokens, &mut problems);
    if !problems.is_empty() {
        return Err(ApiError::BadRequest(problems.join("; ")));
    }
    let chain = TokenChain::of_tokens(&tokens, server.settings.block_size);
    let answer_seed = chain.state() ^ body.seed.unwrap_or(0) as u64;
    let least = u32::try_from(body.min_tokens.unwrap_or(0)).unwrap_or(0);
    let runs_on = body.ignore_eos.unwrap_or(false);
    let natural_end = (!runs_on).then(|| natural_length(answer_seed).max(least));
    Ok(Asked {
        model,
        prompt_tokens,
        answer_seed,
        stream: body.stream.unwrap_or(false),
        include_usage: body
            .stream_options
            .and_then(|o| o.include_usage)
            .unwrap_or(false),
        request: RequestParts {
            chain,
            max_tokens,
            natural_end,
            answer_seed,
        },
    })
}

fn max_tokens(
    server: &Server,
    kind: Kind,
    body: &Body,
    prompt_tokens: u32,
    problems: &mut Vec<String>,
) -> u32 {
    let longest = server.facts.max_model_len;
    let room = longest.saturating_sub(prompt_tokens);
    if room == 0 {
        problems.push(format!(
            "This model's maximum context length is {longest} tokens. However, your request has {prompt_tokens} input tokens. Please reduce the length of the input messages."
        ));
        return 1;
    }
    let default = if kind == Kind::Completion {
        16.min(i64::from(room))
    } else {
        i64::from(room)
    };
    let asked = body
        .max_completion_tokens
        .or(body.max_tokens)
        .unwrap_or(default);
    if asked < 1 {
        problems.push(format!("max_tokens must be at least 1, got {asked}."));
    } else if asked > i64::from(room) {
        problems.push(format!(
            "'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is {longest} tokens and your request has {prompt_tokens} input tokens."
        ));
    }
    let least = body.min_tokens.unwrap_or(0);
    if least < 0 || least > asked {
        problems.push(format!(
            "min_tokens must be in [0, max_tokens={asked}], got {least}."
        ));
    }
    asked.clamp(1, i64::from(room)) as u32
}

/// A text, token ids, or a list with exactly one of either.
fn prompt_tokens(prompt: Option<&Value>, problems: &mut Vec<String>) -> Vec<u32> {
    let tokens = match prompt {
        Some(Value::String(text)) => Some(tokenize(text)),
        Some(Value::Array(items)) => match items.as_slice() {
            [Value::String(text)] => Some(tokenize(text)),
            [Value::Array(ids)] => token_ids(ids),
            ids => token_ids(ids),
        },
        _ => None,
    };
    match tokens {
        Some(tokens) if !tokens.is_empty() => tokens,
        Some(_) => {
            problems.push("prompt must not be empty".to_owned());
            Vec::new()
        }
        None => {
            problems.push("prompt must be one text or one list of token ids".to_owned());
            Vec::new()
        }
    }
}

fn token_ids(items: &[Value]) -> Option<Vec<u32>> {
    items
        .iter()
        .map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

/// The tokens of a conversation: a mark before and after each message, and one for the answer.
/// A conversation that goes on starts with the tokens of the one before, answer included.
fn message_tokens(messages: Option<&[Value]>, problems: &mut Vec<String>) -> Vec<u32> {
    let Some(messages) = messages.filter(|messages| !messages.is_empty()) else {
        problems.push("messages must be a list of at least one message".to_owned());
        return Vec::new();
    };
    let mut tokens = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message.get("role").and_then(Value::as_str);
        let text = content_text(message.get("content"));
        let (Some(role), Some(text)) = (role, text) else {
            problems.push(format!(
                "messages[{index}] must have a role and text content"
            ));
            continue;
        };
        tokens.push(piece_token(format!("<|role {role}|>").as_bytes()));
        tokens.extend(tokenize(&text));
        tokens.push(piece_token(b"<|end|>"));
    }
    tokens.push(piece_token(b"<|role assistant|>"));
    tokens
}

fn content_text(content: Option<&Value>) -> Option<String> {
    match content {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| part.get("text").and_then(Value::as_str))
            .collect::<Option<Vec<_>>>()
            .map(|texts| texts.join(" ")),
        Some(Value::Null) | None => Some(String::new()),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_prompt(prompt: Value, expected: Option<usize>) {
        let mut problems = Vec::new();
        let tokens = prompt_tokens(Some(&prompt), &mut problems);
        assert_eq!(
            problems.is_empty().then_some(tokens.len()),
            expected,
            "{prompt}"
        );
    }

    #[test]
    fn prompts_in_all_forms() {
        check_prompt(json!("three small words"), Some(3));
        check_prompt(json!(["two words"]), Some(2));
        check_prompt(json!([1, 2, 3, 4]), Some(4));
        check_prompt(json!([[1, 2]]), Some(2));
        for bad in [
            json!([]),
            json!(""),
            json!(7),
            json!(["a", "b"]),
            json!([-1]),
            json!([1.5]),
        ] {
            check_prompt(bad, None);
        }
    }

    #[test]
    fn a_longer_conversation_starts_with_the_shorter_one() {
        let mut problems = Vec::new();
        let ask = json!({"role": "user", "content": "who is there"});
        let first = message_tokens(Some(std::slice::from_ref(&ask)), &mut problems);
        let answer = json!({"role": "assistant", "content": [{"type": "text", "text": "no one"}]});
        let second = message_tokens(Some(&[ask, answer]), &mut problems);
        assert_eq!(second[..first.len()], first);
        assert_eq!((problems.len(), second.len()), (0, first.len() + 4));
        message_tokens(Some(&[json!({"content": 3}), json!(1)]), &mut problems);
        message_tokens(None, &mut problems);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}
