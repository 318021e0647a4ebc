//! Ticks of the simulation: plans are written by the tests, not searched for.

use std::sync::LazyLock;

use super::super::*;
use super::sim::Sim;
use crate::ids::TickId;
use crate::ladder::{Ladder, Promise};
use crate::plan::{ActionKind, PlanAction, PlanDraft, Slot};
use crate::plan_check::CheckedPlan;
use crate::planner::test_world::{World, chat, job_id};
use crate::snapshot::Snapshot;
use crate::tick::{Phase, TickCause};

/// A ladder of one single-device rank with its promise, as the real planner makes it.
static TEMPLATE: LazyLock<(Ladder, Promise)> = LazyLock::new(|| {
    let mut world = World::new();
    world.host("h", "H100", 1, "reserved", 2.0);
    world.job(1, chat("chat"));
    let placed = world.plan().actions.remove(0);
    (placed.ladder.unwrap(), placed.promise.unwrap())
});

impl Sim {
    /// Opens a tick and moves it to S4.
    pub(super) fn open_tick(&mut self) -> Result<Snapshot, Refusal> {
        let cause = TickCause::Schedule;
        let open = Command::OpenTick {
            cause,
            seed: 1,
            request: None,
        };
        let Reply::TickOpened(snapshot) = self.ask(open)? else {
            panic!("no snapshot");
        };
        let steps = [
            Phase::Freeze,
            Phase::Observe,
            Phase::Validate,
            Phase::SlowUpdate,
            Phase::Plan { repair: false },
        ];
        for pair in steps.windows(2) {
            self.ask(Command::AdvanceTick {
                tick: snapshot.tick,
                from: pair[0],
                to: pair[1],
                learned: Box::default(),
            })?;
        }
        Ok(*snapshot)
    }

    /// Commits a draft that was made on this snapshot.
    pub(super) fn commit_plan(
        &mut self,
        snapshot: &Snapshot,
        actions: Vec<PlanAction>,
    ) -> Result<Reply, Refusal> {
        let mut tick = snapshot.state.tick.clone().unwrap();
        tick.phase = Phase::Deploy;
        let draft = PlanDraft {
            actions,
            ..PlanDraft::default()
        };
        self.ask(Command::CommitPlan(Box::new(PlanToCommit {
            tick,
            from: Phase::Plan { repair: false },
            plan: CheckedPlan::for_tests(draft),
            snapshot_hash: String::new(),
            seed: 1,
        })))
    }

    pub(super) fn close_tick(&mut self, id: TickId) -> Result<Reply, Refusal> {
        let mut tick = self.server.state().tick.clone().unwrap();
        assert_eq!(tick.id, id);
        tick.phase = Phase::Exit { keep_all: false };
        tick.closed_at = Some(self.now);
        self.ask(Command::CloseTick {
            tick: Box::new(tick),
        })
    }

    /// One whole tick that gives a job so many new replicas, first free device first.
    pub(super) fn tick(&mut self, n: u128, n_replicas: u32) -> Result<(), Refusal> {
        let snapshot = self.open_tick()?;
        let actions = ladder_action(&snapshot, job_id(n), n_replicas);
        self.commit_plan(&snapshot, actions.into_iter().collect())?;
        self.close_tick(snapshot.tick).map(|_| ())
    }

    /// A job that serves with so many replicas.
    pub(super) fn serving(&mut self, n: u128, name: &str, n_replicas: u32) {
        self.submit(n, name).unwrap();
        self.tick(n, n_replicas).unwrap();
        self.seconds(5);
        assert_eq!(self.endpoints(name).len(), n_replicas as usize);
    }
}

/// Places or swaps a job on free devices; `None` when there are too few or nothing is to be done.
pub(super) fn ladder_action(snapshot: &Snapshot, job: JobId, n: u32) -> Option<PlanAction> {
    let record = snapshot.visible_jobs().find(|j| j.id == job)?;
    let hosts = snapshot.state.hosts.values();
    let free = hosts.filter(|h| snapshot.takes_work(h)).flat_map(|h| {
        let id = h.facts.host.clone();
        snapshot
            .free_devices(h)
            .into_iter()
            .map(move |uuid| (id.clone(), uuid))
    });
    let slots = free
        .take(n as usize)
        .enumerate()
        .map(|(i, (host, uuid))| Slot {
            rank: 0,
            index: i as u32,
            host,
            gpu_uuids: vec![uuid],
        });
    let slots: Vec<Slot> = slots.collect();
    if slots.len() < n as usize || record.rollout.is_some() {
        return None;
    }
    let (mut ladder, promise) = TEMPLATE.clone();
    ladder.ranks[0].n_replicas = n;
    Some(PlanAction {
        job,
        kind: if record.active.is_some() {
            ActionKind::Swap
        } else {
            ActionKind::Place
        },
        ladder: Some(ladder),
        promise: Some(promise),
        slots,
        target_tps: None,
        mechanism_id: None,
        swap_reason: None,
        budget_ref: None,
        rationale: "test".to_owned(),
    })
}
