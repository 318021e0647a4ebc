//! One request to one endpoint, timed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::endpoints::Endpoint;
use super::sse::{Event, Events};

/// Time to make a connection on one network.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for a first token before a user has gone.
const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest wait between two tokens.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A pool of connections to engines.
pub(super) type HttpClient = Client<HttpConnector, Full<Bytes>>;

/// The pool.
pub(super) fn client() -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(20))
        .build(connector)
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureKind {
    /// No connection.
    Connect,
    /// The connection ended before the first token.
    NoAnswer,
    /// The connection ended in the middle of the answer.
    Cut,
    /// Status 4xx.
    Refused,
    /// Status 5xx.
    EngineError,
    /// No first token in time.
    FirstTokenTimeout,
    /// No further token in time.
    StallTimeout,
    /// Fewer tokens than asked for.
    Short,
    /// An error event, or bytes that are no event stream.
    Malformed,
    /// No endpoint is ready.
    NoEndpoint,
    /// Too many requests in flight; this process did not send it.
    NotSent,
}

impl FailureKind {
    /// The name in results.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::NoAnswer => "no_answer",
            Self::Cut => "cut",
            Self::Refused => "refused",
            Self::EngineError => "engine_error",
            Self::FirstTokenTimeout => "first_token_timeout",
            Self::StallTimeout => "stall_timeout",
            Self::Short => "short",
            Self::Malformed => "malformed",
            Self::NoEndpoint => "no_endpoint",
            Self::NotSent => "not_sent",
        }
    }

    /// True when the engine cannot have answered any of it, so that one more try is fair.
    pub(super) const fn is_unanswered(self) -> bool {
        matches!(self, Self::Connect | Self::NoAnswer)
    }
}

/// What the stopwatch saw of one try.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Timing {
    /// Send to first token.
    pub(super) ttft: Option<Duration>,
    /// First to last token over one less than the tokens; absent for one token.
    pub(super) tpot: Option<Duration>,
    /// Tokens generated.
    pub(super) tokens: u64,
    /// What went wrong, if anything.
    pub(super) failure: Option<FailureKind>,
}

impl Timing {
    /// A try that failed before any token.
    pub(super) const fn failed(kind: FailureKind) -> Self {
        Self {
            ttft: None,
            tpot: None,
            tokens: 0,
            failure: Some(kind),
        }
    }
}

struct Watch {
    sent: Instant,
    first: Option<Instant>,
    last: Option<Instant>,
    n_events: u64,
    usage: Option<u64>,
    done: bool,
    broken: bool,
}

impl Watch {
    fn see(&mut self, event: Event, now: Instant) {
        match event {
            Event::Tokens => {
                self.first.get_or_insert(now);
                self.last = Some(now);
                self.n_events += 1;
            }
            Event::Usage(tokens) => self.usage = Some(tokens),
            Event::Done => self.done = true,
            Event::Broken => self.broken = true,
        }
    }

    fn timing(&self, wanted: u32, failure: Option<FailureKind>) -> Timing {
        // Engines may put several tokens into one event; their own count is exact.
        let tokens = self.usage.unwrap_or(self.n_events);
        let short = (tokens < u64::from(wanted)).then_some(FailureKind::Short);
        let span = self.first.zip(self.last).map(|(first, last)| last - first);
        let gaps = u32::try_from(tokens.saturating_sub(1)).unwrap_or(u32::MAX);
        let failure = failure.or(short);
        Timing {
            ttft: self.first.map(|first| first - self.sent),
            tpot: span
                .filter(|_| gaps > 0 && failure.is_none())
                .map(|span| span / gaps),
            tokens,
            failure,
        }
    }
}

/// Sends one request and times its answer.
pub(super) async fn send(
    client: &HttpClient,
    endpoint: &Endpoint,
    body: Bytes,
    wanted: u32,
) -> Timing {
    let sent = Instant::now();
    let uri = format!(
        "http://{}/v1/completions",
        std::net::SocketAddr::new(endpoint.address, endpoint.port)
    );
    let request = Request::post(uri)
        .header("content-type", "application/json")
        .body(Full::new(body));
    let Ok(request) = request else {
        return Timing::failed(FailureKind::Malformed);
    };
    let response = match tokio::time::timeout(FIRST_TOKEN_TIMEOUT, client.request(request)).await {
        Err(_) => return Timing::failed(FailureKind::FirstTokenTimeout),
        Ok(Err(e)) if e.is_connect() => return Timing::failed(FailureKind::Connect),
        Ok(Err(_)) => return Timing::failed(FailureKind::NoAnswer),
        Ok(Ok(response)) => response,
    };
    match response.status().as_u16() {
        200 => read(response, sent, wanted).await,
        400..=499 => Timing::failed(FailureKind::Refused),
        _ => Timing::failed(FailureKind::EngineError),
    }
}

async fn read(response: Response<Incoming>, sent: Instant, wanted: u32) -> Timing {
    let mut body = response.into_body();
    let mut events = Events::default();
    let mut watch = Watch {
        sent,
        first: None,
        last: None,
        n_events: 0,
        usage: None,
        done: false,
        broken: false,
    };
    loop {
        let limit = match watch.first {
            None => FIRST_TOKEN_TIMEOUT.saturating_sub(sent.elapsed()),
            Some(_) => STALL_TIMEOUT,
        };
        let started = watch.first.is_some();
        let failure = match tokio::time::timeout(limit, body.frame()).await {
            Err(_) if started => FailureKind::StallTimeout,
            Err(_) => FailureKind::FirstTokenTimeout,
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    let now = Instant::now();
                    events.feed(data, |event| watch.see(event, now));
                }
                // On to the end of the body even after [DONE]: only then is the connection reused.
                if !watch.broken {
                    continue;
                }
                FailureKind::Malformed
            }
            Ok(None) if watch.done => return watch.timing(wanted, None),
            Ok(Some(Err(_)) | None) if started => FailureKind::Cut,
            Ok(Some(Err(_)) | None) => FailureKind::NoAnswer,
        };
        return watch.timing(wanted, Some(failure));
    }
}
