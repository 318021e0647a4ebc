//! What each command writes.

use super::{Command, Decision, Refusal, Reply, ServerMachine};
use crate::ids::{Generation, HostId, JobId, JobName, TickId};
use crate::job::JobSpec;
use crate::snapshot::Snapshot;
use crate::store::{
    AuditRecord, Change, Expect, JobRecord, JobState, RequestRecord, StoreTx, TxKind,
};
use crate::tick::{Phase, TickCause, TickRecord, tick_prices};
use crate::time::UtcMicros;
use crate::violation::nearest;

impl ServerMachine {
    pub(super) fn decide(&self, now: UtcMicros, command: Command) -> Result<Decision, Refusal> {
        match command {
            Command::SubmitJob { id, spec, request } => self.submit(now, id, *spec, request),
            Command::CancelJob {
                job,
                reason,
                request,
            } => self.cancel(now, job, &reason, request),
            Command::HostHello { facts, highest } => self.host_hello(now, *facts, highest),
            Command::HostPolicy {
                host,
                cordoned,
                draining,
                reason,
                request,
            } => self.host_policy(now, &host, (cordoned, draining), &reason, request),
            Command::UpdatePrices {
                update,
                request,
                remember,
            } => self.update_prices(now, &update, (request, remember)),
            Command::RemovePrices {
                filter,
                reason,
                request,
            } => Ok(self.remove_prices(now, filter, &reason, request)),
            Command::ProposeMechanism { record, request } => {
                self.propose_mechanism(now, *record, request)
            }
            Command::OpenTick {
                cause,
                seed,
                request,
            } => Ok(self.open_tick(now, (cause, request), seed)),
            Command::AdvanceTick {
                tick,
                from,
                to,
                learned,
            } => self.advance_tick(now, tick, (from, to), *learned),
            Command::CommitPlan(plan) => self.commit_plan(now, *plan),
            Command::CloseTick { tick } => Ok(self.close_tick(now, *tick)),
        }
    }

    fn submit(
        &self,
        now: UtcMicros,
        id: JobId,
        spec: JobSpec,
        request: RequestRecord,
    ) -> Result<Decision, Refusal> {
        if let Some(twin) = self.state.job_named(spec.name.as_str()) {
            return Err(Refusal::Conflict(format!(
                "a live job named {} exists ({}); cancel it or choose another name",
                spec.name, twin.id
            )));
        }
        let spec_name = spec.name.clone();
        let job = JobRecord {
            id,
            spec,
            state: JobState::Waiting,
            submitted_at: now,
            last_generation: self.last_generation_of(&spec_name),
            active: None,
            rollout: None,
            note: None,
            ticks_waited: 0,
            tokens_done: 0,
            recent_failures: 0,
            version: 1,
        };
        let audit = audit(&request, "submit_job", job.spec.name.as_str(), "");
        let object = id.to_string();
        let changes = vec![
            Change::Job(Box::new(job)),
            Change::Request(Box::new(RequestRecord {
                object: object.clone(),
                ..request
            })),
            audit,
        ];
        let tx = self.tx(now, TxKind::JobSubmitted, changes);
        Ok(Decision {
            tx: Some(tx),
            reply: Reply::Object(object),
        })
    }

    /// Highest generation given out under this name by a job that still holds replicas: their ids
    /// are not given out again.
    fn last_generation_of(&self, name: &JobName) -> Generation {
        let twins = self.state.jobs.values().filter(|j| j.spec.name == *name);
        twins
            .map(|j| j.last_generation)
            .max()
            .unwrap_or(Generation(0))
    }

    fn cancel(
        &self,
        now: UtcMicros,
        id: JobId,
        reason: &str,
        request: RequestRecord,
    ) -> Result<Decision, Refusal> {
        let job = self
            .state
            .jobs
            .get(&id)
            .ok_or_else(|| Refusal::NotFound(format!("job {id}")))?;
        let reply = Reply::Object(id.to_string());
        if job.state.is_finished() {
            return Ok(Decision { tx: None, reply });
        }
        let mut job = job.clone();
        job.version += 1;
        job.state = JobState::Finished {
            reason: format!("cancelled: {reason}"),
        };
        job.rollout = None;
        let audit = audit(&request, "cancel_job", job.spec.name.as_str(), reason);
        let request = RequestRecord {
            object: id.to_string(),
            ..request
        };
        let changes = vec![
            Change::Job(Box::new(job)),
            Change::Request(Box::new(request)),
            audit,
        ];
        let tx = self.tx(now, TxKind::JobCancelled, changes);
        Ok(Decision {
            tx: Some(tx),
            reply,
        })
    }

