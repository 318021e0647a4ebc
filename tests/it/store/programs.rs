//! Seeded random transactions, most of them valid, built against a reference state.

use koi_core::catalog::price::PriceFilter;
use koi_core::ids::{Epoch, PlanSeq};
use koi_core::store::{
    Change, Expect, JobRecord, JobState, ReplicaPhase, ServerState, StoreTx, TxKind,
};
use koi_core::tick::Phase;
use koi_core::time::UtcMicros;

use super::records::*;

const NAMES: [&str; 5] = ["chat", "rag", "batch", "code", "long"];
const DEVICES: [&str; 9] = ["G0", "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8"];

pub(crate) struct Program {
    pub(crate) reference: ServerState,
    dice: u64,
    now: i64,
    n_jobs: u32,
    n_rows: i64,
}

impl Program {
    pub(crate) fn new(seed: u64) -> Self {
        let reference = ServerState {
            epoch: Epoch(0),
            ..ServerState::default()
        };
        Self {
            reference,
            dice: seed,
            now: 0,
            n_jobs: 0,
            n_rows: 0,
        }
    }

    /// splitmix64: the same program for the same seed everywhere.
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.dice;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let n = u64::try_from(from.len()).unwrap();
        if n == 0 {
            None
        } else {
            from.get(usize::try_from(self.roll(n)).unwrap()).copied()
        }
    }

    /// A float with a long tail of digits.
    fn float(&mut self) -> f64 {
        f64::from_bits((self.roll(u64::MAX) >> 2) | 1)
    }

    pub(crate) fn next_tx(&mut self) -> StoreTx {
        self.now += 1_000;
        let n = [1, 1, 1, 2, 3]
            .get(usize::try_from(self.roll(5)).unwrap())
            .copied()
            .unwrap();
        let mut expects = Vec::new();
        let mut changes = Vec::new();
        for _ in 0..n {
            let (more_expects, more) = self.step();
            expects.extend(more_expects);
            changes.extend(more);
        }
        let stale = i64::from(self.roll(25) == 0);
        let epoch = Epoch(self.reference.epoch.0.max(1) - stale);
        let kinds = TxKind::ALL;
        let kind = kinds
            .get(usize::try_from(self.roll(14)).unwrap())
            .copied()
            .unwrap();
        StoreTx {
            kind,
            epoch,
            at: UtcMicros(self.now),
            expects,
            changes,
        }
    }

    fn step(&mut self) -> (Vec<Expect>, Vec<Change>) {
        match self.roll(13) {
            0 | 1 => self.submit(),
            2 | 3 => self.change_job(),
            4 | 5 => self.reserve(),
            6 => self.observe(),
            7 => self.release(),
            8 => self.advance_tick(),
            9 => self.commit_plan(),
            10 => self.learn(),
            11 => (Vec::new(), vec![self.prices()]),
            _ => {
                let name = ["h1", "h2"]
                    .get(usize::try_from(self.roll(2)).unwrap())
                    .unwrap();
                let generation = i64::try_from(self.roll(9)).unwrap();
                (
                    Vec::new(),
                    vec![Change::Host(Box::new(host(name, generation)))],
                )
            }
        }
    }

    fn submit(&mut self) -> (Vec<Expect>, Vec<Change>) {
        self.n_jobs += 1;
        let name = self.pick(&NAMES).unwrap();
        let new = job(self.n_jobs, name);
        let key = format!("key-{}", self.n_jobs);
        let expects = vec![Expect::JobVersion(new.id, 0)];
        (
            expects,
            vec![put_job(&new), request(&key, "hash", name), audit("submit")],
        )
    }

    fn some_job(&mut self) -> Option<JobRecord> {
        let ids: Vec<_> = self.reference.jobs.keys().copied().collect();
        let id = self.pick(&ids)?;
        self.reference.jobs.get(&id).cloned()
    }

    fn change_job(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let Some(job) = self.some_job() else {
            return self.submit();
        };
        let off_by = i64::from(self.roll(6) == 0);
        let usd = self.float();
        let mut next = match self.roll(4) {
            0 => finished(&job),
            1 => rolling_out(&job, job.last_generation.0 + 1, usd),
            2 => JobRecord {
                state: JobState::Running,
                ..next_version(&job)
            },
            _ => JobRecord {
                note: Some(format!("{usd}")),
                ..next_version(&job)
            },
        };
        next.version += off_by;
        (
            vec![Expect::JobVersion(job.id, job.version)],
            vec![put_job(&next)],
        )
    }

    fn reserve(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let Some(job) = self.some_job() else {
            return self.submit();
        };
        let n = 1 + self.roll(2);
        let devices: Vec<&str> = (0..n).filter_map(|_| self.pick(&DEVICES)).collect();
        let index = u32::try_from(self.roll(4)).unwrap();
        (
            Vec::new(),
            vec![put_replica(&replica(&job, index, &devices))],
        )
    }

    fn observe(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let all: Vec<_> = self.reference.replicas.values().cloned().collect();
        let at = usize::try_from(self.roll(64)).unwrap();
        let Some(seen) = all.get(at % all.len().max(1)) else {
            return self.reserve();
        };
        let mut seen = seen.clone();
        seen.phase = ReplicaPhase::Failed {
            reason: "out of memory: \u{1F525}".to_owned(),
        };
        seen.n_starts += 1;
        (Vec::new(), vec![put_replica(&seen)])
    }

    fn release(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let all: Vec<_> = self.reference.replicas.keys().cloned().collect();
        let at = usize::try_from(self.roll(64)).unwrap();
        match all.get(at % all.len().max(1)) {
            Some(id) => (Vec::new(), vec![Change::ReplicaReleased(id.clone())]),
            None => self.reserve(),
        }
    }

    fn advance_tick(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let wrong = self.roll(6) == 0;
        match &self.reference.tick {
            Some(t) if t.closed_at.is_none() => {
                let from = if wrong { Phase::Observe } else { t.phase };
                let to = if t.phase == Phase::Freeze {
                    Phase::Plan { repair: true }
                } else {
                    Phase::Exit { keep_all: true }
                };
                let expects = vec![Expect::TickPhase(t.id, from), Expect::TickOpen(t.id)];
                (expects, vec![put_tick(&tick(t.id.0, to))])
            }
            Some(t) => {
                let id = if wrong { t.id.0 - 1 } else { t.id.0 + 1 };
                (Vec::new(), vec![put_tick(&tick(id, Phase::Freeze))])
            }
            None => (Vec::new(), vec![put_tick(&tick(1, Phase::Freeze))]),
        }
    }

    fn commit_plan(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let newest = self.reference.plan_seq.0;
        let (seq, parent) = match self.roll(8) {
            0 => (newest, newest - 1),
            1 => (newest + 5, newest),
            _ => (newest + 1, newest),
        };
        let jobs: Vec<_> = self.reference.jobs.keys().copied().collect();
        let objective = self.float();
        let expects = vec![Expect::PlanSeq(PlanSeq(parent))];
        (
            expects,
            vec![
                put_plan(&plan(seq, parent, &jobs, objective)),
                audit("plan"),
            ],
        )
    }

    /// Some machines, perhaps one of them twice.
    fn prices(&mut self) -> Change {
        if self.roll(4) == 0 {
            let instance = self
                .pick(&[None, Some("p5.48xlarge"), Some("own")])
                .unwrap();
            return Change::PricesRemoved(PriceFilter {
                instance: instance.map(str::to_owned),
                ..PriceFilter::default()
            });
        }
        let n = 1 + self.roll(3);
        let row = |program: &mut Self| {
            let instance = program.pick(&["p5.48xlarge", "g5.xlarge", "own"]).unwrap();
            let usd = program.float();
            priced(instance, usd)
        };
        Change::Prices((0..n).map(|_| row(self)).collect())
    }

    fn learn(&mut self) -> (Vec<Expect>, Vec<Change>) {
        let Some(job) = self.some_job() else {
            return self.submit();
        };
        self.n_rows += 1;
        let row = self.n_rows;
        let points = u32::try_from(self.roll(90)).unwrap();
        let delta = i64::try_from(self.roll(2_000_001)).unwrap() - 1_000_000;
        let moves = [("edge:e1", delta, 1), ("mechanism:m1", -delta, 2)];
        // The same tick twice: the second row of the same identity is left out.
        let rows = vec![
            evidence(row / 3, job.id, 0, points),
            evidence(row, job.id, 1, points),
        ];
        let events = vec![belief_event(row, (job.id, 0), &moves)];
        (
            Vec::new(),
            vec![Change::Evidence(rows), Change::BeliefEvents(events)],
        )
    }
}
