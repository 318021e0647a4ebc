//! Logs, own metrics and traces of the agent process.

use std::net::SocketAddr;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Every metric of this process. Names are `koi_<noun>_<what>_<unit>[_total]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Launches, by outcome.
    LaunchesTotal,
    /// Engines that ended unasked.
    EngineExitsTotal,
    /// Scrapes, by outcome.
    ScrapesTotal,
    /// Streams to the server that ended.
    StreamEndsTotal,
}

impl Metric {
    /// The published name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LaunchesTotal => "koi_agent_launch_attempts_total",
            Self::EngineExitsTotal => "koi_agent_engine_exits_total",
            Self::ScrapesTotal => "koi_agent_scrape_attempts_total",
            Self::StreamEndsTotal => "koi_agent_stream_ends_total",
        }
    }

    /// Every series at 0, so that what never happened is seen not to have happened.
    fn publish() {
        for outcome in ["launched", "failed"] {
            Self::LaunchesTotal.count(0, Some(("outcome", outcome)));
        }
        for outcome in ["read", "failed"] {
            Self::ScrapesTotal.count(0, Some(("outcome", outcome)));
        }
        Self::EngineExitsTotal.count(0, None);
        Self::StreamEndsTotal.count(0, None);
    }

    /// Adds to a counter.
    pub fn count(self, n: u64, label: Option<(&'static str, &'static str)>) {
        match label {
            Some((key, value)) => metrics::counter!(self.name(), key => value).increment(n),
            None => metrics::counter!(self.name()).increment(n),
        }
    }
}

/// Upper edges of every duration histogram, in seconds.
const SECONDS_BUCKETS: [f64; 12] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// What has to be flushed before the process ends.
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
    metrics: PrometheusHandle,
}

/// Starts logs (`KOI_LOG`, default `info`; JSON when stderr is no terminal), metrics and, when an
/// endpoint is given, traces.
///
/// # Errors
/// When the exporter cannot be built or a recorder is installed already.
pub fn start(process: &'static str, otlp_endpoint: Option<&str>) -> anyhow::Result<Telemetry> {
    let metrics = PrometheusBuilder::new()
        .set_buckets(&SECONDS_BUCKETS)?
        .install_recorder()?;
    Metric::publish();
    let traces = otlp_endpoint
        .map(|endpoint| trace_provider(process, endpoint))
        .transpose()?;
    let filter = tracing_subscriber::EnvFilter::try_from_env("KOI_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let json = !std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if json {
        lines.json().boxed()
    } else {
        lines.boxed()
    };
    let spans = traces.as_ref().map(|provider| {
        // The exporter's own events would feed back into itself.
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("koi"))
            .with_filter(tracing_subscriber::EnvFilter::new(
                "info,h2=off,hyper=off,tonic=off,opentelemetry=off",
            ))
    });
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(spans)
        .try_init()?;
    Ok(Telemetry { traces, metrics })
}

fn trace_provider(process: &'static str, endpoint: &str) -> anyhow::Result<SdkTracerProvider> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()?;
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(
            opentelemetry_sdk::Resource::builder()
                .with_service_name(process)
                .build(),
        )
        .build())
}

impl Telemetry {
    /// Serves `/metrics` on a loopback listener until `shutdown`.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn serve_metrics(
        &self,
        listen: SocketAddr,
        shutdown: CancellationToken,
    ) -> anyhow::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
        let listener = tokio::net::TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        let handle = self.metrics.clone();
        let page = move || {
            let handle = handle.clone();
            async move {
                handle.run_upkeep();
                handle.render()
            }
        };
        let router = axum::Router::new().route("/metrics", axum::routing::get(page));
        let task = tokio::spawn(async move {
            let serving =
                axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned());
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the metrics listener ended");
            }
        });
        Ok((address, task))
    }

    /// Sends what is buffered; bounded by the exporter's own timeout.
    pub fn flush(self) {
        if let Some(traces) = self.traces
            && let Err(error) = traces.shutdown()
        {
            tracing::debug!(%error, "the last spans were not sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_agent_publishes_every_counter_and_counts_are_seen() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            Metric::publish();
            Metric::ScrapesTotal.count(2, Some(("outcome", "read")));
        });
        let page = handle.render();
        for line in [
            r#"koi_agent_launch_attempts_total{outcome="launched"} 0"#,
            r#"koi_agent_launch_attempts_total{outcome="failed"} 0"#,
            r#"koi_agent_scrape_attempts_total{outcome="read"} 2"#,
            r#"koi_agent_scrape_attempts_total{outcome="failed"} 0"#,
            "koi_agent_engine_exits_total 0",
            "koi_agent_stream_ends_total 0",
        ] {
            assert!(page.contains(line), "{line} is not in\n{page}");
        }
    }
}
