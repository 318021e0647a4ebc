//! What moves a fleet that nobody touches: load and device speed that wander from window to window,
//! and workloads that drift over hours.

use crate::rng::SimRng;

/// Seconds after which the load's wandering is forgotten to a third.
const LOAD_MEMORY_S: f64 = 60.0;
/// Spread of the logarithm of the load.
const LOAD_SPREAD: f64 = 0.05;
/// The same of the device's speed; both as in [`crate::truth::StepNoise`].
const SPEED_MEMORY_S: f64 = 180.0;
const SPEED_SPREAD: f64 = 0.035;

/// How far a window lies from the mean, as logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct WindowWeather {
    /// Of the arrival rate.
    pub load: f64,
    /// Of the time of a step.
    pub step: f64,
}

/// Two first-order autoregressions around 0.
#[derive(Debug, Clone)]
pub struct Weather {
    rng: SimRng,
    now: WindowWeather,
    scale: f64,
}

impl Weather {
    /// The weather of one chain; starts where a long run would be.
    #[must_use]
    pub fn new(seed: u64, scale: f64) -> Self {
        let mut rng = SimRng::new(seed);
        let now = WindowWeather {
            load: scale * LOAD_SPREAD * rng.normal(),
            step: scale * SPEED_SPREAD * rng.normal(),
        };
        Self { rng, now, scale }
    }

    /// The weather `seconds` later.
    pub fn step(&mut self, seconds: f64) -> WindowWeather {
        let mut moved = |value: f64, memory_s: f64, spread: f64| {
            let memory = (-seconds / memory_s).exp();
            let fresh = (1.0 - memory * memory).sqrt() * spread * self.scale;
            memory * value + fresh * self.rng.normal()
        };
        self.now = WindowWeather {
            load: moved(self.now.load, LOAD_MEMORY_S, LOAD_SPREAD),
            step: moved(self.now.step, SPEED_MEMORY_S, SPEED_SPREAD),
        };
        self.now
    }
}

/// A slow random walk of logarithms that is pulled back to 0: what a workload does over hours.
#[derive(Debug, Clone)]
pub struct Drift {
    rng: SimRng,
    values: [f64; 3],
    spread: f64,
}

/// Ticks after which a drift is forgotten to a third.
const DRIFT_MEMORY_TICKS: f64 = 60.0;

impl Drift {
    /// The drift of one job, of this spread in the long run.
    #[must_use]
    pub fn new(seed: u64, spread: f64) -> Self {
        Self {
            rng: SimRng::new(seed),
            values: [0.0; 3],
            spread,
        }
    }

    /// Factors on rate, prompt length and answer length in the next tick.
    pub fn step(&mut self) -> [f64; 3] {
        let memory = (-1.0 / DRIFT_MEMORY_TICKS).exp();
        let fresh = (1.0 - memory * memory).sqrt() * self.spread;
        for value in &mut self.values {
            *value = memory * *value + fresh * self.rng.normal();
        }
        self.values.map(f64::exp)
    }
}
