//! S1: what the fleet showed, rank by rank.
//!
//! Keeps each rank's trajectory between ticks, counts judged windows for canaries and people, and
//! hands S2 the points that closed since the last verdict. Memory is bounded per rank; history
//! stays in the database.

mod view;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use view::{CurrentView, Interval};

use crate::catalog::{Catalog, GpuType};
use crate::configuration::EngineShape;
use crate::ids::{Generation, JobId, ReplicaId};
use crate::job::Slo;
use crate::ladder::Rank;
use crate::rollout::SloTally;
use crate::rollout::desired::ladder_of;
use crate::store::{JobRecord, ReplicaRecord, ServerState};
use crate::surrogate::{Deployment, MemoryBreakdown, roofline_step_ms};
use crate::telemetry::histogram::EdgesTable;
use crate::telemetry::observe::{BatchProgress, ObserveFacts, ShardLink, ShardLinkKind, SloFacts};
use crate::telemetry::series::CounterSeries;
use crate::telemetry::trajectory::{MIN_POINTS_FOR_VERDICT, Trajectory, TrajectoryPoint};
use crate::telemetry::window::Window;
use crate::time::UtcMicros;
use crate::validation::{Calibration, EvidenceRow, Statistics};
use crate::variables::{Outcome, OutcomeValues};

/// Points kept for a verdict; a rank that is never judged keeps the newest.
const MAX_POINTS: usize = 256;
/// Seconds of windows kept for the view of a stated interval.
pub const KEPT_SECONDS: i64 = 1_260;
/// Windows kept per rank: the kept time of 32 replicas.
const MAX_RECENT_WINDOWS: usize = 4_032;
/// Verdicts on the SLO kept per generation.
const MAX_JUDGED: usize = 720;

/// A rank of one generation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RankKey {
    /// Job.
    pub job: JobId,
    /// Generation of its ladder.
    pub generation: Generation,
    /// Position in the ladder.
    pub rank: u32,
}

/// One verdict on the SLO: when the point ended and whether it was inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgedPoint {
    /// End of the point.
    pub end: UtcMicros,
    /// True when every present target was met.
    pub inside: bool,
}

#[derive(Debug, Default)]
struct RankWatch {
    trajectory: Trajectory,
    points: VecDeque<TrajectoryPoint>,
    recent: VecDeque<Window>,
    judged: VecDeque<JudgedPoint>,
}

impl RankWatch {
    /// Windows of several replicas come in any order; the newest decides what is old.
    fn forget_old_windows(&mut self) {
        let Some(newest) = self.recent.iter().map(|w| w.end).max() else {
            return;
        };
        let kept_from = newest.plus_seconds(-KEPT_SECONDS);
        self.recent.retain(|w| w.end >= kept_from);
    }
}

/// Everything observed that is not yet history.
#[derive(Debug, Default)]
pub struct Observatory {
    ranks: BTreeMap<RankKey, RankWatch>,
    edges: EdgesTable,
    /// End of the newest window by replica.
    newest: BTreeMap<ReplicaId, UtcMicros>,
    /// Bucket-edge tables that could not be taken in.
    pub refused_edge_sets: u64,
    /// Generated tokens per job since they were last taken.
    tokens: BTreeMap<JobId, u64>,
    /// What the ranks judged lately say of the detector and of invariance.
    pub statistics: Statistics,
    /// End of the newest point that an earlier process has judged, by rank.
    judged_until: BTreeMap<RankKey, UtcMicros>,
}

impl Observatory {
    /// The observatory of a server that starts again: it judges by the thresholds that were stored
    /// and by the block means of the rows that were, and no telemetry a second time. Rows come in the
    /// order in which they were judged.
    #[must_use]
    pub fn resume(calibration: &Calibration, rows: &[EvidenceRow]) -> Self {
        let mut resumed = Self::default();
        resumed.statistics.calibration = calibration.clone();
        for row in rows {
            resumed.statistics.recall(row);
            let Some(basis) = &row.basis else { continue };
            let key = RankKey {
                job: row.job,
                generation: row.generation,
                rank: row.rank,
            };
            let until = resumed.judged_until.entry(key).or_insert(basis.until);
            *until = basis.until.max(*until);
        }
        resumed
    }

