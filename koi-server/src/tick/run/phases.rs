//! The phases S1 to S6 of a tick. Each hands what it learned to the core before the next begins.
//!
//! Which phase follows which is not decided here: [`koi_core::tick::next`] does that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use koi_core::causal::MechanismStatus;
use koi_core::experience::Experience;
use koi_core::ids::{JobId, PlanSeq, TickId};
use koi_core::params::LearningContrast;
use koi_core::plan_check::check;
use koi_core::planner::plan;
use koi_core::server::{Command, Learned, PlanToCommit, Reply};
use koi_core::slow_loop::backlog::Backlog;
use koi_core::slow_loop::update::{ActiveJob, CommittedPlan, SlowUpdateInput, slow_update};
use koi_core::store::{JobRecord, PlanRecord};
use koi_core::tick::judge::{JudgeContext, judge};
use koi_core::tick::{Phase, PhaseEvent};
use koi_core::validation::EvidenceRow;
use koi_core::validation::contrast::{edge_powers, fold_ticks};
use koi_core::validation::meta::CalibrationRecord;

use super::{Failed, Run, lock};

impl Run {
    /// S1: what was measured, and what stored evidence says.
    pub(super) async fn observe(&mut self) -> Result<PhaseEvent, Failed> {
        {
            let recent = self.parts.recent.clone();
            let mut recent = recent.lock().await;
            let rows = recent.rows(&self.parts.store).await;
            let rows = rows.map_err(|e| Failed(e.to_string()))?;
            self.snapshot.experience = Experience::from_rows(rows, &self.snapshot.state);
        }
        let points = self.parts.points.clone();
        self.points = points
            .current(&self.parts.store, self.parts.world.catalog)
            .await
            .map_err(|e| Failed(e.to_string()))?;
        self.snapshot.points_digest = self.points.digest.clone();
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
    pub(super) async fn validate(&mut self) -> Result<PhaseEvent, Failed> {
        let world = self.parts.world.clone();
        let ctx = JudgeContext {
            catalog: world.catalog,
            model: &world.causal,
            params: &world.params,
        };
        let fresh = {
            let mut observatory = lock(&self.parts.observatory);
            self.evidence = judge(&self.snapshot, &mut observatory, ctx);
            self.calibration = observatory.statistics.calibration.clone();
            observatory.take_tokens()
        };
        let tokens_done = self.tokens_done(fresh);
        let learned = Learned {
            evidence: self.evidence.clone(),
            tokens_done,
            ..Learned::default()
        };
        let written = self
            .advance(Phase::Validate, Phase::SlowUpdate, learned)
            .await;
        let mut recent = self.parts.recent.lock().await;
        match &written {
            Ok(_) => recent.written(&self.evidence),
            Err(_) => recent.distrust(),
        }
        written
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
    pub(super) async fn slow_update(&mut self) -> Result<PhaseEvent, Failed> {
        let world = self.parts.world.clone();
        let failed = |e: crate::store::StoreError| Failed(e.to_string());
        let (backlog, rows) = self.unapplied().await?;
        let tracks = self.parts.store.mechanism_tracks().await.map_err(failed)?;
        let last_plan = self.parts.store.plan(None).await.map_err(failed)?;
        let params = &world.params;
        let ticks = params.regret_window_ticks.max(params.q1_window_ticks);
        let slow_history = self
            .parts
            .store
            .slow_history(Some(self.id()), ticks)
            .await
            .map_err(failed)?;
        let state = &self.snapshot.state;
        let active: Vec<ActiveJob> = state.jobs.values().filter_map(active_job).collect();
        let input = SlowUpdateInput {
            tick: self.id(),
            rows: &rows,
            tracks: &tracks,
            calibration: &self.calibration,
            beliefs: &state.beliefs_from(&world.causal),
            state: &state.slow,
            active_jobs: &active,
            last_plan: last_plan.as_ref().map(committed_plan),
            experience: &self.snapshot.experience,
            history: &slow_history,
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
        self.archive(&update.archived);
        self.snapshot.state.slow = update.state;
        let before = &self.snapshot.state.contrasts;
        let (after, contrasts) = fold_ticks(before, (backlog.from, backlog.through), &rows);
        self.snapshot.state.contrasts = after;
        self.tell_powers();
        let learned = Learned {
            contrasts: (!contrasts.is_empty()).then(|| Box::new(contrasts)),
            belief_events: update.events,
            calibration: self.calibration_set(),
            slow: Some(Box::new(update.record)),
            archived: update.archived,
            ..Learned::default()
        };
        self.advance(Phase::SlowUpdate, Phase::Plan { repair: false }, learned)
            .await
    }

    /// The evidence that no S3 has applied: this tick's, and that of ticks whose S3 failed.
    async fn unapplied(&self) -> Result<(Backlog, Vec<EvidenceRow>), Failed> {
        let backlog = Backlog::of(&self.snapshot.state.slow, self.id());
        let earlier = if backlog.from < self.id() {
            let to = self.id().min(TickId(backlog.through.0 + 1));
            let stored = self.parts.store.evidence_between(backlog.from, to);
            stored.await.map_err(|e| Failed(e.to_string()))?
        } else {
            Vec::new()
        };
        if !earlier.is_empty() {
            let n_rows = earlier.len();
            tracing::warn!(n_rows, "evidence of earlier ticks is applied now");
        }
        Ok((backlog, backlog.rows(earlier, &self.evidence)))
    }

    /// How the detector is set, where that is not what is stored.
    fn calibration_set(&self) -> Option<Box<CalibrationRecord>> {
        let is_news = self.calibration != *self.snapshot.state.calibration;
        is_news.then(|| {
            Box::new(CalibrationRecord {
                tick: self.id(),
                calibration: self.calibration.clone(),
            })
        })
    }

    /// What contrasts know of every edge goes into the plan; nothing while none are made.
    fn tell_powers(&mut self) {
        let world = &self.parts.world;
        self.snapshot.edge_powers = (world.params.learning_contrast == LearningContrast::On)
            .then(|| edge_powers(&self.snapshot.state.contrasts, &world.causal));
    }

    /// What was archived does not speak in this tick's plan any more.
    fn archive(&mut self, archived: &[String]) {
        let causal = Arc::make_mut(&mut self.parts.world.causal);
        for id in archived {
            causal.set_status(id, MechanismStatus::Archived);
            tracing::info!(mechanism = id, "a mechanism was archived");
        }
    }

    /// S4: the planner, on a thread of its own, with a hard stop.
    pub(super) async fn plan(&mut self) -> Result<PhaseEvent, Failed> {
        let snapshot = self.snapshot.clone();
        let (world, points) = (self.parts.world.clone(), self.points.clone());
        let search = tokio::task::spawn_blocking(move || {
            let ctx = world.planning_context(&points);
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
    pub(super) fn check(&mut self, repair: bool) -> Result<PhaseEvent, Failed> {
        let draft = self
            .draft
            .take()
            .ok_or_else(|| Failed("there is no draft".to_owned()))?;
        let context = self.parts.world.planning_context(&self.points);
        match check(draft, &self.snapshot, &context) {
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
    pub(super) async fn deploy(&mut self) -> Result<PhaseEvent, Failed> {
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
                    tick.plan_seq = seq.parse().ok().map(PlanSeq);
                }
                Ok(PhaseEvent::Done)
            }
            Reply::TickOpened(_) | Reply::Done => {
                Err(Failed("no plan number came back".to_owned()))
            }
        }
    }
}

fn active_job(job: &JobRecord) -> Option<ActiveJob> {
    job.active.as_ref().map(|_| ActiveJob {
        job: job.id,
        class: job.spec.class,
        model_class: job.spec.model.facts.class(),
    })
}

fn committed_plan(plan: &PlanRecord) -> CommittedPlan<'_> {
    CommittedPlan {
        seq: plan.seq,
        tick: plan.tick,
        at: plan.created_at,
        tally: &plan.tally,
    }
}
