//! The two generating handlers. A client that hangs up drops the handler or its stream, and with
//! it the running request, which cancels it in the engine.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use koi_sim::engine::TokenEvent;
use tokio_stream::Stream;

use super::errors::ApiError;
use super::reply::{self, Answer};
use super::request::{self, Kind};
use super::{InFlight, Server};
use crate::clock::wall_clock;
use crate::engine_client::Running;

/// `/v1/completions`.
pub(crate) async fn completions(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    generate(&server, Kind::Completion, body).await
}

/// `/v1/chat/completions`.
pub(crate) async fn chat(
    State(server): State<Arc<Server>>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    generate(&server, Kind::Chat, body).await
}

async fn generate(
    server: &Arc<Server>,
    kind: Kind,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let entered = server.enter()?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge,
        _ => ApiError::BadRequest("the body could not be read".to_owned()),
    })?;
    let asked = request::read(server, kind, &body)?;
    let created_s = wall_clock().0 / koi_core::time::MICROS_PER_SECOND;
    let mut answer = Answer::new(server, kind, &asked, created_s);
    let stream = asked.stream;
    let mut running = server
        .engine
        .submit(asked.request.into())
        .ok_or(ApiError::EngineDead)?;
    if stream {
        return Ok(event_stream(Streaming {
            running,
            answer,
            entered,
            ended: false,
        }));
    }
    let mut text = String::new();
    while let Some(event) = running.next().await {
        text.push_str(&answer.take(&event));
        if let Some(reason) = event.finish {
            return Ok(reply::json(StatusCode::OK, answer.whole(&text, reason)));
        }
    }
    drop(entered);
    Err(ApiError::EngineDead)
}

struct Streaming {
    running: Running,
    answer: Answer,
    /// Held until the stream is dropped.
    #[expect(dead_code, reason = "its drop counts the request as done")]
    entered: InFlight,
    ended: bool,
}

impl Streaming {
    /// Everything that is there after `first`. An engine that died ends the stream with an error
    /// event and without `[DONE]`.
    fn piece(&mut self, first: Option<TokenEvent>) -> Bytes {
        if first.is_none() {
            self.ended = true;
            return Bytes::from(format!("data: {}\n\n", ApiError::EngineDead.body()));
        }
        let mut sse = String::with_capacity(256);
        let mut next = first;
        while let Some(event) = next {
            self.answer.push_events(&event, &mut sse);
            self.ended |= event.finish.is_some();
            next = self.running.next_if_there();
        }
        Bytes::from(sse)
    }
}

impl Stream for Streaming {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.running
            .poll_next(context)
            .map(|first| Some(Ok(self.piece(first))))
    }
}

fn event_stream(streaming: Streaming) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (headers, Body::from_stream(streaming)).into_response()
}
