//! Answers in the shapes of vLLM 0.32, whole and as server-sent events.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use koi_sim::engine::{FinishReason, TokenEvent};
use koi_sim::vocabulary::answer_word;
use serde_json::{Value, json};

use super::Server;
use super::request::{Asked, Kind};

const FINGERPRINT: &str = "vllm-0.32.0+sim";

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The answer to `/v1/models`.
pub(crate) fn model_list(server: &Server) -> String {
    let data: Vec<Value> = server
        .settings
        .served_model_names
        .iter()
        .map(|name| {
            json!({
                "id": name, "object": "model", "created": server.created_s, "owned_by": "vllm",
                "root": server.settings.model_dir, "parent": null,
                "max_model_len": server.facts.max_model_len,
                "permission": [{
                    "id": format!("modelperm-{:016x}", server.id_seed), "object": "model_permission",
                    "created": server.created_s, "allow_create_engine": false,
                    "allow_sampling": true, "allow_logprobs": true, "allow_search_indices": false,
                    "allow_view": true, "allow_fine_tuning": false, "organization": "*",
                    "group": null, "is_blocking": false,
                }],
            })
        })
        .collect();
    json!({"object": "list", "data": data}).to_string()
}

/// One answer under way.
pub(crate) struct Answer {
    kind: Kind,
    id: String,
    created_s: i64,
    model: String,
    prompt_tokens: u32,
    answer_seed: u64,
    include_usage: bool,
    cached_details: bool,
    completion_tokens: u32,
    cached_prompt_tokens: u32,
}

impl Answer {
    pub(crate) fn new(server: &Server, kind: Kind, asked: &Asked, created_s: i64) -> Self {
        let prefix = if kind == Kind::Completion {
            "cmpl"
        } else {
            "chatcmpl"
        };
        let mark = koi_sim::rng::scramble(server.id_seed ^ asked.answer_seed ^ created_s as u64);
        Self {
            kind,
            id: format!("{prefix}-{mark:016x}"),
            created_s,
            model: asked.model.clone(),
            prompt_tokens: asked.prompt_tokens,
            answer_seed: asked.answer_seed,
            include_usage: asked.include_usage,
            cached_details: server.settings.enable_prompt_tokens_details,
            completion_tokens: 0,
            cached_prompt_tokens: 0,
        }
    }

    /// Counts a token; its text.
    pub(crate) fn take(&mut self, event: &TokenEvent) -> String {
        self.completion_tokens = event.position + 1;
        self.cached_prompt_tokens = event.cached_prompt_tokens;
        let word = answer_word(self.answer_seed, event.position);
        if event.position == 0 {
            word
        } else {
            format!(" {word}")
        }
    }

    /// Appends the server-sent events of one token, up to the end of the stream with the last.
    pub(crate) fn push_events(&mut self, event: &TokenEvent, sse: &mut String) {
        let text = self.take(event);
        if event.position == 0 && self.kind == Kind::Chat {
            let role = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#;
            self.push_chunk(role, r#","prompt_token_ids":null,"prompt_text":null"#, sse);
        }
        let end = match event.finish {
            None => "null",
            Some(reason) => finish_json(reason),
        };
        // Words are plain letters: nothing to escape.
        let choice = match self.kind {
            Kind::Completion => format!(
                r#"{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{end},"stop_reason":null,"prompt_token_ids":null,"token_ids":null}}"#
            ),
            Kind::Chat => {
                let stop = if event.finish.is_some() {
                    r#","stop_reason":null"#
                } else {
                    ""
                };
                format!(
                    r#"{{"index":0,"delta":{{"content":"{text}"}},"logprobs":null,"finish_reason":{end}{stop},"token_ids":null}}"#
                )
            }
        };
        self.push_chunk(&choice, "", sse);
        if event.finish.is_some() {
            if self.include_usage {
                let usage = format!(
                    r#","usage":{},"system_fingerprint":"{FINGERPRINT}""#,
                    self.usage(false)
                );
                self.push_chunk("", &usage, sse);
            }
            sse.push_str("data: [DONE]\n\n");
        }
    }

    fn push_chunk(&self, choice: &str, rest: &str, sse: &mut String) {
        let object = match self.kind {
            Kind::Completion => "text_completion",
            Kind::Chat => "chat.completion.chunk",
        };
        let Self {
            id,
            created_s,
            model,
            ..
        } = self;
        let model = Value::from(model.as_str());
        sse.push_str(&format!(
            "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created_s},\"model\":{model},\"choices\":[{choice}]{rest}}}\n\n"
        ));
    }

    /// The whole answer.
    pub(crate) fn whole(&self, text: &str, reason: FinishReason) -> String {
        let finish = finish_word(reason);
        let (object, choice) = match self.kind {
            Kind::Completion => (
                "text_completion",
                json!({
                    "index": 0, "text": text, "logprobs": null, "finish_reason": finish,
                    "stop_reason": null, "token_ids": null, "prompt_logprobs": null,
                    "prompt_token_ids": null, "routed_experts": null,
                }),
            ),
            Kind::Chat => (
                "chat.completion",
                json!({
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": null, "tool_calls": []},
                    "logprobs": null, "finish_reason": finish, "stop_reason": null, "token_ids": null,
                }),
            ),
        };
        json!({
            "id": self.id, "object": object, "created": self.created_s, "model": self.model,
            "choices": [choice], "service_tier": null, "system_fingerprint": FINGERPRINT,
            "usage": self.usage(true), "kv_transfer_params": null,
        })
        .to_string()
    }

    fn usage(&self, with_nulls: bool) -> Value {
        let total = self.prompt_tokens + self.completion_tokens;
        let mut usage = json!({
            "prompt_tokens": self.prompt_tokens, "total_tokens": total,
            "completion_tokens": self.completion_tokens,
        });
        if self.cached_details {
            usage["prompt_tokens_details"] = json!({"cached_tokens": self.cached_prompt_tokens});
        } else if with_nulls {
            usage["prompt_tokens_details"] = Value::Null;
        }
        usage
    }
}

const fn finish_word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

const fn finish_json(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "\"stop\"",
        FinishReason::Length => "\"length\"",
    }
}