    fn no_such_node(&self, host: &HostId) -> Refusal {
        let names = self.state.hosts.keys().map(HostId::as_str);
        let near = nearest(host.as_str(), names).map(|near| format!(" (did you mean {near}?)"));
        Refusal::NotFound(format!("node {host}{}", near.unwrap_or_default()))
    }

    fn host_policy(
        &self,
        now: UtcMicros,
        host: &HostId,
        (cordoned, draining): (bool, bool),
        reason: &str,
        request: RequestRecord,
    ) -> Result<Decision, Refusal> {
        let known = self.state.hosts.get(host);
        let mut record = known.ok_or_else(|| self.no_such_node(host))?.clone();
        record.cordoned = cordoned || draining;
        record.draining_since = draining.then(|| record.draining_since.unwrap_or(now));
        let action = match (cordoned, draining) {
            (_, true) => "drain_node",
            (true, false) => "cordon_node",
            (false, false) => "uncordon_node",
        };
        let audit = audit(&request, action, host.as_str(), reason);
        let request = RequestRecord {
            object: host.as_str().to_owned(),
            ..request
        };
        let changes = vec![
            Change::Host(Box::new(record)),
            Change::Request(Box::new(request)),
            audit,
        ];
        let tx = self.tx(now, TxKind::HostPolicy, changes);
        Ok(Decision {
            tx: Some(tx),
            reply: Reply::Object(host.as_str().to_owned()),
        })
    }

    /// Opens the next tick. One that was left open (its server died, its task panicked, its end
    /// could not be written) is closed first: nothing can be written for it any more.
    fn open_tick(
        &self,
        now: UtcMicros,
        (cause, request): (TickCause, Option<RequestRecord>),
        seed: u64,
    ) -> Decision {
        let mut changes = Vec::new();
        if let Some(open) = self.state.tick.as_ref().filter(|t| t.closed_at.is_none()) {
            let mut closed = open.clone();
            let why = || format!("left open in {}", open.phase.code());
            closed.failure.get_or_insert_with(why);
            // A plan that was committed stands.
            closed.phase = Phase::Exit {
                keep_all: open.plan_seq.is_none(),
            };
            closed.closed_at = Some(now);
            changes.push(Change::Tick(Box::new(closed)));
        }
        let id = self.state.tick.as_ref().map_or(TickId(1), |t| t.id.next());
        let record = TickRecord {
            id,
            phase: Phase::Freeze,
            cause,
            epoch: self.state.epoch,
            opened_at: now,
            closed_at: None,
            plan_seq: None,
            failure: None,
            n_evidence_rows: 0,
            phase_ms: std::collections::BTreeMap::new(),
            first_violations: Vec::new(),
            prices: tick_prices(&self.state),
        };
        changes.push(Change::Tick(Box::new(record.clone())));
        changes.extend(request.map(|request| {
            let object = id.0.to_string();
            Change::Request(Box::new(RequestRecord { object, ..request }))
        }));
        let snapshot = self.snapshot(now, record, seed);
        let tx = self.tx(now, TxKind::TickOpened, changes);
        Decision {
            tx: Some(tx),
            reply: Reply::TickOpened(Box::new(snapshot)),
        }
    }

    fn snapshot(&self, now: UtcMicros, tick: TickRecord, seed: u64) -> Snapshot {
        let id = tick.id;
        let mut state = self.state.without_feed();
        state.tick = Some(tick);
        Snapshot {
            tick: id,
            now,
            seed,
            catalog_hash: self.catalog.hash().to_owned(),
            state,
            liveness: self.live.liveness(now),
            silence_s: self.live.silence_s(self.state.hosts.keys(), now),
            edge_powers: None,
            experience: crate::experience::Experience::default(),
            measured: std::collections::BTreeMap::new(),
            points_digest: String::new(),
        }
    }

    fn close_tick(&self, now: UtcMicros, tick: TickRecord) -> Decision {
        let expects = vec![Expect::TickOpen(tick.id)];
        let tx = StoreTx {
            kind: TxKind::TickClosed,
            epoch: self.state.epoch,
            at: now,
            expects,
            changes: vec![Change::Tick(Box::new(tick))],
        };
        Decision {
            tx: Some(tx),
            reply: Reply::Done,
        }
    }
}

pub(super) fn audit(request: &RequestRecord, action: &str, object: &str, reason: &str) -> Change {
    Change::Audit(Box::new(AuditRecord {
        actor: request.identity.clone(),
        action: action.to_owned(),
        object: object.to_owned(),
        reason: reason.to_owned(),
    }))
}
