//! One agent's stream: hello, then observations and telemetry in, desired sets and acks out.

use std::sync::Arc;
use std::time::Duration;

use koi_core::host::HostFacts;
use koi_core::ids::HostId;
use koi_core::rollout::{DesiredSet, ObservedState};
use koi_core::server::{Command, Input, Refusal};
use koi_proto::convert::agents::{
    desired_to_wire, facts_from_wire, observed_from_wire, replicas_from_wire, version_from_wire,
};
use koi_proto::v1;
use koi_proto::v1::agent_message::Message as FromAgent;
use koi_proto::v1::server_message::Message as ToAgent;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use super::registry::{OUTBOX, Outbox, Registry, StreamId};
use super::telemetry::{Ingest, IngestEnded, IngestHandle, Offer};
use crate::api::status::{invalid, refused};
use crate::auth::TokenTable;
use crate::core_loop::Core;

/// Longest wait for an agent's first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// What agents are told of their rhythm.
#[derive(Debug, Clone, Copy)]
pub struct Rhythm {
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// Between scrapes of an engine.
    pub scrape: Duration,
    /// Length of a telemetry window.
    pub window: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            scrape: Duration::from_secs(5),
            window: Duration::from_secs(10),
        }
    }
}

/// The `Agents` service.
#[derive(Clone)]
pub struct AgentsApi {
    /// Decisions.
    pub core: Core,
    /// Who may connect.
    pub tokens: TokenTable,
    /// Streams.
    pub registry: Arc<Registry>,
    /// Telemetry.
    pub ingest: Ingest,
    /// Told to agents.
    pub rhythm: Rhythm,
    /// Sessions that have to end before the server does.
    pub tasks: TaskTracker,
    /// The server stops.
    pub shutdown: CancellationToken,
}

#[tonic::async_trait]
impl v1::agents_server::Agents for AgentsApi {
    type AgentStreamStream = ReceiverStream<Result<v1::ServerMessage, Status>>;

    async fn agent_stream(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::AgentStreamStream>, Status> {
        let host = self.tokens.agent(&request)?;
        let (messages, outbound) = mpsc::channel(OUTBOX);
        let session = Session {
            api: self.clone(),
            host,
            messages,
        };
        self.tasks.spawn(session.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(outbound)))
    }
}

struct Session {
    api: AgentsApi,
    host: HostId,
    messages: mpsc::Sender<Result<v1::ServerMessage, Status>>,
}

impl Session {
    #[tracing::instrument(name = "session", skip_all, fields(host_id = %self.host))]
    async fn run(self, mut inbound: Streaming<v1::AgentMessage>) {
        match self.greet(&mut inbound).await {
            Ok((id, desired, ingest)) => {
                tracing::info!("agent connected");
                let end = self.converse(&mut inbound, desired, ingest, id).await;
                if self.api.registry.leave(&self.host, id) {
                    self.api.core.tell(Input::Gone(self.host.clone())).await;
                    tracing::info!(reason = end, "agent's stream ended");
                }
            }
            Err(status) => {
                tracing::warn!(%status, "agent was not let in");
                // The agent may have gone already.
                drop(self.messages.send(Err(status)).await);
            }
        }
    }

    async fn greet(
        &self,
        inbound: &mut Streaming<v1::AgentMessage>,
    ) -> Result<(StreamId, watch::Receiver<Option<DesiredSet>>, IngestHandle), Status> {
        let first = tokio::time::timeout(HELLO_TIMEOUT, inbound.message())
            .await
            .map_err(|_| Status::deadline_exceeded("no hello within 10 s"))??;
        let Some(FromAgent::Hello(hello)) = first.and_then(|m| m.message) else {
            return Err(Status::failed_precondition(
                "the first message must be hello",
            ));
        };
        let facts = facts_from_wire(hello.facts.unwrap_or_default()).map_err(|v| invalid(&v))?;
        if facts.host != self.host {
            return Err(Status::permission_denied(format!(
                "this token is for host {}, the hello says {}",
                self.host, facts.host
            )));
        }
        let highest = version_from_wire(hello.highest.as_ref());
        self.enter_host(facts, highest).await?;
        let (desired, desired_rx) = watch::channel(None);
        let outbox = Outbox {
            desired,
            messages: self.messages.clone(),
        };
        let id = self.api.registry.enter(self.host.clone(), outbox);
        let observed = ObservedState {
            applied: highest,
            replicas: replicas_from_wire(hello.replicas),
            ..ObservedState::default()
        };
        self.welcome().await?;
        self.api
            .core
            .tell(Input::Hello(self.host.clone(), observed))
            .await;
        let ingest = self
            .api
            .ingest
            .open(self.host.clone(), self.messages.clone());
        Ok((id, desired_rx, ingest))
    }

