//! One tick: open, then phase by phase along the transition table, then close. Whatever fails
//! before S7 leaves the cluster as it is.

mod phases;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::causal::graph::id_kind;
use koi_core::ids::TickId;
use koi_core::lifecycle::{MechanismRecord, with_records};
use koi_core::params::Params;
use koi_core::plan::PlanDraft;
use koi_core::plan_check::{CheckedPlan, PlanViolation};
use koi_core::planner::PlanningContext;
use koi_core::server::{Command, Learned, Refusal, Reply};
use koi_core::snapshot::Snapshot;
use koi_core::store::RequestRecord;
use koi_core::surrogate::points::PlannedPoints;
use koi_core::tick::observatory::Observatory;
use koi_core::tick::{Phase, PhaseEvent, TickCause, TickRecord, next};
use koi_core::validation::meta::Calibration;
use koi_core::validation::{EvidenceRow, UpdateTable};

use crate::core_loop::{Core, utc_now};
use crate::observability::Metric;
use crate::store::Store;
use crate::tick::points::PointsBoard;
use crate::tick::recent::RecentEvidence;

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
    /// Performance that others measured.
    pub points: Arc<PointsBoard>,
    /// The newest evidence.
    pub recent: Arc<tokio::sync::Mutex<RecentEvidence>>,
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
    (cause, request): (TickCause, Option<RequestRecord>),
    limit: Duration,
) -> Result<TickRecord, TickError> {
    let started = Instant::now();
    let seed = u64::try_from(utc_now().0).unwrap_or(0);
    let opened = parts
        .core
        .command(Command::OpenTick {
            cause,
            seed,
            request,
        })
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
    points: Arc<PlannedPoints>,
    deadline: Instant,
    phase_ms: BTreeMap<String, f64>,
    evidence: Vec<EvidenceRow>,
    calibration: Calibration,
    draft: Option<PlanDraft>,
    checked: Option<CheckedPlan>,
    first_violations: Vec<PlanViolation>,
    failure: Option<String>,
}

impl Run {
    fn new(mut parts: TickParts, snapshot: Snapshot, deadline: Instant) -> Self {
        parts.world = parts.world.with_mechanisms(&snapshot.state.mechanisms);
        Self {
            parts,
            snapshot,
            points: Arc::default(),
            deadline,
            phase_ms: BTreeMap::new(),
            evidence: Vec::new(),
            calibration: Calibration::default(),
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
    /// The same world with stored mechanisms over the catalog's seeds.
    #[must_use]
    pub fn with_mechanisms(&self, records: &BTreeMap<String, MechanismRecord>) -> Self {
        if records.is_empty() {
            return self.clone();
        }
        let stored = with_records(&self.causal, records, &|name| id_kind(self.catalog, name));
        for (id, problems) in &stored.left_out {
            let listed: Vec<String> = problems
                .iter()
                .map(|p| format!("{}: {}", p.field, p.message))
                .collect();
            let problem = listed.join("; ");
            tracing::warn!(mechanism = id, problem, "a stored mechanism takes no part");
        }
        Self {
            causal: Arc::new(stored.model),
            ..self.clone()
        }
    }

    /// What planner and checks decide in.
    #[must_use]
    pub fn planning_context<'a>(&'a self, points: &'a PlannedPoints) -> PlanningContext<'a> {
        PlanningContext {
            catalog: self.catalog,
            causal: &self.causal,
            params: &self.params,
            points: &points.points,
        }
    }
}

/// A poisoned observatory only means that a reader panicked; its data is whole between calls.
pub(crate) fn lock(observatory: &Mutex<Observatory>) -> std::sync::MutexGuard<'_, Observatory> {
    observatory
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
