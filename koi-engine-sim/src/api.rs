//! The HTTP API of `vllm serve`, as far as a load generator, an agent and a gateway use it.

mod errors;
mod generate;
mod reply;
mod request;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::sync::Notify;

use crate::arguments::ServeSettings;
use crate::clock::wall_clock;
use crate::engine_client::EngineClient;
use crate::frame::ReadyFacts;
use crate::http_stats::{Answered, HttpStats};
use crate::metrics_page::{PageInput, render};
use errors::ApiError;

/// Longest body that is read: a prompt of a million token ids fits.
const MAX_BODY_BYTES: usize = 8 << 20;
/// Routes whose requests appear in the HTTP families; probes would drown them.
const COUNTED_ROUTES: [&str; 3] = ["/v1/models", "/v1/completions", "/v1/chat/completions"];

/// What every handler sees.
pub(crate) struct Server {
    pub(crate) settings: ServeSettings,
    pub(crate) facts: ReadyFacts,
    pub(crate) engine: EngineClient,
    created_s: i64,
    id_seed: u64,
    http: Mutex<HttpStats>,
    draining: AtomicBool,
    in_flight: AtomicUsize,
    emptied: Notify,
}

/// Counts a request as in flight for as long as it lives.
pub(crate) struct InFlight(Arc<Server>);

impl Server {
    pub(crate) fn new(settings: ServeSettings, facts: ReadyFacts, engine: EngineClient) -> Self {
        let now = wall_clock();
        Self {
            settings,
            facts,
            engine,
            created_s: now.0 / koi_core::time::MICROS_PER_SECOND,
            id_seed: koi_sim::rng::scramble(now.0 as u64 ^ u64::from(std::process::id())),
            http: Mutex::default(),
            draining: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            emptied: Notify::new(),
        }
    }

    /// Takes a request in, unless the server is ending.
    fn enter(self: &Arc<Self>) -> Result<InFlight, ApiError> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let entered = InFlight(Arc::clone(self));
        if self.draining.load(Ordering::SeqCst) {
            return Err(ApiError::Draining);
        }
        Ok(entered)
    }

    /// Refuses new requests from now on, and waits until none is left.
    pub(crate) async fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        loop {
            let emptied = self.emptied.notified();
            if self.in_flight.load(Ordering::SeqCst) == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn serves(&self, model: &str) -> bool {
        self.settings
            .served_model_names
            .iter()
            .any(|name| name == model)
    }

    fn is_up(&self) -> bool {
        self.engine.is_alive() && !self.draining.load(Ordering::SeqCst)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.emptied.notify_waiters();
        }
    }
}

/// The routes.
pub(crate) fn router(server: Arc<Server>) -> Router {
    let counted = Router::new()
        .route(COUNTED_ROUTES[0], get(models))
        .route(COUNTED_ROUTES[1], post(generate::completions))
        .route(COUNTED_ROUTES[2], post(generate::chat))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&server),
            check_key,
        ))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), count));
    Router::new()
        .merge(counted)
        .route("/health", get(health))
        .route("/ping", get(health).post(health))
        .route("/version", get(version))
        .route("/load", get(load))
        .route("/metrics", get(metrics))
        .fallback(async || ApiError::NoRoute)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(server)
}

async fn check_key(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes());
    match &server.settings.api_key {
        Some(key) if given != Some(format!("Bearer {key}").as_bytes()) => {
            ApiError::Unauthorized.into_response()
        }
        _ => next.run(request).await,
    }
}

async fn count(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let path = request.uri().path();
    let handler = COUNTED_ROUTES
        .into_iter()
        .find(|route| *route == path)
        .unwrap_or("none");
    let method = request.method().clone();
    let request_bytes = content_length(request.headers());
    let response = next.run(request).await;
    server
        .http
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .count(&Answered {
            handler,
            method: method.as_str(),
            status: response.status().as_u16(),
            request_bytes,
            response_bytes: content_length(response.headers()),
            seconds: began.elapsed().as_secs_f64(),
        });
    response
}

fn content_length(headers: &HeaderMap) -> u64 {
    let value = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    value.and_then(|text| text.parse().ok()).unwrap_or(0)
}

async fn health(State(server): State<Arc<Server>>) -> StatusCode {
    // Asking for the counters shows that the engine's loop still turns.
    let answer = async { server.engine.metrics().await };
    let turns = tokio::time::timeout(std::time::Duration::from_secs(5), answer).await;
    let is_healthy = server.is_up() && matches!(turns, Ok(Some(_)));
    if is_healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

async fn version() -> Response {
    reply::json(StatusCode::OK, r#"{"version":"0.32.0+sim"}"#.to_owned())
}

async fn load(State(server): State<Arc<Server>>) -> Response {
    let in_flight = server.in_flight.load(Ordering::SeqCst);
    reply::json(StatusCode::OK, format!("{{\"server_load\":{in_flight}}}"))
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    reply::json(StatusCode::OK, reply::model_list(&server))
}

async fn metrics(State(server): State<Arc<Server>>) -> Result<Response, ApiError> {
    let engine = server.engine.metrics().await.ok_or(ApiError::EngineDead)?;
    let http = server.http.lock().unwrap_or_else(PoisonError::into_inner);
    let text = render(&PageInput {
        settings: &server.settings,
        facts: &server.facts,
        engine: &engine,
        http: &http,
        created_s: server.created_s as f64,
    });
    let kind = "text/plain; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
