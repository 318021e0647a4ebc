//! How busy the devices are: sums over steps, written to the GPU folder about once a second while
//! there is work and every five seconds while there is none.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use koi_sim::truth::{StepCost, Truth};

use crate::clock::wall_clock;
use crate::gpu_folder::{DeviceActivity, GpuFolder};
use crate::log::{Speaker, log};

const BUSY_INTERVAL: Duration = Duration::from_secs(1);
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

/// Time-weighted sums since the last write.
#[derive(Debug, Default, Clone, Copy)]
struct Sums {
    busy_s: f64,
    tensor_active_s: f64,
    memory_bandwidth_s: f64,
    link_bytes: f64,
}

/// Shared by the engine's thread, which adds, and the meter's, which writes.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    sums: Mutex<Sums>,
    has_work: Condvar,
}

impl Meter {
    /// Adds a finished step.
    pub(crate) fn record(&self, cost: &StepCost) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let was_idle = sums.busy_s == 0.0;
        sums.busy_s += cost.seconds;
        sums.tensor_active_s += cost.tensor_active_fraction * cost.seconds;
        sums.memory_bandwidth_s += cost.memory_bandwidth_fraction * cost.seconds;
        sums.link_bytes += cost.link_bytes_per_device;
        if was_idle {
            self.has_work.notify_one();
        }
    }

    /// Writes for as long as the process lives.
    pub(crate) fn run(&self, folder: &GpuFolder, memory_bytes: u64, truth: &Truth) {
        let mut last_write = Instant::now();
        let mut complained = false;
        loop {
            self.wait_for_next_write();
            let elapsed_s = last_write.elapsed().as_secs_f64();
            last_write = Instant::now();
            let activity = self.take(elapsed_s, truth);
            let written = folder
                .write_holders(memory_bytes, &activity)
                .and_then(|()| folder.add_to_counters(wall_clock(), &activity));
            if let Err(error) = &written
                && !complained
            {
                log(
                    Speaker::EngineCore,
                    "WARNING",
                    &format!("GPU counters are not written: {error}"),
                );
            }
            complained = written.is_err();
        }
    }

    /// A second after work began, or five seconds without any.
    fn wait_for_next_write(&self) {
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = self
            .has_work
            .wait_timeout_while(sums, IDLE_INTERVAL, |sums| sums.busy_s == 0.0);
        let timed_out = idle.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        if !timed_out {
            std::thread::sleep(BUSY_INTERVAL);
        }
    }

    fn take(&self, elapsed_s: f64, truth: &Truth) -> DeviceActivity {
        let mut guard = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let sums = std::mem::take(&mut *guard);
        drop(guard);
        // A step longer than the interval is counted in the one it ends in.
        let window_s = elapsed_s.max(sums.busy_s).max(1e-3);
        let utilization_fraction = sums.busy_s / window_s;
        let tensor_active_fraction = sums.tensor_active_s / window_s;
        let memory_bandwidth_fraction = sums.memory_bandwidth_s / window_s;
        let extra_power_w = truth.extra_power_w(
            utilization_fraction,
            tensor_active_fraction,
            memory_bandwidth_fraction,
        );
        DeviceActivity {
            utilization_fraction,
            tensor_active_fraction,
            memory_bandwidth_fraction,
            extra_power_w,
            extra_energy_joules: extra_power_w * window_s,
            link_bytes: sums.link_bytes,
        }
    }
}
