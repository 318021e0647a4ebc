//! What an agent's hello writes, and how the server gets ahead of agents that know more than its
//! database (a restored backup, a failover that lost commits).

use std::collections::BTreeSet;

use super::sieve::Part;
use super::{Decision, Refusal, Reply, ServerMachine};
use crate::host::{HostFacts, HostRecord};
use crate::ids::{Epoch, HostId};
use crate::rollout::DesiredVersion;
use crate::store::{Change, StoreTx, TxKind};
use crate::time::UtcMicros;

/// An agent that is further ahead than so many versions is not believed: one lying agent must not
/// use up the numbers of all.
const MAX_LIFT: i64 = 1_000_000_000;

impl ServerMachine {
    /// A host's facts, and a version above everything that its agent has seen. Writes nothing
    /// when all of it is known.
    pub(super) fn host_hello(
        &self,
        now: UtcMicros,
        facts: HostFacts,
        highest: DesiredVersion,
    ) -> Result<Decision, Refusal> {
        let host = facts.host.clone();
        self.refuse_claimed_devices(&facts)?;
        self.refuse_absurd(&host, highest)?;
        let reply = Reply::Object(host.as_str().to_owned());
        let known = self.state.hosts.get(&host);
        if known.is_some_and(|k| k.facts == facts) && !self.is_ahead(&host, highest) {
            return Ok(Decision { tx: None, reply });
        }
        let record = HostRecord {
            cordoned: known.is_some_and(|k| k.cordoned),
            draining_since: known.and_then(|k| k.draining_since),
            generation: known
                .map_or(highest.host_generation, |k| {
                    k.generation.max(highest.host_generation)
                })
                .next(),
            first_seen: known.map_or(now, |k| k.first_seen),
            facts,
        };
        let tx = self.host_tx(now, record, highest);
        Ok(Decision {
            tx: Some(tx),
            reply,
        })
    }

    /// The first connected host whose agent follows a newer set than this server can send; level
    /// triggered, so that a hello that could not be written is made up for.
    pub(super) fn lift_over_agents(&self, now: UtcMicros) -> Option<(HostId, StoreTx)> {
        let (host, applied) = self
            .live
            .hosts
            .iter()
            .filter(|(_, live)| live.connected)
            .filter(|(host, _)| !self.sieve.is_aside(now, &Part::Host((*host).clone())))
            .map(|(host, live)| (host, live.applied))
            .find(|(host, applied)| {
                self.is_ahead(host, *applied) && self.refuse_absurd(host, *applied).is_ok()
            })?;
        let mut record = self.state.hosts.get(host)?.clone();
        record.generation = record.generation.max(applied.host_generation).next();
        Some((host.clone(), self.host_tx(now, record, applied)))
    }

    /// True when the agent would refuse what this server sends.
    fn is_ahead(&self, host: &HostId, highest: DesiredVersion) -> bool {
        let own = DesiredVersion {
            epoch: self.state.epoch,
            plan_seq: self.state.plan_seq,
            host_generation: self
                .state
                .hosts
                .get(host)
                .map_or_else(Default::default, |k| k.generation),
        };
        own < highest
    }

    /// Versions compare by epoch first, so an epoch above the agent's settles the plan number too.
    fn host_tx(&self, now: UtcMicros, record: HostRecord, highest: DesiredVersion) -> StoreTx {
        let mut tx = self.tx(now, TxKind::HostSeen, vec![Change::Host(Box::new(record))]);
        let behind = (self.state.epoch, self.state.plan_seq) < (highest.epoch, highest.plan_seq);
        if behind {
            tx.epoch = Epoch(highest.epoch.0.max(self.state.epoch.0)).next();
        }
        tx
    }

    fn refuse_absurd(&self, host: &HostId, highest: DesiredVersion) -> Result<(), Refusal> {
        let generation = self.state.hosts.get(host).map_or(0, |k| k.generation.0);
        let within = |seen: i64, own: i64| seen <= own.saturating_add(MAX_LIFT);
        let believable = within(highest.epoch.0, self.state.epoch.0)
            && within(highest.plan_seq.0, self.state.plan_seq.0)
            && within(highest.host_generation.0, generation);
        if believable {
            Ok(())
        } else {
            Err(Refusal::Conflict(format!(
                "node {host} claims version {highest:?}, far above this server's: its state was \
                 damaged or belongs to another cluster; stop its engines and delete its state"
            )))
        }
    }

    /// A device belongs to one connected host; two that claim it are a cloned image. A host that is
    /// not connected may have been given another name.
    fn refuse_claimed_devices(&self, facts: &HostFacts) -> Result<(), Refusal> {
        let claimed: BTreeSet<&str> = facts.gpus.iter().map(|g| g.uuid.as_str()).collect();
        let connected = |id: &HostId| self.live.hosts.get(id).is_some_and(|h| h.connected);
        let mut others = self
            .state
            .hosts
            .values()
            .filter(|h| h.facts.host != facts.host && connected(&h.facts.host));
        let twin = others.find_map(|h| {
            let shared = h
                .facts
                .gpus
                .iter()
                .find(|g| claimed.contains(g.uuid.as_str()))?;
            Some((h.facts.host.clone(), shared.uuid.clone()))
        });
        match twin {
            None => Ok(()),
            Some((other, uuid)) => Err(Refusal::Conflict(format!(
                "device {uuid} of node {} belongs to node {other}, which is connected",
                facts.host
            ))),
        }
    }
}
