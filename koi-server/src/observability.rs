//! Logs, own metrics and traces of the server process.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::WithExportConfig as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Every metric of this process. Names are `koi_<noun>_<what>_<unit>[_total]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Seconds of one committed transaction, by kind.
    StoreCommitSeconds,
    /// Writes that failed, by class.
    StoreFailuresTotal,
    /// Ticks that ended, by outcome.
    TicksTotal,
    /// Seconds of one phase, by phase.
    TickPhaseSeconds,
    /// Seconds by which a tick started late.
    TickLagSeconds,
    /// Telemetry windows stored.
    TelemetryWindowsTotal,
    /// Telemetry batches that could not be stored or understood, by reason.
    TelemetryDroppedTotal,
    /// Agents with an open stream.
    AgentsConnected,
}

/// An error and everything that it was caused by, for one line of a log.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(": ");
        words.push_str(&error.to_string());
        cause = error.source();
    }
    words
}

impl Metric {
    /// The published name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreCommitSeconds => "koi_store_commit_seconds",
            Self::StoreFailuresTotal => "koi_store_failures_total",
            Self::TicksTotal => "koi_tick_ended_total",
            Self::TickPhaseSeconds => "koi_tick_phase_seconds",
            Self::TickLagSeconds => "koi_tick_lag_seconds",
            Self::TelemetryWindowsTotal => "koi_telemetry_windows_total",
            Self::TelemetryDroppedTotal => "koi_telemetry_dropped_total",
            Self::AgentsConnected => "koi_agent_connected_streams",
        }
    }

    /// Adds to a counter.
    pub fn count(self, n: u64, label: Option<(&'static str, &'static str)>) {
        match label {
            Some((key, value)) => metrics::counter!(self.name(), key => value).increment(n),
            None => metrics::counter!(self.name()).increment(n),
        }
    }

    /// Records one observation of a histogram.
    pub fn observe(self, value: f64, label: Option<(&'static str, &'static str)>) {
        match label {
            Some((key, value_of)) => {
                metrics::histogram!(self.name(), key => value_of).record(value)
            }
            None => metrics::histogram!(self.name()).record(value),
        }
    }

    /// Moves a gauge.
    pub fn shift(self, by: f64) {
        metrics::gauge!(self.name()).increment(by);
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
    #[must_use]
    pub fn serve_metrics(
        &self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> tokio::task::JoinHandle<()> {
        let handle = self.metrics.clone();
        let page = move || {
            let handle = handle.clone();
            async move {
                handle.run_upkeep();
                handle.render()
            }
        };
        let router = axum::Router::new().route("/metrics", axum::routing::get(page));
        tokio::spawn(async move {
            let serving =
                axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned());
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the metrics listener ended");
            }
        })
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
