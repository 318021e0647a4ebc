//! The `Fleet` service.

use std::collections::BTreeMap;

use koi_core::catalog::Catalog;
use koi_core::host::{HostPrice, HostRecord, Liveness};
use koi_core::ids::HostId;
use koi_core::rollout::live::LiveHost;
use koi_core::server::{Command, ServerMachine};
use koi_core::violation::nearest;
use koi_proto::convert::agents::install_to_wire;
use koi_proto::convert::environment::environment_to_wire;
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::idempotency::{Asked, Requests};
use super::paging::{cut, page};
use super::status::{invalid_field, not_found, refused};
use crate::auth::{Identity, TokenTable};
use crate::core_loop::{Core, utc_now};

/// Longest reason of a change.
pub(super) const MAX_REASON_BYTES: usize = 1024;

/// The `Fleet` service.
#[derive(Clone)]
pub struct FleetApi {
    /// Decisions.
    pub core: Core,
    /// Idempotency keys.
    pub requests: Requests,
    /// Who may ask.
    pub tokens: TokenTable,
    /// Machines with which prices are compared.
    pub catalog: &'static Catalog,
}

fn nodes(machine: &ServerMachine) -> Vec<v1::Node> {
    let state = machine.state();
    let mut holders = BTreeMap::new();
    for replica in state.replicas.values() {
        for uuid in &replica.gpu_uuids {
            holders.insert(uuid.as_str(), replica.id.to_string());
        }
    }
    let hosts = state.hosts.values();
    hosts
        .map(|h| {
            node(
                (h, state.price_of(h)),
                machine.live().hosts.get(&h.facts.host),
                &holders,
            )
        })
        .collect()
}

fn node(
    (host, price): (&HostRecord, Option<&HostPrice>),
    live: Option<&LiveHost>,
    holders: &BTreeMap<&str, String>,
) -> v1::Node {
    let facts = &host.facts;
    let silence = live.map(|l| utc_now().seconds_since(l.heard_at));
    let devices = facts.gpus.iter().map(|gpu| {
        let reading = live.and_then(|l| l.gpus.get(&gpu.uuid));
        v1::Device {
            uuid: gpu.uuid.clone(),
            index: gpu.index,
            name: gpu.name.clone(),
            memory_bytes: gpu.memory_bytes,
            replica_id: holders.get(gpu.uuid.as_str()).cloned().unwrap_or_default(),
            memory_used_bytes: reading.and_then(|r| r.memory_used_bytes),
            utilization_fraction: reading.and_then(|r| r.utilization_fraction),
            power_w: reading.and_then(|r| r.power_w),
        }
    });
    v1::Node {
        host: facts.host.to_string(),
        environment: Some(environment_to_wire(&facts.environment)),
        instance_type: facts.instance_type.clone(),
        devices: devices.collect(),
        usd_per_hour: price.map(|p| p.usd_per_hour),
        price_source: price.map(|p| p.source.clone()).unwrap_or_default(),
        price_date: price.map(|p| p.date.clone()).unwrap_or_default(),
        liveness: silence
            .map_or(Liveness::Unreachable, Liveness::of_silence)
            .name()
            .to_owned(),
        cordoned: host.cordoned,
        draining: host.draining_since.is_some(),
        engines: facts.engines.iter().map(install_to_wire).collect(),
        simulated: facts.simulated,
        address: facts.address.clone(),
        host_generation: host.generation.0,
        observed_generation: live.map_or(0, |l| l.applied.host_generation.0),
        seconds_since_heard: silence,
        build_id: facts.build_id.clone(),
    }
}

impl FleetApi {
    async fn nodes(&self) -> Result<Vec<v1::Node>, Status> {
        self.core
            .read(nodes)
            .await
            .map_err(|refusal| refused(&refusal))
    }

