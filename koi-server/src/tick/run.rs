//! One tick: open, then phase by phase along the transition table, then close. Whatever fails
//! before S7 leaves the cluster as it is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::experience::Experience;
use koi_core::ids::{JobId, TickId};
use koi_core::params::Params;
use koi_core::plan::PlanDraft;
use koi_core::plan_check::{CheckedPlan, PlanViolation, check};
use koi_core::planner::{PlanningContext, plan};
use koi_core::server::{Command, Learned, PlanToCommit, Refusal, Reply};
use koi_core::slow_loop::update::{SlowUpdateInput, slow_update};
use koi_core::snapshot::Snapshot;
use koi_core::tick::judge::{JudgeContext, judge};
use koi_core::tick::observatory::Observatory;
use koi_core::tick::{Phase, PhaseEvent, TickCause, TickRecord, next};
use koi_core::validation::{EvidenceRow, UpdateTable};

use crate::core_loop::{Core, utc_now};
use crate::observability::Metric;
use crate::store::Store;

/// Evidence rows that risk and z* are built from.
const MAX_EXPERIENCE_ROWS: i64 = 2000;

/// What a tick works with.
#[derive(Clone)]
pub struct TickParts {
    /// Decisions.
    pub core: Core,
    /// History.
    pub store: Store,
    /// What agents showed since the last tick.
    pub observatory: Arc<Mutex<Observatory>>,
    /// Closed world and settings.
    pub world: World,
}

/// The closed world a tick is decided in; the same for every tick of a process.
#[derive(Clone)]
pub struct World {
    /// Variables, hardware, engines.
    pub catalog: &'static Catalog,
    /// Edges and mechanisms.
    pub causal: Arc<CausalModel>,
    /// Beta updates.
    pub updates: Arc<UpdateTable>,
    /// Hyper-parameters.
    pub params: Arc<Params>,
}

/// Why a tick could not be run or closed.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    /// The database is away; the tick is owed.
    #[error("{0}")]
    Unavailable(String),
    /// The core refused.
    #[error("{0}")]
    Refused(Refusal),
    /// A bug; the next tick closes this one.
    #[error("the tick panicked: {0}")]
    Panicked(String),
    /// The server stops.
    #[error("the server is stopping")]
    Stopping,
}

impl From<Refusal> for TickError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Unavailable(why) => Self::Unavailable(why),
            other => Self::Refused(other),
        }
    }
}

/// A phase failed: the tick ends in keep-all with these words.
struct Failed(String);

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}

/// Runs one tick to its end.
///
/// # Errors
/// [`TickError`] when it could not be opened or closed.
pub async fn run_tick(
    parts: TickParts,
    cause: TickCause,
    limit: Duration,
) -> Result<TickRecord, TickError> {
    let started = Instant::now();
    let seed = u64::try_from(utc_now().0).unwrap_or(0);
    let opened = parts
        .core
        .command(Command::OpenTick { cause, seed })
        .await?;
    let Reply::TickOpened(snapshot) = opened else {
        return Err(TickError::Refused(Refusal::Conflict(
            "no snapshot came back".to_owned(),
        )));
    };
    let mut run = Run::new(parts, *snapshot, started + limit);
    run.phase_ms
        .insert("S0".to_owned(), started.elapsed().as_secs_f64() * 1e3);
    run.finish().await
}

struct Run {
    parts: TickParts,
    snapshot: Snapshot,
    deadline: Instant,
    phase_ms: BTreeMap<String, f64>,
    evidence: Vec<EvidenceRow>,
    draft: Option<PlanDraft>,
    checked: Option<CheckedPlan>,
    first_violations: Vec<PlanViolation>,
    failure: Option<String>,
}

impl Run {
    fn new(parts: TickParts, snapshot: Snapshot, deadline: Instant) -> Self {
        Self {
            parts,
            snapshot,
            deadline,
            phase_ms: BTreeMap::new(),
            evidence: Vec::new(),
            draft: None,
            checked: None,
            first_violations: Vec::new(),
            failure: None,
        }
    }

    fn id(&self) -> TickId {
        self.snapshot.tick
    }

    #[tracing::instrument(name = "tick", skip_all, fields(tick = %self.id()))]
    async fn finish(mut self) -> Result<TickRecord, TickError> {
        let mut phase = Phase::Freeze;
        loop {
            let begun = Instant::now();
            let event = match self.perform(phase).await {
                Ok(event) => event,
                Err(Failed(why)) => {
                    tracing::warn!(phase = phase.code(), why, "a phase failed: keep-all");
                    self.failure
                        .get_or_insert(format!("{}: {why}", phase.code()));
                    PhaseEvent::Failed
                }
            };
            let spent = begun.elapsed().as_secs_f64();
            *self.phase_ms.entry(phase.code().to_owned()).or_default() += spent * 1e3;
            Metric::TickPhaseSeconds.observe(spent, Some(("phase", phase.code())));
            phase = match next(phase, event) {
                Some(phase) => phase,
                None => return self.close(phase).await,
            };
            if matches!(phase, Phase::Exit { .. }) {
                return self.close(phase).await;
            }
        }
    }

