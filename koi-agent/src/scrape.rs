//! One look at an engine's `/metrics`: bounded in size and time, and nothing but text comes out.

pub mod fetch;

use std::net::SocketAddr;
use std::time::Duration;

use hyper::Method;

use crate::scrape::fetch::{FetchError, FetchLimits, fetch};

/// Bounds of a scrape: a hostile engine may send without end, a byte a second, or compressed.
pub const SCRAPE_LIMITS: FetchLimits = FetchLimits {
    max_bytes: 8 << 20,
    total: Duration::from_secs(5),
};

/// Reads `/metrics` of an engine.
///
/// # Errors
/// When it does not answer 200 with text within the limits.
pub async fn scrape(address: SocketAddr) -> Result<String, FetchError> {
    let answer = fetch(address, Method::GET, "/metrics", None, SCRAPE_LIMITS).await?;
    if answer.status != 200 {
        return Err(FetchError::Status(answer.status));
    }
    String::from_utf8(answer.body).map_err(|_| FetchError::NotText)
}

#[cfg(test)]
mod tests;
