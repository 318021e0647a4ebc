//! One streamed completion with a stopwatch.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Tokens of every prompt: the tiny model has one token per byte.
pub(super) const PROMPT_TOKENS: u32 = 120;
/// Tokens of every answer: the end of the text is ignored.
pub(super) const OUTPUT_TOKENS: u32 = 200;
/// Longest wait for a whole answer.
const LIMIT: Duration = Duration::from_secs(60);

/// What a stopwatch saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Streamed {
    /// From connecting to the first event with a choice.
    pub(super) first_token: Duration,
    /// Events with a choice.
    pub(super) n_events: usize,
    /// Until the last byte.
    pub(super) total: Duration,
}

/// A prompt of fixed length whose beginning many requests share.
fn prompt(n: u32) -> String {
    let text = format!("{:.<80}{n:0>40}", "A prefix that all requests share");
    text.chars().take(PROMPT_TOKENS as usize).collect()
}

/// Streams a completion.
///
/// # Errors
/// Anything but a whole answer with status 200.
pub(super) async fn stream_completion(
    address: SocketAddr,
    model: &str,
    n: u32,
) -> anyhow::Result<Streamed> {
    let body = serde_json::json!({
        "model": model, "prompt": prompt(n), "max_tokens": OUTPUT_TOKENS, "ignore_eos": true,
        "temperature": 0.8, "seed": n, "stream": true,
    });
    let exchange = exchange(address, body.to_string());
    tokio::time::timeout(LIMIT, exchange)
        .await
        .context("no whole answer in time")?
}

async fn exchange(address: SocketAddr, body: String) -> anyhow::Result<Streamed> {
    let begun = Instant::now();
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post("/v1/completions")
        .header("host", address.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let mut body = answer.into_body();
    let (mut first_token, mut text) = (None, Vec::new());
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            text.extend_from_slice(&data);
        }
        if first_token.is_none() && n_events(&text) > 0 {
            first_token = Some(begun.elapsed());
        }
    }
    connection.abort();
    let shown = || String::from_utf8_lossy(&text).into_owned();
    anyhow::ensure!(status == 200, "{status}: {}", shown());
    anyhow::ensure!(
        text.windows(6).any(|w| w == b"[DONE]"),
        "cut off: {}",
        shown()
    );
    Ok(Streamed {
        first_token: first_token.with_context(|| format!("no token: {}", shown()))?,
        n_events: n_events(&text),
        total: begun.elapsed(),
    })
}

fn n_events(text: &[u8]) -> usize {
    let needle = b"\"choices\":[{";
    text.windows(needle.len()).filter(|w| w == needle).count()
}

#[test]
fn prompts_differ_and_have_one_length() {
    assert_eq!(prompt(7).len(), PROMPT_TOKENS as usize);
    assert_ne!(prompt(7), prompt(8));
}
