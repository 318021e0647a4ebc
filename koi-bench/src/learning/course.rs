//! One run: the world's windows through the real S1, S2 and S3, tick by tick.
//!
//! Real: [`Observatory`] (pooling, points, percentiles), [`judge`] with the analytic surrogate,
//! [`slow_update`] with the fan-out, the in-memory store's evidence and belief events. Stand-in: the
//! world and the planner ([`super::planner`]). S3 reads the store's rows as the server does.

use std::collections::BTreeMap;

use anyhow::anyhow;
use koi_core::catalog::Catalog;
use koi_core::causal::{BeliefKey, CausalModel};
use koi_core::experience::Experience;
use koi_core::ids::{JobId, PlanSeq, ReplicaId, TickId};
use koi_core::params::Params;
use koi_core::plan::PlanTally;
use koi_core::slow_loop::convergence::Convergence;
use koi_core::slow_loop::probe::PlannedProbe;
use koi_core::snapshot::Snapshot;
use koi_core::store::{Change, StoreTx, TxKind};
use koi_core::telemetry::histogram::EdgesTable;
use koi_core::tick::judge::{JudgeContext, judge};
use koi_core::tick::observatory::Observatory;
use koi_core::time::UtcMicros;
use koi_core::validation::{EvidenceRow, Icp, UpdateTable, Verdict};
use koi_core::variables::{Mediator, Outcome};
use koi_sim::mem_store::MemStore;
use koi_sim::world::edges_table;
use serde::Serialize;

use super::fleet::{Fleet, START, StudyJob};
use super::planner::Planner;
use super::slow::Memory;
use super::world::{TICK_SECONDS, World};

/// Evidence rows that risk and z* are built from, as in the server.
const MAX_RECENT_ROWS: usize = 2_000;

/// Which rule S2 and S3 follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    /// The paper's literal constants, no contrast.
    Paper,
    /// Thresholds calibrated, no contrast.
    Calibrated,
    /// Thresholds calibrated, and contrasts.
    Contrast,
}

impl Rule {
    pub(super) const ALL: [Self; 3] = [Self::Paper, Self::Calibrated, Self::Contrast];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Calibrated => "calibrated",
            Self::Contrast => "calibrated + contrast",
        }
    }
}

/// One mechanism in one tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// Rows that decided about it.
    pub(super) decided: u32,
    /// Rows in which a variable of its bundle diverged by CUSUM.
    pub(super) fired: u32,
    /// Rows that put it to the test.
    pub(super) exercised: u32,
    /// Rows in which its mediators' verdict was diverged.
    pub(super) v_diverged: u32,
}

/// What a run left behind.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Belief of each mechanism after each tick.
    pub(super) beliefs: BTreeMap<String, Vec<f64>>,
    /// Counts of each mechanism in each tick.
    pub(super) counts: BTreeMap<String, Vec<Count>>,
    /// Share of decided (row, mechanism) pairs in Q1, by tick.
    pub(super) q1_share: Vec<f64>,
    /// Share of variables that diverged, by tick.
    pub(super) diverged_share: Vec<f64>,
    /// Share of rows in which the pace of generation diverged (steps or time per token), by tick.
    pub(super) pace_diverged: Vec<f64>,
    /// Swaps by tick.
    pub(super) swaps: Vec<u32>,
    /// (inside, judged) by tick and outcome.
    pub(super) coverage: Vec<BTreeMap<&'static str, (u32, u32)>>,
    /// Evidence rows.
    pub(super) rows: u64,
    /// Mechanisms that the review archived, with the tick.
    pub(super) archived: BTreeMap<String, i64>,
    /// Every bullet of Assumption 2, by tick.
    pub(super) converged: Vec<Convergence>,
    /// Edges of which the invariance verdict was a rejection, accepted or neither, by mechanism, at
    /// the end.
    pub(super) invariance: BTreeMap<String, BTreeMap<String, Icp>>,
}

/// The plan that the stand-in committed last.
pub(super) struct LastPlan {
    pub(super) seq: PlanSeq,
    pub(super) tick: TickId,
    pub(super) at: UtcMicros,
    pub(super) tally: PlanTally,
}