    async fn perform(&mut self, phase: Phase) -> Result<PhaseEvent, Failed> {
        if Instant::now() > self.deadline {
            return Err(Failed("out of time".to_owned()));
        }
        match phase {
            Phase::Freeze => {
                self.advance(Phase::Freeze, Phase::Observe, Learned::default())
                    .await
            }
            Phase::Observe => self.observe().await,
            Phase::Validate => self.validate().await,
            Phase::SlowUpdate => self.slow_update().await,
            Phase::Plan { .. } => self.plan().await,
            Phase::CheckPlan { repair } => self.check(repair),
            Phase::Deploy => self.deploy().await,
            Phase::Exit { .. } => Ok(PhaseEvent::Done),
        }
    }

    async fn advance(
        &self,
        from: Phase,
        to: Phase,
        learned: Learned,
    ) -> Result<PhaseEvent, Failed> {
        let learned = Box::new(learned);
        self.parts
            .core
            .command(Command::AdvanceTick {
                tick: self.id(),
                from,
                to,
                learned,
            })
            .await?;
        Ok(PhaseEvent::Done)
    }

    /// S1: what was measured, and what stored evidence says.
    async fn observe(&mut self) -> Result<PhaseEvent, Failed> {
        let rows = self
            .parts
            .store
            .evidence_newest(MAX_EXPERIENCE_ROWS)
            .await
            .map_err(|e| Failed(e.to_string()))?;
        self.snapshot.experience = Experience::from_rows(&rows, &self.snapshot.state);
        {
            let mut observatory = lock(&self.parts.observatory);
            observatory.retain_live(&self.snapshot.state, self.snapshot.now);
            let catalog = self.parts.world.catalog;
            let (state, now) = (&self.snapshot.state, self.snapshot.now);
            for job in state.jobs.values() {
                if let Some(view) = observatory.now(state, catalog, job, now) {
                    self.snapshot
                        .measured
                        .insert(job.id, view.measured(job.tokens_done));
                }
            }
        }
        self.advance(Phase::Observe, Phase::Validate, Learned::default())
            .await
    }

    /// S2: evidence rows, and nothing else.
    async fn validate(&mut self) -> Result<PhaseEvent, Failed> {
        let world = self.parts.world.clone();
        let ctx = JudgeContext {
            catalog: world.catalog,
            model: &world.causal,
            params: &world.params,
        };
        let fresh = {
            let mut observatory = lock(&self.parts.observatory);
            self.evidence = judge(&self.snapshot, &mut observatory, ctx);
            observatory.take_tokens()
        };
        let tokens_done = self.tokens_done(fresh);
        let learned = Learned {
            evidence: self.evidence.clone(),
            tokens_done,
            ..Learned::default()
        };
        self.advance(Phase::Validate, Phase::SlowUpdate, learned)
            .await
    }

    fn tokens_done(&mut self, fresh: BTreeMap<JobId, u64>) -> BTreeMap<JobId, u64> {
        let mut totals = BTreeMap::new();
        for (id, fresh) in fresh {
            if let Some(job) = self.snapshot.state.jobs.get_mut(&id) {
                job.tokens_done = job.tokens_done.saturating_add(fresh);
                totals.insert(id, job.tokens_done);
                if let Some(measured) = self.snapshot.measured.get_mut(&id) {
                    measured.tokens_done = job.tokens_done;
                }
            }
        }
        totals
    }

    /// S3: beliefs and slow state, once, in one transaction.
    async fn slow_update(&mut self) -> Result<PhaseEvent, Failed> {
        let world = self.parts.world.clone();
        let window = i64::from(world.params.q1_window_ticks);
        let since = TickId(self.id().0 - window);
        let history = self
            .parts
            .store
            .evidence_between(since, self.id())
            .await
            .map_err(|e| Failed(e.to_string()))?;
        let decided = self
            .parts
            .store
            .decided_rows()
            .await
            .map_err(|e| Failed(e.to_string()))?;
        let state = &self.snapshot.state;
        let input = SlowUpdateInput {
            tick: self.id(),
            rows: &self.evidence,
            earlier_rows: &history,
            decided_rows: &decided,
            beliefs: &state.beliefs_from(&world.causal),
            state: &state.slow,
            active_jobs: u32::try_from(state.jobs.values().filter(|j| j.active.is_some()).count())
                .unwrap_or(u32::MAX),
            swapped_jobs: 0,
        };
        let update = slow_update(&input, &world.causal, &world.updates, &world.params);
        for change in update.events.iter().flat_map(|e| &e.changes) {
            let moved = self
                .snapshot
                .state
                .beliefs
                .entry(change.key.clone())
                .or_default();
            moved.alpha_micro += change.alpha_micro;
            moved.beta_micro += change.beta_micro;
        }
        self.snapshot.state.slow = update.state.clone();
        let learned = Learned {
            belief_events: update.events,
            slow: Some(update.state),
            ..Learned::default()
        };
        self.advance(Phase::SlowUpdate, Phase::Plan { repair: false }, learned)
            .await
    }