    /// Takes stored windows in. Windows of replicas that the state does not know are left out:
    /// they belong to an older generation and are kept only for the audit.
    pub fn add(
        &mut self,
        state: &ServerState,
        catalog: &Catalog,
        edges: &EdgesTable,
        windows: Vec<Window>,
    ) {
        // A table that is full refuses further edges; their histograms then read as absent.
        self.refused_edge_sets += u64::from(self.edges.extend(edges).is_err());
        let mut by_rank: BTreeMap<RankKey, Vec<Window>> = BTreeMap::new();
        for window in windows {
            let Some(replica) = state.replicas.get(&window.replica) else {
                continue;
            };
            if !self.is_news(&window) {
                continue;
            }
            let tokens = window
                .counters
                .get(&CounterSeries::GenerationTokens)
                .copied();
            *self.tokens.entry(replica.job).or_default() += tokens.unwrap_or(0);
            by_rank.entry(rank_key(replica)).or_default().push(window);
        }
        for (key, windows) in by_rank {
            self.add_to_rank(state, catalog, key, windows);
        }
    }

    /// Windows of a replica are disjoint and come in order; one that ends no later than the newest
    /// was sent again.
    fn is_news(&mut self, window: &Window) -> bool {
        let newest = self
            .newest
            .entry(window.replica.clone())
            .or_insert(UtcMicros(i64::MIN));
        let news = window.end > *newest;
        *newest = window.end.max(*newest);
        news
    }

    fn add_to_rank(
        &mut self,
        state: &ServerState,
        catalog: &Catalog,
        key: RankKey,
        windows: Vec<Window>,
    ) {
        let Some((job, rank)) = find_rank(state, key) else {
            return;
        };
        let facts = observe_facts(state, catalog, job, rank, key);
        let watch = self.ranks.entry(key).or_default();
        let judged_until = self.judged_until.get(&key);
        for point in watch.trajectory.push(&windows, &self.edges, &facts) {
            if let Some(inside) = inside_slo(&job.spec.slo, &point.observation.outcomes) {
                push_bounded(
                    &mut watch.judged,
                    JudgedPoint {
                        end: point.end,
                        inside,
                    },
                    MAX_JUDGED,
                );
            }
            // Windows merge otherwise after a start: a point that reaches back is left out whole.
            if judged_until.is_none_or(|until| point.start >= *until) {
                push_bounded(&mut watch.points, point, MAX_POINTS);
            }
        }
        for window in windows {
            push_bounded(&mut watch.recent, window, MAX_RECENT_WINDOWS);
        }
        watch.forget_old_windows();
    }

    /// Forgets ranks whose replicas are gone. A live job keeps its earlier ones for as long as
    /// windows are kept, so that a planned change leaves no hole in a view over minutes.
    pub fn retain_live(&mut self, state: &ServerState, now: UtcMicros) {
        let live: std::collections::BTreeSet<RankKey> =
            state.replicas.values().map(rank_key).collect();
        let kept_from = now.plus_seconds(-KEPT_SECONDS);
        self.ranks.retain(|key, watch| {
            let is_recent = watch.recent.back().is_some_and(|w| w.end >= kept_from);
            live.contains(key) || (is_recent && state.jobs.contains_key(&key.job))
        });
        self.newest
            .retain(|replica, _| state.replicas.contains_key(replica));
        self.judged_until.retain(|key, _| live.contains(key));
    }

    /// Points of a rank that closed since its last verdict, once there are enough; taking them
    /// starts the next verdict.
    pub fn take_points(&mut self, key: RankKey) -> Option<Vec<TrajectoryPoint>> {
        let watch = self.ranks.get_mut(&key)?;
        (watch.points.len() >= MIN_POINTS_FOR_VERDICT).then(|| watch.points.drain(..).collect())
    }

    /// Ranks that were observed and run, or ran lately.
    pub fn keys(&self) -> impl Iterator<Item = RankKey> + '_ {
        self.ranks.keys().copied()
    }

    /// Generated tokens per job counted since the last call.
    pub fn take_tokens(&mut self) -> BTreeMap<JobId, u64> {
        std::mem::take(&mut self.tokens)
    }

    /// Judged points per generation since a moment.
    #[must_use]
    pub fn tallies_since(&self, since: UtcMicros) -> BTreeMap<(JobId, Generation), SloTally> {
        let mut tallies: BTreeMap<(JobId, Generation), SloTally> = BTreeMap::new();
        for (key, watch) in &self.ranks {
            let tally = tallies.entry((key.job, key.generation)).or_default();
            for point in watch.judged.iter().filter(|p| p.end >= since) {
                tally.judged += 1;
                tally.inside += u32::from(point.inside);
            }
        }
        tallies
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, bound: usize) {
    if queue.len() == bound {
        queue.pop_front();
    }
    queue.push_back(item);
}

/// The rank a replica belongs to.
#[must_use]
pub fn rank_key(replica: &ReplicaRecord) -> RankKey {
    RankKey {
        job: replica.job,
        generation: replica.id.generation,
        rank: replica.id.rank,
    }
}