/// Everything that one run needs.
pub(super) struct Run<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) params: Params,
    pub(super) table: UpdateTable,
    pub(super) model: CausalModel,
    pub(super) world: World,
    pub(super) planner: Planner,
    pub(super) jobs: Vec<StudyJob>,
    pub(super) snapshot: Snapshot,
    pub(super) store: MemStore,
    pub(super) observatory: Observatory,
    pub(super) course: Course,
    /// What S3 remembers.
    pub(super) memory: Memory,
    /// The last plan.
    pub(super) last_plan: Option<LastPlan>,
    edges: EdgesTable,
    /// The newest evidence rows, oldest first: what the server reads back from its store.
    recent: Vec<EvidenceRow>,
}

impl<'a> Run<'a> {
    /// A run of a fleet; every job is placed before the first tick.
    pub(super) fn new(
        catalog: &'a Catalog,
        params: Params,
        model: CausalModel,
        (fleet, world, planner): (Fleet, World, Planner),
    ) -> anyhow::Result<Self> {
        let table = UpdateTable::embedded().map_err(|problems| anyhow!("{problems:?}"))?;
        let mut run = Self {
            catalog,
            params,
            table,
            model,
            world,
            planner,
            jobs: fleet.jobs,
            snapshot: fleet.snapshot,
            store: MemStore::default(),
            observatory: Observatory::default(),
            course: Course::default(),
            memory: Memory::default(),
            last_plan: None,
            edges: edges_table(),
            recent: Vec::new(),
        };
        for index in 0..run.jobs.len() {
            run.place(index)?;
        }
        Ok(run)
    }

    fn place(&mut self, index: usize) -> anyhow::Result<()> {
        let job = self.jobs[index].clone();
        let chain = self.world.chain_of(&job, &self.snapshot)?;
        let generation = self.planner.commit(&mut self.snapshot, &job)?;
        self.world.start(&job, chain, generation.0);
        Ok(())
    }

    /// One tick: windows, S1, S2, S3, and the stand-in's plan.
    pub(super) fn tick(&mut self) -> anyhow::Result<()> {
        let tick = self.snapshot.tick.next();
        let begins = START.plus_seconds((tick.0 - 1) * TICK_SECONDS);
        self.snapshot.tick = tick;
        self.snapshot.now = begins.plus_seconds(TICK_SECONDS);
        self.observe(begins);
        let rows = self.validate();
        self.course.rows += rows.len() as u64;
        self.count(&rows);
        self.commit(
            TxKind::EvidenceWritten,
            vec![Change::Evidence(rows.clone())],
        )?;
        self.slow_update(&rows)?;
        self.keep(rows);
        self.remember();
        self.plan()
    }

    fn observe(&mut self, begins: koi_core::time::UtcMicros) {
        let replicas: BTreeMap<JobId, ReplicaId> = self
            .snapshot
            .state
            .replicas
            .values()
            .map(|r| (r.job, r.id.clone()))
            .collect();
        let windows = self.world.windows(&self.jobs, &replicas, begins);
        let state = &self.snapshot.state;
        self.observatory
            .add(state, self.catalog, &self.edges, windows);
        self.observatory.retain_live(state, self.snapshot.now);
        self.snapshot.experience = Experience::from_rows(&self.recent, &self.snapshot.state);
    }

    fn validate(&mut self) -> Vec<EvidenceRow> {
        let ctx = JudgeContext {
            catalog: self.catalog,
            model: &self.model,
            params: &self.params,
        };
        judge(&self.snapshot, &mut self.observatory, ctx)
    }

    fn slow_update(&mut self, rows: &[EvidenceRow]) -> anyhow::Result<()> {
        super::slow::step(self, rows)
    }

    /// Rows of the window over which the Q1 rate is taken, those of this tick left out.
    pub(super) fn earlier_rows(&self) -> &[EvidenceRow] {
        let since = self.snapshot.tick.0 - i64::from(self.params.q1_window_ticks);
        let first = self.recent.partition_point(|row| row.tick.0 < since);
        &self.recent[first..]
    }

    fn keep(&mut self, rows: Vec<EvidenceRow>) {
        self.recent.extend(rows);
        let surplus = self.recent.len().saturating_sub(MAX_RECENT_ROWS);
        self.recent.drain(..surplus);
    }

    /// One transaction of the store, as the server would write it.
    pub(super) fn commit(&mut self, kind: TxKind, changes: Vec<Change>) -> anyhow::Result<()> {
        let tx = StoreTx {
            kind,
            epoch: koi_core::ids::Epoch::default(),
            at: self.snapshot.now,
            expects: Vec::new(),
            changes,
        };
        self.store.commit(&tx).map_err(|e| anyhow!("{e:?}"))
    }