    async fn node(&self, host: &HostId) -> Result<v1::Node, Status> {
        let nodes = self.nodes().await?;
        let near = nearest(host.as_str(), nodes.iter().map(|n| n.host.as_str()));
        let unknown = not_found("node", host.as_str(), near, "koi nodes");
        let mut nodes = nodes.into_iter();
        nodes.find(|n| n.host == host.as_str()).ok_or(unknown)
    }

    async fn set_policy(
        &self,
        identity: &Identity,
        key: &str,
        (host, cordoned, draining): (HostId, bool, bool),
        reason: String,
    ) -> Result<v1::Node, Status> {
        if reason.len() > MAX_REASON_BYTES {
            let message = format!("at most {MAX_REASON_BYTES} bytes");
            return Err(invalid_field("reason", message));
        }
        let payload = format!("policy {host} {cordoned} {draining}").into_bytes();
        if let Asked::Now(turn) = self.requests.ask(identity, key, &payload).await? {
            let command = Command::HostPolicy {
                host: host.clone(),
                cordoned,
                draining,
                reason,
                request: turn.record.clone(),
            };
            let core = self.core.clone();
            let done = turn.run(async move { core.command(command).await });
            done.await?.map_err(|refusal| refused(&refusal))?;
        }
        self.node(&host).await
    }
}

fn host_id(text: &str) -> Result<HostId, Status> {
    text.parse()
        .map_err(|e: koi_core::ids::NotASlug| invalid_field("host", e.to_string()))
}

#[tonic::async_trait]
impl v1::fleet_server::Fleet for FleetApi {
    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesReply>, Status> {
        self.tokens.operator(&request)?;
        let page = page(request.into_inner().page)?;
        let nodes = self.nodes().await?;
        let (nodes, next) = cut(&page, nodes.into_iter(), |n| n.host.clone());
        Ok(Response::new(v1::ListNodesReply {
            nodes,
            page: Some(next),
        }))
    }

    async fn get_node(
        &self,
        request: Request<v1::GetNodeRequest>,
    ) -> Result<Response<v1::GetNodeReply>, Status> {
        self.tokens.operator(&request)?;
        let node = self.node(&host_id(&request.into_inner().host)?).await?;
        Ok(Response::new(v1::GetNodeReply { node: Some(node) }))
    }

    async fn cordon_node(
        &self,
        request: Request<v1::CordonNodeRequest>,
    ) -> Result<Response<v1::CordonNodeReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let request = request.into_inner();
        let policy = (host_id(&request.host)?, request.cordoned, false);
        let node = self
            .set_policy(&identity, &request.idempotency_key, policy, request.reason)
            .await?;
        Ok(Response::new(v1::CordonNodeReply { node: Some(node) }))
    }

    async fn drain_node(
        &self,
        request: Request<v1::DrainNodeRequest>,
    ) -> Result<Response<v1::DrainNodeReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let request = request.into_inner();
        let policy = (host_id(&request.host)?, true, true);
        let node = self
            .set_policy(&identity, &request.idempotency_key, policy, request.reason)
            .await?;
        Ok(Response::new(v1::DrainNodeReply { node: Some(node) }))
    }

    async fn update_prices(
        &self,
        request: Request<v1::UpdatePricesRequest>,
    ) -> Result<Response<v1::UpdatePricesReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let reply = self.set_prices(&identity, request.into_inner()).await?;
        Ok(Response::new(reply))
    }

    async fn remove_prices(
        &self,
        request: Request<v1::RemovePricesRequest>,
    ) -> Result<Response<v1::RemovePricesReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let reply = self
            .take_prices_out(&identity, request.into_inner())
            .await?;
        Ok(Response::new(reply))
    }

    async fn list_prices(
        &self,
        request: Request<v1::ListPricesRequest>,
    ) -> Result<Response<v1::ListPricesReply>, Status> {
        self.tokens.operator(&request)?;
        let reply = self.held_prices(request.into_inner()).await?;
        Ok(Response::new(reply))
    }
}
