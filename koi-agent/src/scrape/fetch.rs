//! One HTTP request on a connection of its own, with a byte and a time limit over everything.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Bounds of one exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    /// Largest body in bytes.
    pub max_bytes: usize,
    /// Longest time from connecting to the last byte.
    pub total: Duration,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Body.
    pub body: Vec<u8>,
}

/// An exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Nobody listens, or the connection broke.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The other side does not speak HTTP, or broke off.
    #[error("the exchange broke: {0}")]
    Broken(String),
    /// The body is larger than allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// It took too long.
    #[error("no whole answer within {0:?}")]
    TooSlow(Duration),
    /// The body is compressed although nobody offered to read that.
    #[error("the answer is compressed")]
    Compressed,
    /// The status is not the expected one.
    #[error("status {0}")]
    Status(u16),
    /// The body is not UTF-8.
    #[error("the answer is not UTF-8 text")]
    NotText,
}

/// Sends one request and reads the whole answer.
///
/// # Errors
/// [`FetchError`]; the connection is closed in every case.
pub async fn fetch(
    address: SocketAddr,
    method: Method,
    path: &str,
    json: Option<String>,
    limits: FetchLimits,
) -> Result<Answer, FetchError> {
    let request = build(address, method, path, json)?;
    tokio::time::timeout(limits.total, exchange(address, request, limits.max_bytes))
        .await
        .unwrap_or(Err(FetchError::TooSlow(limits.total)))
}

fn build(
    address: SocketAddr,
    method: Method,
    path: &str,
    json: Option<String>,
) -> Result<Request<Full<Bytes>>, FetchError> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, address.to_string());
    if json.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request
        .body(Full::new(Bytes::from(json.unwrap_or_default())))
        .map_err(|error| FetchError::Broken(error.to_string()))
}

/// Ends a connection task with whoever waits for its answer.
struct EndWith(tokio::task::JoinHandle<()>);

impl Drop for EndWith {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange(
    address: SocketAddr,
    request: Request<Full<Bytes>>,
    max_bytes: usize,
) -> Result<Answer, FetchError> {
    let broken = |error: hyper::Error| FetchError::Broken(error.to_string());
    let stream = TcpStream::connect(address)
        .await
        .map_err(FetchError::Connect)?;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_headers(100)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    let _connection = EndWith(tokio::spawn(async move {
        // Its error reaches the waiting request as well.
        drop(connection.await);
    }));
    let response = sender.send_request(request).await.map_err(broken)?;
    read(response, max_bytes).await
}

async fn read(
    response: Response<hyper::body::Incoming>,
    max_bytes: usize,
) -> Result<Answer, FetchError> {
    let encoding = response.headers().get(CONTENT_ENCODING);
    if encoding.is_some_and(|value| value != "identity") {
        return Err(FetchError::Compressed);
    }
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), max_bytes)
        .collect()
        .await
        .map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                FetchError::TooLarge(max_bytes)
            } else {
                FetchError::Broken(error.to_string())
            }
        })?;
    Ok(Answer {
        status,
        body: body.to_bytes().to_vec(),
    })
}
