//! Replica by replica: what the agent said, and who is gone for good.

use super::{Look, MAX_REASON};
use crate::ids::HostId;
use crate::rollout::live::{ObservedPhase, ObservedReplica};
use crate::store::{Endpoint, ReplicaPhase, ReplicaRecord, ReplicaRole};

impl Look<'_> {
    pub(super) fn replicas(&mut self) {
        for replica in self.state.replicas.values() {
            self.withdraw_or_drain(replica);
            if let Some(seen) = self.live.replica(&replica.host, &replica.id) {
                self.observe(replica, seen);
            }
        }
    }

    /// Withdrawn long enough: clients have noticed, drain.
    fn withdraw_or_drain(&mut self, replica: &ReplicaRecord) {
        if let ReplicaRole::Withdrawn { since } = replica.role
            && self.now.seconds_since(since) >= f64::from(self.params.withdraw_s)
        {
            self.set_role(replica, ReplicaRole::Drain { since: self.now });
        }
    }

    pub(super) fn set_role(&mut self, replica: &ReplicaRecord, role: ReplicaRole) {
        let mut record = self.current(replica).clone();
        record.role = role;
        if !matches!(role, ReplicaRole::Withdrawn { .. }) {
            self.touched.insert(record.host.clone());
        }
        self.replicas.insert(record.id.clone(), record);
    }

    fn observe(&mut self, replica: &ReplicaRecord, seen: &ObservedReplica) {
        if self.may_release(replica, seen) {
            self.released.insert(replica.id.clone());
            self.replicas.remove(&replica.id);
            self.touched.insert(replica.host.clone());
            return;
        }
        let phase = match seen.phase {
            ObservedPhase::Ready => ReplicaPhase::Ready,
            ObservedPhase::Failed => ReplicaPhase::Failed {
                reason: seen.reason.chars().take(MAX_REASON).collect(),
            },
            ObservedPhase::Launching | ObservedPhase::Backoff => ReplicaPhase::Launching,
            ObservedPhase::Draining | ObservedPhase::Stopped => replica.phase.clone(),
        };
        let endpoint = seen
            .port
            .filter(|_| phase == ReplicaPhase::Ready)
            .map(|port| Endpoint {
                address: self.address(&replica.host),
                port,
            });
        let mut record = self.current(replica).clone();
        if record.phase == phase
            && record.n_starts == seen.n_starts
            && (endpoint.is_none() || record.endpoint == endpoint)
        {
            return;
        }
        if phase == ReplicaPhase::Ready && record.ready_at.is_none() {
            record.ready_at = Some(self.now);
        }
        record.phase = phase;
        record.n_starts = seen.n_starts;
        record.endpoint = endpoint.or(record.endpoint);
        self.replicas.insert(record.id.clone(), record);
    }

    /// Gone for good: the stored record says drain, the agent follows a set that says so too, and
    /// it has proven that nothing is left. An older word may speak of an earlier life of this id.
    fn may_release(&self, replica: &ReplicaRecord, seen: &ObservedReplica) -> bool {
        let applied = self.live.hosts.get(&replica.host).map(|h| h.applied);
        let wanted = self.state.hosts.get(&replica.host).map(|h| h.generation);
        let follows = applied
            .zip(wanted)
            .is_some_and(|(applied, wanted)| applied.host_generation >= wanted);
        matches!(replica.role, ReplicaRole::Drain { .. })
            && follows
            && seen.phase == ObservedPhase::Stopped
            && seen.exit_proven
    }

    fn address(&self, host: &HostId) -> String {
        self.state
            .hosts
            .get(host)
            .map(|h| h.facts.address.clone())
            .unwrap_or_default()
    }
}
