//! The stream to the server: hello, heartbeats, observations and telemetry out; desired sets and
//! acks in. Lost streams are opened again with a jittered back-off; nothing stops meanwhile.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use koi_core::agent::AgentInput;
use koi_core::host::HostFacts;
use koi_core::rollout::ObservedState;
use koi_proto::convert::agents::{
    desired_from_wire, facts_to_wire, observed_to_wire, version_to_wire,
};
use koi_proto::convert::telemetry::WindowEncoder;
use koi_proto::v1;
use koi_proto::v1::agent_message::Message as ToServer;
use koi_proto::v1::agents_client::AgentsClient;
use koi_proto::v1::server_message::Message as FromServer;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::host::{Event, send};
use crate::observability::Metric;
use crate::telemetry::TelemetrySink;

/// Messages that may wait for a slow server.
const OUTBOX: usize = 64;
/// First pause after a lost stream; doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A stream that lasted this long was a good one: the pause starts anew.
const GOOD_STREAM: Duration = Duration::from_secs(30);
/// Largest desired set.
const MAX_DESIRED_BYTES: usize = 16 * 1024 * 1024;
/// Telemetry records that may be under way; the server queues twice as many.
const MAX_UNACKED: usize = 32;
/// Messages of one record: names that are new, and the record.
const MESSAGES_PER_RECORD: usize = 2;

/// What a session needs.
pub struct Session {
    /// Server's address.
    pub server: String,
    /// PEM of the authority, for `https`.
    pub ca_file: Option<PathBuf>,
    /// This host's token.
    pub token: String,
    /// What this host is.
    pub facts: HostFacts,
    /// This start of the agent; names its telemetry.
    pub agent_boot: String,
    /// The host's loop.
    pub events: mpsc::Sender<Event>,
    /// What is to be seen.
    pub observed: watch::Receiver<ObservedState>,
    /// Telemetry.
    pub sink: TelemetrySink,
    /// The agent stops.
    pub shutdown: CancellationToken,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamEnd {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("{} ({:?})", .0.message(), .0.code())]
    Status(#[from] tonic::Status),
    #[error("the server closed the stream")]
    Closed,
}

impl Session {
    /// Runs until shutdown.
    pub async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        let shutdown = self.shutdown.clone();
        loop {
            let begun = Instant::now();
            let end = tokio::select! {
                () = shutdown.cancelled() => return,
                end = self.one_stream() => end,
            };
            if begun.elapsed() > GOOD_STREAM {
                pause = FIRST_PAUSE;
            }
            Metric::StreamEndsTotal.count(1, None);
            tracing::warn!(reason = %end, pause_ms = pause.as_millis(), "the stream ended");
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(jittered(pause)) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Result<Channel, StreamEnd> {
        let failed = |e: &dyn std::fmt::Display| StreamEnd::Connect(e.to_string());
        let mut endpoint = Endpoint::from_shared(self.server.clone())
            .map_err(|e| failed(&e))?
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        if let Some(ca) = &self.ca_file {
            let pem = std::fs::read(ca).map_err(|e| failed(&e))?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(|e| failed(&e))?;
        }
        endpoint.connect().await.map_err(|e| {
            let cause = std::error::Error::source(&e).map(ToString::to_string);
            StreamEnd::Connect(cause.unwrap_or_else(|| e.to_string()))
        })
    }

    async fn one_stream(&mut self) -> StreamEnd {
        match self.converse().await {
            Ok(()) => StreamEnd::Closed,
            Err(end) => end,
        }
    }

    async fn converse(&mut self) -> Result<(), StreamEnd> {
        let channel = self.connect().await?;
        let mut client = AgentsClient::new(channel).max_decoding_message_size(MAX_DESIRED_BYTES);
        let (outbox, outbound) = mpsc::channel(OUTBOX);
        let hello = self.hello();
        queue(&outbox, hello).await?;
        let mut request = tonic::Request::new(ReceiverStream::new(outbound));
        let bearer = format!("Bearer {}", self.token);
        let value = bearer
            .parse()
            .map_err(|_| StreamEnd::Connect("the token holds illegal characters".to_owned()))?;
        request.metadata_mut().insert("authorization", value);
        let mut inbound = client.agent_stream(request).await?.into_inner();
        self.sink.rewind();
        let mut outgoing = Outgoing::default();
        let mut heartbeat = tokio::time::interval(Duration::from_secs(5));
        let started = Instant::now();
        loop {
            tokio::select! {
                message = inbound.message() => match message? {
                    Some(message) => {
                        if self.receive(message).await {
                            outgoing.acked();
                            self.send_telemetry(&outbox, &mut outgoing).await?;
                        }
                    }
                    None => return Ok(()),
                },
                changed = self.observed.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let state = observed_to_wire(&self.observed.borrow_and_update());
                    queue(&outbox, ToServer::Observed(state)).await?;
                }
                _ = heartbeat.tick() => {
                    let monotonic_us = i64::try_from(started.elapsed().as_micros()).unwrap_or(0);
                    queue(&outbox, ToServer::Heartbeat(v1::Heartbeat { monotonic_us })).await?;
                    self.sink.sync();
                    self.send_telemetry(&outbox, &mut outgoing).await?;
                }
                () = self.sink.news() => {
                    self.send_telemetry(&outbox, &mut outgoing).await?;
                }
            }
        }
    }

