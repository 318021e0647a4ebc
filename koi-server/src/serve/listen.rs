//! The gRPC listener: every service, health, reflection and sizes of messages.

use std::net::SocketAddr;

use anyhow::Context as _;
use koi_proto::v1;
use tokio::net::TcpListener;
use tonic::transport::Server;

use super::Parts;
use super::incoming::{SILENCE_LIMIT, incoming, max_connections};
use crate::agents::session::{AgentsApi, Rhythm};
use crate::agents::telemetry::Ingest;
use crate::api::admin::AdminApi;
use crate::api::beliefs::BeliefsApi;
use crate::api::contrasts::ContrastsApi;
use crate::api::fleet::FleetApi;
use crate::api::jobs::JobsApi;
use crate::api::performance::PerformanceApi;
use crate::api::plans::PlansApi;
use crate::api::ticks::TicksApi;
use crate::config::ServerConfig;
use crate::core_loop::utc_now;

/// Largest message of an ordinary call.
const MAX_MESSAGE_BYTES: usize = 512 * 1024;
/// Largest update of prices: the most rows, with long names.
const MAX_PRICES_BYTES: usize = 4 * 1024 * 1024;
/// Largest message on an agent's stream.
const MAX_TELEMETRY_BYTES: usize = 4 * 1024 * 1024;

/// Serves every call until shutdown.
pub(super) async fn listen(
    config: &ServerConfig,
    parts: &Parts,
    (mut server, listener): (Server, TcpListener),
    metrics_address: SocketAddr,
) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    health
        .set_serving::<v1::jobs_server::JobsServer<JobsApi>>()
        .await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(koi_proto::DESCRIPTORS)
        .build_v1()?;
    tracing::info!(%address, %metrics_address, "serving");
    announce(config, address, metrics_address)?;
    let routes = routes(parts)
        .add_service(health_service)
        .add_service(reflection);
    server
        .add_routes(routes)
        .serve_with_incoming_shutdown(
            incoming(listener, max_connections(), SILENCE_LIMIT),
            parts.shutdown.clone().cancelled_owned(),
        )
        .await
        .context("serve")
}

/// Writes the addresses in use, for whoever started the server with port 0.
fn announce(
    config: &ServerConfig,
    address: SocketAddr,
    metrics_address: SocketAddr,
) -> anyhow::Result<()> {
    let text = format!("listen = \"{address}\"\nmetrics_listen = \"{metrics_address}\"\n");
    let path = config.data_dir.join("server.addresses.toml");
    let temporary = config.data_dir.join(".server.addresses.toml.new");
    std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &path))?;
    Ok(())
}

fn routes(parts: &Parts) -> tonic::service::Routes {
    operations(decisions(parts), parts)
}

/// Jobs, and what was planned, measured and learned about them.
fn decisions(parts: &Parts) -> tonic::service::Routes {
    let Parts {
        core,
        store,
        requests,
        tokens,
        ticks,
        world,
        points,
        ..
    } = parts;
    let plans = PlansApi {
        core: core.clone(),
        store: store.clone(),
        tokens: tokens.clone(),
    };
    let tick_api = TicksApi {
        core: core.clone(),
        store: store.clone(),
        requests: requests.clone(),
        tokens: tokens.clone(),
        ticks: ticks.clone(),
    };
    let performance = PerformanceApi {
        store: store.clone(),
        tokens: tokens.clone(),
        points: points.clone(),
    };
    let beliefs = BeliefsApi {
        requests: requests.clone(),
        core: core.clone(),
        store: store.clone(),
        tokens: tokens.clone(),
        world: world.clone(),
    };
    let contrasts = ContrastsApi {
        core: core.clone(),
        tokens: tokens.clone(),
        world: world.clone(),
    };
    tonic::service::Routes::new(
        v1::jobs_server::JobsServer::new(jobs_api(parts))
            .max_decoding_message_size(MAX_MESSAGE_BYTES),
    )
    .add_service(
        v1::performance_server::PerformanceServer::new(performance)
            .max_decoding_message_size(MAX_MESSAGE_BYTES),
    )
    .add_service(
        v1::plans_server::PlansServer::new(plans).max_decoding_message_size(MAX_MESSAGE_BYTES),
    )
    .add_service(
        v1::ticks_server::TicksServer::new(tick_api).max_decoding_message_size(MAX_MESSAGE_BYTES),
    )
    .add_service(
        v1::contrasts_server::ContrastsServer::new(contrasts)
            .max_decoding_message_size(MAX_MESSAGE_BYTES),
    )
    .add_service(
        v1::beliefs_server::BeliefsServer::new(beliefs)
            .max_decoding_message_size(MAX_MESSAGE_BYTES),
    )
}

/// The fleet, the server itself, and the agents' streams.
fn operations(routes: tonic::service::Routes, parts: &Parts) -> tonic::service::Routes {
    let Parts {
        core,
        pulse,
        requests,
        tokens,
        ticks,
        world,
        ..
    } = parts;
    let fleet = FleetApi {
        core: core.clone(),
        requests: requests.clone(),
        tokens: tokens.clone(),
        catalog: world.catalog,
    };
    let admin = AdminApi {
        core: core.clone(),
        pulse: pulse.clone(),
        tokens: tokens.clone(),
        ticks: ticks.clone(),
        started_at: utc_now(),
        catalog_hash: world.catalog.hash().to_owned(),
    };
    routes
        .add_service(
            v1::fleet_server::FleetServer::new(fleet).max_decoding_message_size(MAX_PRICES_BYTES),
        )
        .add_service(
            v1::admin_server::AdminServer::new(admin).max_decoding_message_size(MAX_MESSAGE_BYTES),
        )
        .add_service(
            v1::agents_server::AgentsServer::new(agents_api(parts))
                .max_decoding_message_size(MAX_TELEMETRY_BYTES),
        )
}

fn jobs_api(parts: &Parts) -> JobsApi {
    JobsApi {
        core: parts.core.clone(),
        store: parts.store.clone(),
        requests: parts.requests.clone(),
        tokens: parts.tokens.clone(),
        endpoints: parts.endpoints.clone(),
        observatory: parts.observatory.clone(),
        world: parts.world.clone(),
    }
}

fn agents_api(parts: &Parts) -> AgentsApi {
    AgentsApi {
        core: parts.core.clone(),
        tokens: parts.tokens.clone(),
        registry: parts.registry.clone(),
        ingest: Ingest {
            store: parts.store.clone(),
            observatory: parts.observatory.clone(),
            core: parts.core.clone(),
            catalog: parts.world.catalog,
            tasks: parts.tasks.clone(),
        },
        rhythm: Rhythm::default(),
        tasks: parts.tasks.clone(),
        shutdown: parts.shutdown.clone(),
    }
}
