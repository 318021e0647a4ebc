//! One run: the world's windows through the real S1, S2 and S3, tick by tick.
//!
//! Real: [`Observatory`] (pooling, points, percentiles), [`judge`] with the analytic surrogate,
//! [`slow_update`] with the fan-out, the in-memory store's evidence and belief events. Stand-in: the
//! world and the planner ([`super::planner`]). S3 reads the store's rows as the server does.

use std::collections::BTreeMap;

use anyhow::anyhow;
use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::experience::Experience;
use koi_core::ids::{JobId, PlanSeq, ReplicaId, TickId};
use koi_core::params::Params;
use koi_core::plan::PlanTally;
use koi_core::slow_loop::probe::PlannedProbe;
use koi_core::snapshot::Snapshot;
use koi_core::store::{Change, StoreTx, TxKind};
use koi_core::telemetry::histogram::EdgesTable;
use koi_core::tick::judge::{JudgeContext, judge};
use koi_core::tick::observatory::Observatory;
use koi_core::time::UtcMicros;
use koi_core::validation::contrast::edge_powers;
use koi_core::validation::{EvidenceRow, UpdateTable};
use koi_sim::mem_store::MemStore;
use koi_sim::world::edges_table;
use serde::Serialize;

use super::fleet::{Fleet, START, StudyJob};
use super::planner::Planner;
use super::probe::Knowledge;
use super::record::Course;
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
        self.course.count(&rows, &self.model);
        self.commit(
            TxKind::EvidenceWritten,
            vec![Change::Evidence(rows.clone())],
        )?;
        self.slow_update(&rows)?;
        self.keep(rows);
        let beliefs = self.snapshot.state.beliefs_from(&self.model);
        self.course.remember(&beliefs, &self.model);
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
        let chosen = self.planner.chosen(&self.snapshot, &self.jobs);
        for index in chosen.swapped {
            let current = &self.jobs[index];
            let next = self
                .planner
                .swap(self.catalog, &self.snapshot, &self.world, current);
            if let Some(job) = next.filter(|next| self.replace(index, next.clone())) {
                tally.voluntary.push(job.id);
            }
        }
        let powers = edge_powers(&self.snapshot.state.contrasts, &self.model);
        let mut free = chosen.free;
        for _ in 0..chosen.probes {
            let knowledge = Knowledge {
                model: &self.model,
                powers: &powers,
                params: &self.params,
            };
            let jobs = (&self.jobs[..], &free[..]);
            let probe =
                self.planner
                    .probe(self.catalog, &self.snapshot, &self.world, jobs, &knowledge);
            let Some((index, next)) = probe else { break };
            free.retain(|f| *f != index);
            let job = next.id;
            if self.replace(index, next) {
                tally.probes.push(PlannedProbe {
                    job,
                    usd: 0.0,
                    information_gain: 1.0,
                });
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

    /// Swaps a job; an engine that does not start is what a failed roll-out is: the old one stays.
    fn replace(&mut self, index: usize, next: StudyJob) -> bool {
        let before = std::mem::replace(&mut self.jobs[index], next);
        let is_placed = self.place(index).is_ok();
        if !is_placed {
            self.jobs[index] = before;
        }
        is_placed
    }
}
