//! The text of `/metrics`: the families of vLLM V1 0.32 with their names, types, labels and edges.

mod process;
mod text;
mod vllm;

use koi_sim::metrics::EngineMetrics;

use crate::arguments::ServeSettings;
use crate::frame::ReadyFacts;
use crate::http_stats::HttpStats;
use text::Page;

/// What the page is made of.
pub(crate) struct PageInput<'a> {
    pub(crate) settings: &'a ServeSettings,
    pub(crate) facts: &'a ReadyFacts,
    pub(crate) engine: &'a EngineMetrics,
    pub(crate) http: &'a HttpStats,
    /// Start of the server as seconds since the epoch.
    pub(crate) created_s: f64,
}

/// Renders the page in the classic text format.
pub(crate) fn render(input: &PageInput<'_>) -> String {
    let mut page = Page::new(input.created_s);
    process::write(&mut page);
    vllm::write(&mut page, input);
    write_http(&mut page, input.http);
    page.into_text()
}

fn write_http(page: &mut Page, http: &HttpStats) {
    let counts = http.requests.iter().map(|((handler, method, status), n)| {
        (
            vec![
                ("handler", handler.as_str()),
                ("method", method),
                ("status", status),
            ],
            *n as f64,
        )
    });
    page.counter(
        "http_requests",
        "Requests by method, status and handler.",
        counts.collect(),
    );
    for (name, by_handler) in [
        ("http_request_size_bytes", &http.request_sizes),
        ("http_response_size_bytes", &http.response_sizes),
    ] {
        let sizes = by_handler.iter().map(|(handler, sizes)| {
            (
                vec![("handler", handler.as_str())],
                sizes.count,
                sizes.sum_bytes as f64,
            )
        });
        page.summary(name, "Content length by handler.", sizes.collect());
    }
    let all = vec![(vec![], &http.durations_s)];
    page.histogram(
        "http_request_duration_highr_seconds",
        "Latency, all handlers.",
        all,
    );
    let by_handler = http
        .handler_durations_s
        .iter()
        .map(|((handler, method), histogram)| {
            (
                vec![("handler", handler.as_str()), ("method", method.as_str())],
                histogram,
            )
        });
    page.histogram(
        "http_request_duration_seconds",
        "Latency by handler.",
        by_handler.collect(),
    );
}

#[cfg(test)]
mod tests;
