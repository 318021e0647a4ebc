//! How far a prediction may be off: conformal 80 % intervals in log space.
//!
//! The offsets are quantiles of errors on rows that were left out, whole models or whole GPU types
//! at a time, so they say what the stack did on ground it had not seen. Never narrower than what a
//! repeated measurement shows. Not a guarantee for an engine that nobody measured. Spec §4.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::engine_generation::EngineGeneration;
use super::residual::Quantity;

/// Half-width in log space below which no interval goes: repeats of one measurement differ by
/// 0.25 % in throughput and TPOT and by 2.3 % in p99 TTFT.
const REPEAT_NOISE: [f64; 3] = [0.0025, 0.023, 0.0025];

/// One cell of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntervalRow {
    /// The quantity.
    pub quantity: Quantity,
    /// Whether the GPU type is among those that were fitted on.
    pub gpu_seen: bool,
    /// The engine generation; absent for all together.
    pub generation: Option<EngineGeneration>,
    /// Share of the forests' correction that helped on left-out ground, 0..=1.
    pub residual_share: f64,
    /// 10 % quantile of ln(measured / predicted).
    pub low: f64,
    /// 90 % quantile.
    pub high: f64,
    /// Rows behind it.
    pub n: u32,
}

/// How far the forests are believed and how far the result may be off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reliability {
    /// Share of the forests' correction, 0..=1.
    pub residual_share: f64,
    /// Lower offset of the 80 % interval, in log space.
    pub low: f64,
    /// Upper offset.
    pub high: f64,
}

/// The table of offsets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// How and when the numbers were found.
    pub fitted: String,
    /// Catalog ids and measured names of the GPU types that were fitted on.
    pub seen_gpus: Vec<String>,
    /// Cells.
    #[serde(default)]
    pub interval: Vec<IntervalRow>,
}

/// Cells with fewer rows are not trusted alone.
pub const MIN_CELL_ROWS: u32 = 40;
/// Offsets where the table has nothing: a factor of two either way.
const IGNORANCE: f64 = 0.7;

const EMBEDDED: &str = include_str!("../../../configs/calibration/intervals.toml");

/// By how much repeats of one measurement differ, in log space.
#[must_use]
pub fn repeat_noise(quantity: Quantity) -> f64 {
    REPEAT_NOISE.get(quantity.index()).copied().unwrap_or(0.0)
}

impl Intervals {
    /// The table that this build carries.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static INTERVALS: LazyLock<Intervals> = LazyLock::new(|| {
            Intervals::parse(EMBEDDED).expect("invariant: a test parses the embedded table")
        });
        &INTERVALS
    }

    /// Reads the table from TOML.
    ///
    /// # Errors
    /// What is malformed, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let is_sane = |row: &IntervalRow| {
            row.low.is_finite()
                && row.high.is_finite()
                && row.low <= row.high
                && (0.0..=1.0).contains(&row.residual_share)
        };
        match table.interval.iter().find(|row| !is_sane(row)) {
            Some(row) => Err(format!("{row:?} is no interval")),
            None => Ok(table),
        }
    }

    /// What left-out rows say of a quantity on an engine.
    #[must_use]
    pub fn reliability(
        &self,
        quantity: Quantity,
        gpu_seen: bool,
        generation: EngineGeneration,
    ) -> Reliability {
        let cells = || {
            self.interval
                .iter()
                .filter(|row| row.quantity == quantity && row.gpu_seen == gpu_seen)
        };
        let own = cells().find(|r| r.generation == Some(generation) && r.n >= MIN_CELL_ROWS);
        let all = || cells().find(|row| row.generation.is_none());
        let noise = repeat_noise(quantity);
        let (share, low, high) = own
            .or_else(all)
            .map_or((0.0, -IGNORANCE, IGNORANCE), |row| {
                (row.residual_share, row.low, row.high)
            });
        Reliability {
            residual_share: share,
            low: low.min(-noise),
            high: high.max(noise),
        }
    }

    /// Whether a GPU of this name was fitted on.
    #[must_use]
    pub fn has_seen(&self, gpu: &str) -> bool {
        self.seen_gpus.iter().any(|g| g.eq_ignore_ascii_case(gpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(generation: Option<EngineGeneration>, low: f64, high: f64, n: u32) -> IntervalRow {
        IntervalRow {
            quantity: Quantity::Tpot,
            gpu_seen: true,
            generation,
            residual_share: 0.5,
            low,
            high,
            n,
        }
    }

    #[test]
    fn a_generations_own_cell_wins_when_it_has_rows() {
        let table = Intervals {
            interval: vec![
                cell(None, -0.3, 0.4, 900),
                cell(Some(EngineGeneration::VllmV1), -0.1, 0.2, 200),
                cell(Some(EngineGeneration::Sglang), -0.01, 0.01, 3),
            ],
            ..Intervals::default()
        };
        let of = |seen, generation| {
            let r = table.reliability(Quantity::Tpot, seen, generation);
            (r.low, r.high)
        };
        assert_eq!(of(true, EngineGeneration::VllmV1), (-0.1, 0.2));
        assert_eq!(of(true, EngineGeneration::Sglang), (-0.3, 0.4));
        assert_eq!(of(false, EngineGeneration::VllmV1), (-IGNORANCE, IGNORANCE));
    }

    #[test]
    fn no_interval_is_narrower_than_repeats_of_the_measurement() {
        let table = Intervals {
            interval: vec![cell(None, 0.0, 1e-9, 900)],
            ..Intervals::default()
        };
        let r = table.reliability(Quantity::Tpot, true, EngineGeneration::VllmV1);
        assert!(r.low <= -0.0025 && r.high >= 0.0025);
    }

    #[test]
    fn the_embedded_table_parses() {
        assert!(!Intervals::parse(EMBEDDED).unwrap().fitted.is_empty());
    }
}
