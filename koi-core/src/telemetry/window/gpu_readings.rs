//! A replica's GPUs as counters and gauges. Not the engine's own series.

use std::collections::{BTreeMap, BTreeSet};

use crate::gpu::GpuReading;
use crate::telemetry::series::{CounterSeries, GaugeSeries};

/// GPUs read of one replica.
const MAX_GPUS: usize = 64;
/// GPU counters of a window.
const GPU_COUNTERS: [CounterSeries; 3] = [
    CounterSeries::EnergyMillijoules,
    CounterSeries::NvlinkTxBytes,
    CounterSeries::PcieTxBytes,
];
/// GPU gauges of a window.
const GPU_GAUGES: [GaugeSeries; 5] = [
    GaugeSeries::GpuMemoryUsedBytes,
    GaugeSeries::GpuUtilization,
    GaugeSeries::GpuPowerW,
    GaugeSeries::TensorActive,
    GaugeSeries::MemoryBandwidth,
];

/// The readings that matter to a window.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct GpuState {
    counters: BTreeMap<String, BTreeMap<CounterSeries, u64>>,
    gauges: BTreeMap<GaugeSeries, f64>,
}

impl GpuState {
    pub(super) fn new(readings: &[GpuReading]) -> Self {
        let readings = &readings[..readings.len().min(MAX_GPUS)];
        let counters = readings
            .iter()
            .map(|r| (r.uuid.clone(), counters_of(r)))
            .collect();
        let gauges = GPU_GAUGES
            .into_iter()
            .filter_map(|s| Some((s, gauge(s, readings)?)))
            .collect();
        Self { counters, gauges }
    }

    pub(super) fn count(&self) -> u32 {
        self.counters.len() as u32
    }

    pub(super) fn gauges(&self) -> &BTreeMap<GaugeSeries, f64> {
        &self.gauges
    }

    pub(super) fn same_gpus(&self, other: &Self) -> bool {
        self.counters.keys().eq(other.counters.keys())
    }

    /// Counters that some GPU's `later` reading has lower than this one.
    pub(super) fn went_backwards(&self, later: &Self) -> BTreeSet<CounterSeries> {
        let fell = |series: &CounterSeries| {
            self.counters.iter().any(|(uuid, values)| {
                let now = later.counters.get(uuid).and_then(|c| c.get(series));
                matches!((values.get(series), now), (Some(then), Some(now)) if now < then)
            })
        };
        GPU_COUNTERS.into_iter().filter(fell).collect()
    }

    /// Growth since `earlier`, summed over the GPUs; a counter that any of them lacks is absent.
    pub(super) fn growth_since(&self, earlier: &Self) -> BTreeMap<CounterSeries, u64> {
        if self.counters.is_empty() || !self.same_gpus(earlier) {
            return BTreeMap::new();
        }
        let growth = |series: CounterSeries| {
            self.counters.iter().try_fold(0_u64, |sum, (uuid, values)| {
                let then = *earlier.counters.get(uuid)?.get(&series)?;
                sum.checked_add(values.get(&series)?.checked_sub(then)?)
            })
        };
        GPU_COUNTERS
            .into_iter()
            .filter_map(|s| Some((s, growth(s)?)))
            .collect()
    }
}

fn counters_of(reading: &GpuReading) -> BTreeMap<CounterSeries, u64> {
    let value = |series| match series {
        CounterSeries::EnergyMillijoules => reading.energy_millijoules,
        CounterSeries::NvlinkTxBytes => reading.nvlink_tx_bytes,
        _ => reading.pcie_tx_bytes,
    };
    GPU_COUNTERS
        .into_iter()
        .filter_map(|s| Some((s, value(s)?)))
        .collect()
}

/// Mean over the GPUs (power: sum); `None` when any of them lacks the value or has it out of range.
fn gauge(series: GaugeSeries, readings: &[GpuReading]) -> Option<f64> {
    let sum = readings
        .iter()
        .try_fold(0.0, |sum, r| Some(sum + gauge_of(series, r)?))?;
    let divisor = if series == GaugeSeries::GpuPowerW {
        1.0
    } else {
        readings.len() as f64
    };
    (!readings.is_empty()).then(|| sum / divisor)
}

fn gauge_of(series: GaugeSeries, reading: &GpuReading) -> Option<f64> {
    let fraction = |x: Option<f64>| x.filter(|x| (0.0..=1.0).contains(x));
    match series {
        GaugeSeries::GpuMemoryUsedBytes => reading.memory_used_bytes.map(|b| b as f64),
        GaugeSeries::GpuUtilization => fraction(reading.utilization_fraction),
        GaugeSeries::GpuPowerW => reading.power_w.filter(|w| w.is_finite() && *w >= 0.0),
        GaugeSeries::TensorActive => fraction(reading.tensor_active_fraction),
        GaugeSeries::MemoryBandwidth => fraction(reading.memory_bandwidth_fraction),
        GaugeSeries::RunningRequests | GaugeSeries::WaitingRequests | GaugeSeries::KvCacheUsage => {
            None
        }
    }
}