    /// S4: the planner, on a thread of its own, with a hard stop.
    async fn plan(&mut self) -> Result<PhaseEvent, Failed> {
        let snapshot = self.snapshot.clone();
        let world = self.parts.world.clone();
        let search = tokio::task::spawn_blocking(move || {
            let ctx = world.planning_context();
            plan(&snapshot, &ctx)
        });
        let left = self.deadline.saturating_duration_since(Instant::now());
        let draft = tokio::time::timeout(left, search)
            .await
            .map_err(|_| Failed("the planner ran out of time".to_owned()))?
            .map_err(|panic| Failed(format!("the planner panicked: {panic}")))?;
        self.draft = Some(draft);
        Ok(PhaseEvent::Done)
    }

    /// S5: all checks; violations go back to the planner once.
    fn check(&mut self, repair: bool) -> Result<PhaseEvent, Failed> {
        let draft = self
            .draft
            .take()
            .ok_or_else(|| Failed("there is no draft".to_owned()))?;
        match check(draft, &self.snapshot, &self.parts.world.planning_context()) {
            Ok(checked) => {
                self.checked = Some(checked);
                Ok(PhaseEvent::Done)
            }
            Err(violations) => {
                let listed: Vec<String> = violations.iter().map(ToString::to_string).collect();
                tracing::warn!(
                    repair,
                    violations = listed.join("; "),
                    "the plan was refused"
                );
                if repair {
                    self.failure
                        .get_or_insert(format!("S5: {}", listed.join("; ")));
                } else {
                    self.first_violations = violations;
                }
                Ok(PhaseEvent::Violations)
            }
        }
    }

    /// S6: one transaction; agents are told by the core once it is durable.
    async fn deploy(&mut self) -> Result<PhaseEvent, Failed> {
        let plan = self
            .checked
            .take()
            .ok_or_else(|| Failed("no checked plan".to_owned()))?;
        let stored = self.snapshot.state.tick.clone();
        let mut tick =
            stored.ok_or_else(|| Failed("the tick is not in the snapshot".to_owned()))?;
        tick.phase = Phase::Deploy;
        tick.n_evidence_rows = u32::try_from(self.evidence.len()).unwrap_or(u32::MAX);
        let commit = PlanToCommit {
            tick,
            from: Phase::Plan { repair: false },
            plan,
            snapshot_hash: self.snapshot.hash(),
            seed: self.snapshot.seed,
        };
        match self
            .parts
            .core
            .command(Command::CommitPlan(Box::new(commit)))
            .await?
        {
            Reply::Object(seq) => {
                if let Some(tick) = &mut self.snapshot.state.tick {
                    tick.plan_seq = seq.parse().ok().map(koi_core::ids::PlanSeq);
                }
                Ok(PhaseEvent::Done)
            }
            Reply::TickOpened(_) | Reply::Done => {
                Err(Failed("no plan number came back".to_owned()))
            }
        }
    }

    /// S7.
    async fn close(self, phase: Phase) -> Result<TickRecord, TickError> {
        let stored = self.snapshot.state.tick.clone();
        let mut tick = stored.ok_or_else(|| {
            TickError::Refused(Refusal::Conflict(
                "the tick is not in the snapshot".to_owned(),
            ))
        })?;
        tick.phase = phase;
        tick.closed_at = Some(utc_now());
        tick.failure = self.failure;
        tick.n_evidence_rows = u32::try_from(self.evidence.len()).unwrap_or(u32::MAX);
        tick.phase_ms = self.phase_ms;
        tick.first_violations = self
            .first_violations
            .iter()
            .map(ToString::to_string)
            .collect();
        let close = Command::CloseTick {
            tick: Box::new(tick.clone()),
        };
        self.parts.core.command(close).await?;
        tracing::info!(
            tick = %tick.id,
            plan = tick.plan_seq.map(|p| p.0),
            evidence = tick.n_evidence_rows,
            failure = tick.failure,
            "tick closed"
        );
        Ok(tick)
    }
}

impl World {
    /// What planner and checks decide in.
    #[must_use]
    pub fn planning_context(&self) -> PlanningContext<'_> {
        PlanningContext {
            catalog: self.catalog,
            causal: &self.causal,
            params: &self.params,
        }
    }
}

/// A poisoned observatory only means that a reader panicked; its data is whole between calls.
pub(crate) fn lock(observatory: &Mutex<Observatory>) -> std::sync::MutexGuard<'_, Observatory> {
    observatory
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