    fn plan(&mut self) -> anyhow::Result<()> {
        let mut tally = PlanTally::default();
        for (index, is_probe) in self.planner.chosen(&self.snapshot, &self.jobs) {
            let current = &self.jobs[index];
            let Some(next) = self
                .planner
                .swap(self.catalog, &self.snapshot, &self.world, current)
            else {
                continue;
            };
            let job = next.id;
            let before = std::mem::replace(&mut self.jobs[index], next);
            // An engine that does not start is what a failed roll-out is: the old one stays.
            if self.place(index).is_err() {
                self.jobs[index] = before;
            } else if is_probe {
                tally.probes.push(PlannedProbe {
                    job,
                    usd: 0.0,
                    information_gain: 1.0,
                });
            } else {
                tally.voluntary.push(job);
            }
        }
        let swaps = tally.voluntary.len() + tally.probes.len();
        self.course
            .swaps
            .push(u32::try_from(swaps).unwrap_or(u32::MAX));
        self.last_plan = Some(LastPlan {
            seq: PlanSeq(self.snapshot.tick.0),
            tick: self.snapshot.tick,
            at: self.snapshot.now,
            tally,
        });
        Ok(())
    }

    fn remember(&mut self) {
        let beliefs = self.snapshot.state.beliefs_from(&self.model);
        for mechanism in self.model.mechanisms() {
            let key = BeliefKey::Mechanism(mechanism.id.clone());
            let mean = beliefs.get(&key).map_or(0.5, |b| b.mean());
            self.course
                .beliefs
                .entry(mechanism.id.clone())
                .or_default()
                .push(mean);
        }
    }

    fn count(&mut self, rows: &[EvidenceRow]) {
        let mut counts: BTreeMap<String, Count> = BTreeMap::new();
        let (mut decided, mut q1, mut variables, mut diverged) = (0_u32, 0_u32, 0_u32, 0_u32);
        let mut coverage: BTreeMap<&'static str, (u32, u32)> = BTreeMap::new();
        let mut pace = 0_u32;
        for row in rows {
            let diverged_at = |name: &str| {
                let judged = row.variables.get(name).and_then(|v| v.verdict);
                judged == Some(Verdict::Diverged)
            };
            let is_pace = diverged_at(Mediator::DecodeStepsPerSec.name())
                || diverged_at(Outcome::P99TpotMs.name());
            pace += u32::from(is_pace);
            for verdict in row.variables.values().filter_map(|v| v.verdict) {
                variables += 1;
                diverged += u32::from(verdict == Verdict::Diverged);
            }
            for (outcome, inside) in &row.inside_band {
                let entry = coverage.entry(outcome.name()).or_default();
                entry.0 += u32::from(*inside);
                entry.1 += 1;
            }
            for m in &row.mechanisms {
                if !m.icp.is_empty() {
                    self.course.invariance.insert(m.id.clone(), m.icp.clone());
                }
                let count = counts.entry(m.id.clone()).or_default();
                let Some(quadrant) = m.quadrant else { continue };
                let fired = |v: &Option<Verdict>| *v == Some(Verdict::Diverged);
                let any = m.v_verdicts.values().any(fired) || m.y_verdicts.values().any(fired);
                count.decided += 1;
                count.fired += u32::from(any);
                count.exercised +=
                    u32::from(m.exercise == koi_core::validation::Exercise::Exercised);
                use koi_core::validation::Quadrant;
                count.v_diverged += u32::from(matches!(quadrant, Quadrant::Q3 | Quadrant::Q4));
                decided += 1;
                q1 += u32::from(quadrant == Quadrant::Q1);
            }
        }
        let share = |part: u32, all: u32| f64::from(part) / f64::from(all.max(1));
        self.course.q1_share.push(share(q1, decided));
        self.course.diverged_share.push(share(diverged, variables));
        let n_rows = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        self.course.pace_diverged.push(share(pace, n_rows));
        self.course.coverage.push(coverage);
        for mechanism in self.model.mechanisms() {
            let count = counts.remove(&mechanism.id).unwrap_or_default();
            self.course
                .counts
                .entry(mechanism.id.clone())
                .or_default()
                .push(count);
        }
    }
}