    /// Makes the host known. A known host is let in while the database is away: its replicas
    /// serve and its observations are wanted.
    async fn enter_host(
        &self,
        facts: HostFacts,
        highest: koi_core::rollout::DesiredVersion,
    ) -> Result<(), Status> {
        let hello = Command::HostHello {
            facts: Box::new(facts),
            highest,
        };
        match self.api.core.command(hello).await {
            Ok(_) => Ok(()),
            Err(refusal @ Refusal::Unavailable(_)) => {
                let host = self.host.clone();
                let known = self
                    .api
                    .core
                    .read(move |m| m.state().hosts.contains_key(&host))
                    .await;
                if known.unwrap_or(false) {
                    Ok(())
                } else {
                    Err(refused(&refusal))
                }
            }
            Err(refusal) => Err(refused(&refusal)),
        }
    }

    async fn welcome(&self) -> Result<(), Status> {
        let epoch = self
            .api
            .core
            .read(|m| m.state().epoch)
            .await
            .map_err(|refusal| refused(&refusal))?;
        let millis = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        let welcome = v1::Welcome {
            epoch: epoch.0,
            heartbeat_interval_ms: millis(self.api.rhythm.heartbeat),
            scrape_interval_ms: millis(self.api.rhythm.scrape),
            window_ms: millis(self.api.rhythm.window),
            server_build_id: koi_core::build::BUILD_ID.to_owned(),
        };
        self.send(ToAgent::Welcome(welcome)).await
    }

    async fn send(&self, message: ToAgent) -> Result<(), Status> {
        let message = v1::ServerMessage {
            message: Some(message),
        };
        self.messages
            .send(Ok(message))
            .await
            .map_err(|_| Status::cancelled("the agent has closed its side"))
    }

    async fn converse(
        &self,
        inbound: &mut Streaming<v1::AgentMessage>,
        mut desired: watch::Receiver<Option<DesiredSet>>,
        ingest: IngestHandle,
        id: StreamId,
    ) -> String {
        // Telemetry that found no room: nothing more is read before it has some. Desired sets flow.
        let mut waiting: Option<Offer> = None;
        loop {
            tokio::select! {
                () = self.api.shutdown.cancelled() => return "the server stops".to_owned(),
                changed = desired.changed() => {
                    if changed.is_err() || !self.api.registry.is_current(&self.host, id) {
                        return "a newer stream has replaced this one".to_owned();
                    }
                    let set = desired.borrow_and_update().clone();
                    let Some(set) = set else { continue };
                    if let Err(status) = self.send(ToAgent::Desired(desired_to_wire(&set))).await {
                        return status.message().to_owned();
                    }
                }
                room = ingest.room(), if waiting.is_some() => match room {
                    Ok(room) => {
                        if let Some(offer) = waiting.take() {
                            room.send(offer);
                        }
                    }
                    Err(IngestEnded) => return "its telemetry cannot be stored".to_owned(),
                },
                message = inbound.message(), if waiting.is_none() => match message {
                    Ok(Some(message)) => waiting = self.receive(message).await,
                    Ok(None) => return "closed by the agent".to_owned(),
                    Err(status) => return status.message().to_owned(),
                },
            }
        }
    }

    /// Takes a message in; telemetry is given back, for the ingest.
    async fn receive(&self, message: v1::AgentMessage) -> Option<Offer> {
        let host = self.host.clone();
        match message.message {
            Some(FromAgent::Observed(observed)) => {
                self.api
                    .core
                    .tell(Input::Observed(host, observed_from_wire(observed)))
                    .await;
            }
            Some(FromAgent::Heartbeat(_)) => self.api.core.tell(Input::Heard(host)).await,
            Some(FromAgent::Dictionary(dictionary)) => return Some(Offer::Dictionary(dictionary)),
            Some(FromAgent::Telemetry(batch)) => return Some(Offer::Batch(batch)),
            Some(FromAgent::Hello(_)) | None => {
                tracing::warn!("ignored a message that has no place here");
            }
        }
        None
    }
}
