//! One step of every replica towards what is wanted of it.

use std::collections::BTreeMap;

use super::replica::{LocalReplica, Stage};
use super::{AgentEffect, AgentMachine, AgentParams};
use crate::ids::ReplicaId;
use crate::rollout::{DesiredReplica, ReplicaMode};
use crate::time::UtcMicros;

impl AgentMachine {
    pub(super) fn converge(&mut self, now: UtcMicros, effects: &mut Vec<AgentEffect>) {
        if self.confirmed {
            self.add_wanted(now);
            self.drop_unwanted(effects);
        }
        let wanted: BTreeMap<ReplicaId, DesiredReplica> = self
            .desired
            .replicas
            .iter()
            .map(|r| (r.id.clone(), r.clone()))
            .collect();
        // Replicas of which nothing is wanted may still hold devices that a wanted one was given.
        let leaving: Vec<LocalReplica> = self
            .replicas
            .values()
            .filter(|r| !wanted.contains_key(&r.id))
            .cloned()
            .collect();
        for (id, replica) in &mut self.replicas {
            let want = wanted.get(id);
            let drain = match want {
                Some(w) => w.mode == ReplicaMode::Drain,
                None => true,
            };
            if !self.confirmed {
                continue;
            }
            if drain {
                let grace = want.map_or(self.params.stop_grace_s, |w| w.drain_grace_s);
                drain_step(now, replica, grace, self.params.stop_grace_s, effects);
            } else if let Some(want) = want {
                let blocked = leaving.iter().any(|r| r.may_hold(&want.gpu_uuids));
                serve_step(now, replica, want, (&self.params, blocked), effects);
            }
        }
    }

    fn add_wanted(&mut self, now: UtcMicros) {
        for want in &self.desired.replicas {
            let replica = self
                .replicas
                .entry(want.id.clone())
                .or_insert_with(|| LocalReplica::pending(want.id.clone(), now));
            replica.gpu_uuids = Some(want.gpu_uuids.clone());
        }
    }

    /// A stopped replica that the server no longer names is forgotten.
    fn drop_unwanted(&mut self, effects: &mut Vec<AgentEffect>) {
        let gone: Vec<ReplicaId> = self
            .replicas
            .values()
            .filter(|r| matches!(r.stage, Stage::Stopped))
            .filter(|r| self.wanted(&r.id).is_none())
            .map(|r| r.id.clone())
            .collect();
        for id in gone {
            self.replicas.remove(&id);
            effects.push(AgentEffect::Forget(id));
        }
    }
}

/// Moves a replica that is to go one step further: wait for its requests, ask it to stop, prove.
fn drain_step(
    now: UtcMicros,
    replica: &mut LocalReplica,
    drain_grace_s: u32,
    stop_grace_s: u32,
    effects: &mut Vec<AgentEffect>,
) {
    match &replica.stage {
        Stage::Pending { .. } | Stage::Backoff { .. } | Stage::Failed => {
            replica.stage = Stage::Stopping;
            effects.push(AgentEffect::ProveExit(replica.id.clone()));
        }
        Stage::Launching { .. } => {
            replica.stage = Stage::Draining {
                since: now,
                wait: false,
            }
        }
        Stage::Ready => {
            replica.in_flight = None;
            replica.stage = Stage::Draining {
                since: now,
                wait: true,
            };
        }
        Stage::Draining { since, wait } => {
            let idle = replica.in_flight == Some(0);
            let over = now.seconds_since(*since) >= f64::from(drain_grace_s);
            // A launch that is under way cannot be stopped before it is known what it made.
            if !replica.launch_pending && (!wait || idle || over) {
                replica.stage = Stage::Stopping;
                let id = replica.id.clone();
                effects.push(AgentEffect::Terminate {
                    id: id.clone(),
                    grace_s: stop_grace_s,
                });
                effects.push(AgentEffect::ProveExit(id));
            }
        }
        Stage::Stopping | Stage::Proving { .. } | Stage::Stopped => {}
    }
}

/// Moves a replica that is to serve one step further.
fn serve_step(
    now: UtcMicros,
    replica: &mut LocalReplica,
    want: &DesiredReplica,
    (params, blocked): (&AgentParams, bool),
    effects: &mut Vec<AgentEffect>,
) {
    match &replica.stage {
        Stage::Pending { not_before } | Stage::Backoff { until: not_before }
            if now >= *not_before && !blocked && !want.engine_args.is_empty() =>
        {
            replica.starting(now, params);
            effects.push(AgentEffect::Launch(Box::new(want.clone())));
        }
        Stage::Launching { since }
            if !replica.launch_pending
                && now.seconds_since(*since) > f64::from(want.start_deadline_s) =>
        {
            replica.give_up("not ready by its start deadline");
            let id = replica.id.clone();
            effects.push(AgentEffect::Terminate {
                id: id.clone(),
                grace_s: 0,
            });
            effects.push(AgentEffect::ProveExit(id));
        }
        Stage::Stopped => replica.stage = Stage::Pending { not_before: now },
        // It was to go and is wanted again before it was asked to stop.
        Stage::Draining { wait: true, .. } => replica.stage = Stage::Ready,
        Stage::Draining { wait: false, .. } => replica.stage = Stage::Launching { since: now },
        Stage::Pending { .. }
        | Stage::Backoff { .. }
        | Stage::Launching { .. }
        | Stage::Ready
        | Stage::Stopping
        | Stage::Proving { .. }
        | Stage::Failed => {}
    }
}
