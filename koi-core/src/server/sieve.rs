//! Keeps one row that the database refuses from holding up all others.
//!
//! The machine's own writes are many rows at once. A refused write is tried in halves until the row
//! that is refused stands alone; that one is set aside for a while and tried alone later. Rows come
//! from comparing state and observations, so writing some of them now and others later is only slower.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{HostId, JobId, ReplicaId};
use crate::store::{Change, ServerState};
use crate::time::UtcMicros;

/// How long a refused row rests.
const ASIDE_SECONDS: i64 = 30;

/// What is written together or not at all: a job's row, a node's, or a replica's with its node's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Replica(ReplicaId),
    Job(JobId),
    Host(HostId),
}

/// What was refused lately.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    /// Most parts of the next write; absent while nothing is refused.
    width: Option<usize>,
    /// Parts that were refused alone, and when they may be tried again.
    aside: BTreeMap<Part, UtcMicros>,
}

impl Sieve {
    /// The changes to write now, and what parts they are.
    pub(super) fn pass(
        &mut self,
        now: UtcMicros,
        state: &ServerState,
        changes: Vec<Change>,
    ) -> (Vec<Change>, BTreeSet<Part>) {
        if self.width.is_none() && self.aside.is_empty() {
            let parts = changes.iter().filter_map(part_of).collect();
            return (changes, parts);
        }
        let pending: Vec<Part> = changes.iter().filter_map(part_of).collect();
        let wanted: BTreeSet<&Part> = pending.iter().collect();
        self.aside
            .retain(|part, _| matches!(part, Part::Host(_)) || wanted.contains(part));
        let again = pending
            .iter()
            .find(|part| self.aside.get(part).is_some_and(|until| *until <= now));
        let parts: BTreeSet<Part> = match again {
            Some(part) => BTreeSet::from([part.clone()]),
            None => {
                let fine = pending.iter().filter(|p| !self.aside.contains_key(p));
                fine.take(self.width.unwrap_or(usize::MAX))
                    .cloned()
                    .collect()
            }
        };
        let hosts = hosts_of(&changes, &parts, state);
        let taken = changes.into_iter().filter(|change| match change {
            Change::Host(host) => hosts.contains(&host.facts.host),
            other => part_of(other).is_some_and(|part| parts.contains(&part)),
        });
        (taken.collect(), parts)
    }

    /// True while this part is not to be tried.
    pub(super) fn is_aside(&self, now: UtcMicros, part: &Part) -> bool {
        self.aside.get(part).is_some_and(|until| now < *until)
    }

    /// A write of these parts was refused. False when there is nothing that could be left out.
    pub(super) fn refused(&mut self, now: UtcMicros, parts: BTreeSet<Part>) -> bool {
        let n = parts.len();
        match parts.into_iter().next() {
            None => return false,
            Some(only) if n == 1 => {
                self.aside.insert(only, now.plus_seconds(ASIDE_SECONDS));
            }
            Some(_) => self.width = Some(n / 2),
        }
        true
    }

    /// A write of these parts is durable: the next one may be wider.
    pub(super) fn written(&mut self, parts: &BTreeSet<Part>) {
        self.aside.retain(|part, _| !parts.contains(part));
        // A write that did not fill its width was all there was.
        self.width = self
            .width
            .filter(|width| parts.len() >= *width)
            .map(|width| width.saturating_mul(2));
    }
}

/// A node's row goes with the replicas for whose sake it is written.
fn part_of(change: &Change) -> Option<Part> {
    match change {
        Change::Replica(replica) => Some(Part::Replica(replica.id.clone())),
        Change::ReplicaReleased(id) => Some(Part::Replica(id.clone())),
        Change::Job(job) => Some(Part::Job(job.id)),
        _ => None,
    }
}

fn hosts_of(changes: &[Change], parts: &BTreeSet<Part>, state: &ServerState) -> BTreeSet<HostId> {
    let host = |change: &Change| match change {
        Change::Replica(replica) => Some(replica.host.clone()),
        Change::ReplicaReleased(id) => state.replicas.get(id).map(|r| r.host.clone()),
        _ => None,
    };
    changes
        .iter()
        .filter(|change| part_of(change).is_some_and(|part| parts.contains(&part)))
        .filter_map(host)
        .collect()
}
