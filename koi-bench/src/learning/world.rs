//! The hidden side of a run: chains, weather, and the windows that agents would send in a tick.

use std::collections::BTreeMap;

use anyhow::anyhow;
use koi_core::ids::{JobId, ReplicaId};
use koi_core::snapshot::Snapshot;
use koi_core::telemetry::window::{WINDOW_MICROS, Window};
use koi_core::time::{MICROS_PER_SECOND, UtcMicros};
use koi_sim::rng::SimRng;
use koi_sim::world::{Chain, Demand, Drift, Levers, Weather, WindowInput, window};

use super::fleet::{Place, StudyJob, chain};
use super::hidden::{Hidden, levers};

/// Spread of the slow drift of loads and lengths.
pub(super) const DRIFT_SPREAD: f64 = 0.05;
/// How far load and speed are moved to see what they do.
const PROBE_SHIFT: f64 = 0.05;
/// Length of a tick in seconds.
pub(super) const TICK_SECONDS: i64 = 300;

struct Running {
    chain: Chain,
    weather: Weather,
    drift: Drift,
    rng: SimRng,
    demand: Demand,
}

/// What runs, and what is true of it.
pub(super) struct World {
    pub(super) places: Vec<Place>,
    hidden: Vec<Hidden>,
    /// The engine version of everything: factors on all chains.
    pub(super) engine: Levers,
    running: BTreeMap<JobId, Running>,
    seed: u64,
    /// Spread of the slow drift of loads and lengths; 0 for a stationary fleet.
    drift_spread: f64,
}

impl World {
    pub(super) fn new(
        places: Vec<Place>,
        hidden: Vec<Hidden>,
        drift_spread: f64,
        seed: u64,
    ) -> Self {
        Self {
            places,
            hidden,
            engine: Levers::default(),
            running: BTreeMap::new(),
            seed,
            drift_spread,
        }
    }

    /// The chain of a job as it stands, with everything that is hidden in it.
    pub(super) fn chain_of(&self, job: &StudyJob, snapshot: &Snapshot) -> anyhow::Result<Chain> {
        let record = snapshot
            .state
            .jobs
            .get(&job.id)
            .ok_or_else(|| anyhow!("no job {}", job.id))?;
        let all = levers(&self.hidden, job.place, &job.configuration, self.engine);
        let place = &self.places[job.place];
        Ok(chain(
            &record.spec.model.facts,
            place,
            &job.configuration,
            all,
        )?)
    }

    /// Starts a job's chain, or replaces it; its load goes on.
    pub(super) fn start(&mut self, job: &StudyJob, chain: Chain, generation: u32) {
        let salt = job.id.0.as_u128() as u64;
        let seed = koi_sim::rng::scramble(self.seed ^ (salt << 20) ^ u64::from(generation));
        let weather = Weather::new(seed ^ 1, 1.0);
        match self.running.get_mut(&job.id) {
            Some(running) => {
                running.chain = chain;
                running.weather = weather;
            }
            None => {
                let running = Running {
                    chain,
                    weather,
                    drift: Drift::new(seed ^ 2, self.drift_spread),
                    rng: SimRng::new(seed ^ 3),
                    demand: job.demand,
                };
                self.running.insert(job.id, running);
            }
        }
    }

    /// A new engine version everywhere: generating tokens takes so many times as long.
    pub(super) fn slow_decode(&mut self, factor: f64) {
        self.engine.decode *= factor;
        for running in self.running.values_mut() {
            running.chain = running.chain.slowed(1.0, factor);
        }
    }

    /// All windows of a tick that begins at `start`.
    pub(super) fn windows(
        &mut self,
        jobs: &[StudyJob],
        replicas: &BTreeMap<JobId, ReplicaId>,
        start: UtcMicros,
    ) -> Vec<Window> {
        let mut windows = Vec::new();
        for job in jobs {
            let (Some(running), Some(replica)) =
                (self.running.get_mut(&job.id), replicas.get(&job.id))
            else {
                continue;
            };
            running.drifted(&job.demand);
            let place = &self.places[job.place];
            let has_fabric = place.gpu.nvlink_bytes_per_second.is_some();
            running.tick(replica, start, has_fabric, &mut windows);
        }
        windows
    }
}

impl Running {
    fn drifted(&mut self, stated: &Demand) {
        let [rate, prompt, answer] = self.drift.step();
        self.demand = Demand {
            rate_rps: stated.rate_rps * rate,
            prompt: stated.prompt * prompt,
            answer: stated.answer * answer,
            ..*stated
        };
    }

    fn tick(
        &mut self,
        replica: &ReplicaId,
        start: UtcMicros,
        has_fabric: bool,
        windows: &mut Vec<Window>,
    ) {
        let base = self.chain.steady(&self.demand);
        let busier = self.chain.steady(&Demand {
            rate_rps: self.demand.rate_rps * PROBE_SHIFT.exp(),
            ..self.demand
        });
        let slower = self
            .chain
            .slowed(PROBE_SHIFT.exp(), 1.0)
            .steady(&self.demand);
        let seconds = WINDOW_MICROS as f64 / MICROS_PER_SECOND as f64;
        for index in 0..TICK_SECONDS / seconds as i64 {
            let weather = self.weather.step(seconds);
            let steady = base.moved([
                (&busier, weather.load / PROBE_SHIFT),
                (&slower, weather.step / PROBE_SHIFT),
            ]);
            let input = WindowInput {
                chain: &self.chain,
                steady: &steady,
                demand: &self.demand,
                replica,
                end: UtcMicros(start.0 + (index + 1) * WINDOW_MICROS as i64),
                has_profiling: true,
                has_fabric,
            };
            windows.push(window(&input, &mut self.rng));
        }
    }
}