    fn hello(&mut self) -> ToServer {
        let observed = self.observed.borrow_and_update().clone();
        let wire = observed_to_wire(&observed);
        ToServer::Hello(v1::Hello {
            facts: Some(facts_to_wire(&self.facts)),
            highest: Some(version_to_wire(observed.applied)),
            agent_boot: self.agent_boot.clone(),
            replicas: wire.replicas,
        })
    }

    /// True when it acknowledges a batch.
    async fn receive(&self, message: v1::ServerMessage) -> bool {
        match message.message {
            Some(FromServer::Welcome(welcome)) => {
                tracing::info!(
                    epoch = welcome.epoch,
                    build = welcome.server_build_id,
                    "connected"
                );
                false
            }
            Some(FromServer::Desired(set)) => {
                match desired_from_wire(set) {
                    Ok(set) => {
                        send(&self.events, Event::Input(AgentInput::Desired(set))).await;
                    }
                    Err(problems) => {
                        let lines = problems
                            .iter()
                            .map(|p| format!("{}: {}", p.field, p.message));
                        let lines = lines.collect::<Vec<_>>().join("; ");
                        tracing::error!(lines, "a desired set cannot be understood: ignored whole");
                    }
                }
                false
            }
            Some(FromServer::Ack(ack)) => {
                self.sink.ack(&ack.agent_boot, ack.seq);
                true
            }
            None => false,
        }
    }

    /// Sends what is new, as far as the server keeps up: a database that is away must not fill the
    /// stream that observations share. Never waits for the outbox, so that acks are always read.
    async fn send_telemetry(
        &self,
        outbox: &mpsc::Sender<v1::AgentMessage>,
        outgoing: &mut Outgoing,
    ) -> Result<(), StreamEnd> {
        let room = outbox.capacity() / MESSAGES_PER_RECORD;
        let free = outgoing.free().min(room);
        if free == 0 {
            return Ok(());
        }
        for message in self.sink.next_messages(&mut outgoing.encoder, free) {
            outgoing.note(&message);
            outbox.send(message).await.map_err(|_| StreamEnd::Closed)?;
        }
        Ok(())
    }
}

/// Telemetry of one stream that is under way. The server answers every batch once and in order, so
/// answers are counted: an ack that covers more than one batch does not mean that their answers,
/// and the server's queue, are out of the way.
#[derive(Default)]
struct Outgoing {
    encoder: WindowEncoder,
    n_under_way: usize,
}

impl Outgoing {
    fn free(&self) -> usize {
        MAX_UNACKED.saturating_sub(self.n_under_way)
    }

    fn note(&mut self, message: &v1::AgentMessage) {
        if matches!(message.message, Some(ToServer::Telemetry(_))) {
            self.n_under_way += 1;
        }
    }

    fn acked(&mut self) {
        self.n_under_way = self.n_under_way.saturating_sub(1);
    }
}

async fn queue(
    outbox: &mpsc::Sender<v1::AgentMessage>,
    message: ToServer,
) -> Result<(), StreamEnd> {
    let message = v1::AgentMessage {
        message: Some(message),
    };
    outbox.send(message).await.map_err(|_| StreamEnd::Closed)
}

/// Between half and the whole of a pause, so that many agents do not come back at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [128u8];
    if getrandom::fill(&mut byte).is_err() {
        return pause;
    }
    pause.mul_f64(0.5 + f64::from(byte[0]) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ack_makes_room_for_one_batch_whatever_it_covers() {
        let batch = v1::AgentMessage {
            message: Some(ToServer::Telemetry(v1::Telemetry::default())),
        };
        let dictionary = v1::AgentMessage {
            message: Some(ToServer::Dictionary(v1::Dictionary::default())),
        };
        let mut outgoing = Outgoing::default();
        for _ in 0..MAX_UNACKED {
            outgoing.note(&dictionary);
            outgoing.note(&batch);
        }
        assert_eq!(outgoing.free(), 0);
        outgoing.acked();
        assert_eq!(outgoing.free(), 1);
        (0..2 * MAX_UNACKED).for_each(|_| outgoing.acked());
        assert_eq!(outgoing.free(), MAX_UNACKED);
    }
}
