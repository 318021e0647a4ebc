//! Evidence with reading and writing: a private Postgres, the product's own store, tick by tick; then
//! the whole belief log replayed.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use koi_core::causal::{BeliefEvent, BeliefKey, fan_out};
use koi_core::ids::{Epoch, TickId};
use koi_core::params::Params;
use koi_core::store::{BeliefMove, Change, StoreTx, TxKind};
use koi_core::time::UtcMicros;
use koi_core::validation::{EvidenceRow, UpdateTable};
use koi_server::postgres::{PrivateCluster, RunningPostgres, Settings};
use koi_server::store::{Store, StoreOptions};
use koi_server::tick::recent::RecentEvidence;

use super::floors::copy_seconds;
use super::world::World;
use crate::statistics::median;

/// Runs of the floor before and after.
const FLOOR_RUNS: usize = 2;

/// What storing took.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// F8 over as many rows, where `psql` is there.
    pub(super) floor_s: Option<f64>,
    /// Everything that a tick does with its rows, over all ticks.
    pub(super) total_s: f64,
    pub(super) judge_s: f64,
    pub(super) write_evidence_s: f64,
    pub(super) read_s: f64,
    pub(super) write_beliefs_s: f64,
    /// Bytes of a row's document.
    pub(super) row_bytes: usize,
    /// Milliseconds of each tick.
    pub(super) ticks_ms: Vec<f64>,
    pub(super) n_applications: u64,
    pub(super) replay_s: f64,
    /// Every sum of the log is the stored belief, and what was handed over.
    pub(super) is_exact: bool,
}

impl Stored {
    /// A tick over ten times as many old rows, over one with as many.
    pub(super) fn growth(&self) -> Option<f64> {
        let n = self.ticks_ms.len();
        let around = |at: usize| median(self.ticks_ms.get(at..(at + n / 10).min(n))?);
        (n >= 40).then_some(())?;
        Some(around(n - n / 10)? / around(n / 10)?)
    }
}

/// Judges, writes and reads `n` rows, so many a tick.
pub(super) fn run(
    world: &World,
    table: &UpdateTable,
    n: usize,
    per_tick: usize,
) -> anyhow::Result<Stored> {
    let folder = std::env::temp_dir().join(format!("koi-bench-evidence-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("make a folder")?;
    let settings = Settings::throwaway(folder.clone());
    let running = PrivateCluster::prepare(&settings)
        .and_then(|cluster| cluster.spawn())
        .context("start a private Postgres")?;
    let measured = measure(world, table, (n, per_tick), &running);
    drop(running);
    // The cluster's folder goes with it; what is around it is ours.
    drop(std::fs::remove_dir_all(&folder));
    measured
}

fn measure(
    world: &World,
    table: &UpdateTable,
    (n, per_tick): (usize, usize),
    running: &RunningPostgres,
) -> anyhow::Result<Stored> {
    let url = running.url();
    let mut floors = Vec::new();
    let floor = |floors: &mut Vec<f64>, name: &str| -> anyhow::Result<()> {
        for run in 0..FLOOR_RUNS {
            floors.extend(copy_seconds(&url, n, &format!("{name}_{run}"))?);
        }
        Ok(())
    };
    floor(&mut floors, "floor_before")?;
    let runtime = tokio::runtime::Runtime::new().context("start a runtime")?;
    let mut stored = runtime.block_on(async {
        let options = StoreOptions {
            commit_deadline: Duration::from_secs(120),
            statement_timeout: Duration::from_secs(120),
            ..StoreOptions::default()
        };
        let store = Store::connect(&url, options).await?;
        store.migrate().await?;
        let epoch = store.acquire_epoch().await?;
        let mut bench = Bench {
            world,
            table,
            store,
            epoch,
            recent: RecentEvidence::default(),
            sums: BTreeMap::new(),
            stored: Stored::default(),
        };
        for (i, first) in (0..n).step_by(per_tick).enumerate() {
            let numbers = first..(first + per_tick).min(n);
            bench.tick(TickId(1 + i as i64), numbers).await?;
        }
        bench.replay().await?;
        bench.store.close().await;
        anyhow::Ok(bench.stored)
    })?;
    floor(&mut floors, "floor_after")?;
    stored.floor_s = median(&floors);
    Ok(stored)
}

struct Bench<'a> {
    world: &'a World,
    table: &'a UpdateTable,
    store: Store,
    epoch: Epoch,
    recent: RecentEvidence,
    sums: BTreeMap<BeliefKey, BeliefMove>,
    stored: Stored,
}

impl Bench<'_> {
    /// S1 to S3 of a tick, as far as evidence goes.
    async fn tick(&mut self, tick: TickId, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut lap = begun;
        // S1: what earlier rows say to the plan; S3: what its controllers keep.
        black_box(self.recent.rows(&self.store).await?);
        let window = Params::default().regret_window_ticks;
        self.store.slow_history(Some(tick), window).await?;
        self.store.mechanism_tracks().await?;
        self.stored.read_s += since(&mut lap);
        let rows: Vec<EvidenceRow> = numbers.map(|i| self.world.judge(i, tick)).collect();
        let first = rows.first().map(serde_json::to_string).transpose()?;
        self.stored.row_bytes = first.map_or(0, |doc| doc.len());
        self.stored.judge_s += since(&mut lap);
        self.commit(TxKind::EvidenceWritten, Change::Evidence(rows.clone()))
            .await?;
        self.recent.written(&rows);
        self.stored.write_evidence_s += since(&mut lap);
        let events = fan_out(&rows, &self.world.model, self.table, &self.world.params);
        self.stored.judge_s += since(&mut lap);
        self.commit(
            TxKind::LearningApplied,
            Change::BeliefEvents(events.clone()),
        )
        .await?;
        self.stored.write_beliefs_s += since(&mut lap);
        let spent = begun.elapsed().as_secs_f64();
        self.stored.total_s += spent;
        self.stored.ticks_ms.push(1e3 * spent);
        self.remember(&events);
        Ok(())
    }

    async fn commit(&self, kind: TxKind, change: Change) -> anyhow::Result<()> {
        let tx = StoreTx {
            kind,
            epoch: self.epoch,
            at: UtcMicros(0),
            expects: Vec::new(),
            changes: vec![change],
        };
        Ok(self.store.commit(&tx).await?)
    }

    /// The sums as they were handed over, to be compared with what the log says.
    fn remember(&mut self, events: &[BeliefEvent]) {
        for change in events.iter().flat_map(|e| &e.changes) {
            let sum = self.sums.entry(change.key.clone()).or_default();
            sum.alpha_micro += change.alpha_micro;
            sum.beta_micro += change.beta_micro;
        }
    }

    async fn replay(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let verified = self.store.beliefs_replay().await?;
        self.stored.replay_s = begun.elapsed().as_secs_f64();
        self.stored.n_applications = verified.n_changes;
        let handed: BTreeMap<String, BeliefMove> = self
            .sums
            .iter()
            .map(|(key, sum)| (key.to_string(), *sum))
            .collect();
        self.stored.is_exact = verified.mismatches.is_empty() && verified.sums == handed;
        Ok(())
    }
}

/// Seconds since the last lap, which begins anew.
fn since(lap: &mut Instant) -> f64 {
    let spent = lap.elapsed().as_secs_f64();
    *lap = Instant::now();
    spent
}