/// The job and the rung behind a key, while the state knows both.
#[must_use]
pub fn find_rank(state: &ServerState, key: RankKey) -> Option<(&JobRecord, &Rank)> {
    let job = state.jobs.get(&key.job)?;
    let replica = state.replicas_of(key.job).find(|r| rank_key(r) == key)?;
    let rank = ladder_of(job, replica)?
        .ladder
        .ranks
        .get(key.rank as usize)?;
    Some((job, rank))
}

/// Whether outcomes keep the SLO; `None` when no target could be observed.
#[must_use]
pub fn inside_slo(slo: &Slo, outcomes: &OutcomeValues) -> Option<bool> {
    match slo {
        Slo::Online {
            p99_ttft_ms,
            p99_tpot_ms,
        } => {
            let checks = [
                p99_ttft_ms.zip(outcomes.get(Outcome::P99TtftMs)),
                p99_tpot_ms.zip(outcomes.get(Outcome::P99TpotMs)),
            ];
            let mut seen = checks.into_iter().flatten().peekable();
            seen.peek()?;
            Some(seen.all(|(target, observed)| observed <= target))
        }
        Slo::Batch { .. } => outcomes.get(Outcome::SloMargin).map(|margin| margin >= 0.0),
    }
}

/// Facts that turn a rank's measurements into variables.
#[must_use]
pub fn observe_facts(
    state: &ServerState,
    catalog: &Catalog,
    job: &JobRecord,
    rank: &Rank,
    key: RankKey,
) -> ObserveFacts {
    let shape = rank.configuration.shape();
    let gpu = catalog.gpu_type(&rank.environment.gpu_type);
    let host = state
        .replicas_of(key.job)
        .find(|r| rank_key(r) == key)
        .and_then(|r| state.hosts.get(&r.host));
    let model = &job.spec.model.facts;
    // The predicting side's own account of the pool, its settings included.
    let memory = gpu.map(|gpu| MemoryBreakdown::of(model, gpu, &shape));
    let usd = host
        .and_then(|h| state.gpu_usd_per_hour(h))
        .map(|p| p * f64::from(shape.gpus()));
    ObserveFacts {
        tp: shape.tp,
        pp: shape.pp,
        gpu_memory_bytes: host
            .and_then(|h| h.facts.gpus.first())
            .map(|g| g.memory_bytes as f64),
        gpu_memory_utilization: Some(shape.gpu_memory_utilization),
        kv_block_bytes_per_gpu: memory.map(|m| m.kv_bytes_per_token * f64::from(shape.block_size)),
        cache: memory.map(|m| m.cache),
        kv_blocks: None,
        block_size_tokens: Some(shape.block_size),
        activation_peak_bytes: None,
        shard_link: gpu.map(|gpu| shard_link(gpu, host.is_some_and(|h| h.facts.nvlink))),
        tensor_active_at_saturation: None,
        roofline_step_ms: gpu.map(|gpu| roofline_ms(job, gpu, shape)),
        price_usd_per_replica_hour: usd,
        slo: slo_facts(job),
    }
}

/// Roofline time of a step in the middle of a mean answer.
fn roofline_ms(job: &JobRecord, gpu: &GpuType, shape: EngineShape) -> f64 {
    let workload = &job.spec.workload;
    let deployment = Deployment {
        model: &job.spec.model.facts,
        gpu,
        shape,
        n_replicas: 1,
        price_usd_per_hour_per_replica: None,
    };
    roofline_step_ms(&deployment, workload.isl.mean + workload.osl.mean / 2.0)
}

fn shard_link(gpu: &GpuType, nvlink: bool) -> ShardLink {
    match gpu.nvlink_bytes_per_second.filter(|_| nvlink) {
        Some(peak) => ShardLink {
            kind: ShardLinkKind::Nvlink,
            peak_bytes_per_second: peak,
        },
        None => ShardLink {
            kind: ShardLinkKind::Pcie,
            peak_bytes_per_second: gpu.pcie_bytes_per_second,
        },
    }
}

fn slo_facts(job: &JobRecord) -> SloFacts {
    match job.spec.slo {
        Slo::Online {
            p99_ttft_ms,
            p99_tpot_ms,
        } => SloFacts {
            p99_ttft_ms,
            p99_tpot_ms,
            batch: None,
        },
        Slo::Batch {
            total_token_budget,
            deadline,
        } => SloFacts {
            p99_ttft_ms: None,
            p99_tpot_ms: None,
            batch: Some(BatchProgress {
                tokens_left: total_token_budget.saturating_sub(job.tokens_done) as f64,
                deadline,
            }),
        },
    }
}
