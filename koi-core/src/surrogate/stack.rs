//! The whole stack on one row: members, mixture, coverage and intervals.
//!
//! The calibrated tables come in as a value, so that cross-validation can pass those of a fold.
//! The planner asks the same members through [`super::predict_on`]. Spec §4.

use serde::{Deserialize, Serialize};

use super::constants::Constants;
use super::engine_generation::EngineGeneration;
use super::interval::{self, Intervals};
use super::measured_row::RowPrediction;
use super::mixture::{self, Mixed, Mixture};
use super::neighbours::NeighbourVoice;
use super::residual::{Quantity, Residuals};
use super::situation;

/// Every calibrated table.
#[derive(Debug, Clone, Copy)]
pub struct Calibration<'a> {
    /// Constants of the analytic member.
    pub constants: &'a Constants,
    /// Forests of the residual member.
    pub residuals: &'a Residuals,
    /// Members' weights.
    pub mixture: &'a Mixture,
    /// Offsets of the 80 % intervals.
    pub intervals: &'a Intervals,
}

impl Calibration<'static> {
    /// The tables that this build carries.
    #[must_use]
    pub fn embedded() -> Self {
        Self {
            constants: Constants::embedded(),
            residuals: Residuals::embedded(),
            mixture: Mixture::embedded(),
            intervals: Intervals::embedded(),
        }
    }
}

/// One quantity of the stack's answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stacked {
    /// The members and their mixture.
    pub mixed: Mixed,
    /// Lower end of the 80 % interval.
    pub lo80: f64,
    /// Upper end.
    pub hi80: f64,
}

/// The stack's answer to one row; absent where the analytic member has no number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StackPrediction {
    /// Mean time per output token, in milliseconds.
    pub tpot_mean_ms: Option<Stacked>,
    /// Mean time to first token, in milliseconds.
    pub ttft_mean_ms: Option<Stacked>,
    /// Its 99th percentile: the analytic ratio to the mean, kept.
    pub tpot_p99_ms: Option<Stacked>,
    /// Its 99th percentile.
    pub ttft_p99_ms: Option<Stacked>,
    /// Generated tokens per second of the whole deployment.
    pub out_tok_s_system: Option<Stacked>,
}

impl Calibration<'_> {
    /// Corrects an analytic answer and says how sure the result is.
    ///
    /// `voice` gives what measured neighbours say of a quantity after the residual member.
    #[must_use]
    pub fn stack(
        &self,
        row: &RowPrediction,
        gpu: &str,
        generation: EngineGeneration,
        voice: impl Fn(Quantity) -> NeighbourVoice,
    ) -> StackPrediction {
        let seen = self.intervals.has_seen(gpu);
        let of = |quantity: Quantity, analytic: Option<f64>| {
            let analytic = analytic.filter(|a| a.is_finite() && *a > 0.0)?;
            let correction = self.residuals.forest(quantity).correction(&row.situation);
            let weights = self.mixture.weights(quantity);
            let trust = self.intervals.reliability(quantity, seen, generation);
            let share = trust.residual_share;
            let mixed = mixture::mix(analytic, correction, voice(quantity), weights, share);
            Some(Stacked {
                mixed,
                lo80: mixed.value * trust.low.exp(),
                hi80: mixed.value * trust.high.exp(),
            })
        };
        let tpot = of(Quantity::Tpot, row.tpot_mean_ms);
        let ttft = of(Quantity::Ttft, row.ttft_mean_ms);
        StackPrediction {
            tpot_p99_ms: scaled(tpot, row.tpot_mean_ms, row.tpot_p99_ms),
            ttft_p99_ms: scaled(ttft, row.ttft_mean_ms, row.ttft_p99_ms),
            tpot_mean_ms: tpot,
            ttft_mean_ms: ttft,
            out_tok_s_system: arrivals(row)
                .or_else(|| single_tokens(row, ttft))
                .or_else(|| of(Quantity::Throughput, row.out_tok_s_system)),
        }
    }
}

/// Below capacity an open load decides the throughput, and no member can know better: what comes in
/// goes out. `None` for other loads and above capacity.
fn arrivals(row: &RowPrediction) -> Option<Stacked> {
    // Above capacity neither latency is there; an answer of one token has no time between tokens.
    let is_bounded = row.tpot_mean_ms.or(row.ttft_mean_ms).is_some();
    let is_below = situation::is_open(&row.situation) && is_bounded;
    let rate = row.out_tok_s_system.filter(|r| is_below && *r > 0.0)?;
    let noise = interval::repeat_noise(Quantity::Throughput);
    Some(Stacked {
        mixed: Mixed {
            value: rate,
            analytic: rate,
            residual: rate,
            neighbours: None,
            weights: [1.0, 0.0, 0.0],
            coverage: 1.0,
        },
        lo80: rate * (-noise).exp(),
        hi80: rate * noise.exp(),
    })
}

/// Requests whose answer is one token last as long as their first token: what is kept in flight
/// over the mean TTFT comes out (Little's law), and nothing is known of it that TTFT does not say.
fn single_tokens(row: &RowPrediction, ttft: Option<Stacked>) -> Option<Stacked> {
    let in_flight = row.in_flight_of_single_tokens?;
    let ttft = ttft?;
    let rate = |ms: f64| in_flight / ms * 1e3;
    Some(Stacked {
        mixed: Mixed {
            value: rate(ttft.mixed.value),
            analytic: rate(ttft.mixed.analytic),
            residual: rate(ttft.mixed.residual),
            neighbours: ttft.mixed.neighbours.map(rate),
            ..ttft.mixed
        },
        lo80: rate(ttft.hi80),
        hi80: rate(ttft.lo80),
    })
}

/// A mean's answer carried over to a percentile by the analytic ratio of both.
fn scaled(of_mean: Option<Stacked>, mean: Option<f64>, percentile: Option<f64>) -> Option<Stacked> {
    let stacked = of_mean?;
    let ratio = (percentile? / mean?).max(1.0);
    let mixed = Mixed {
        value: stacked.mixed.value * ratio,
        analytic: stacked.mixed.analytic * ratio,
        residual: stacked.mixed.residual * ratio,
        neighbours: stacked.mixed.neighbours.map(|n| n * ratio),
        ..stacked.mixed
    };
    Some(Stacked {
        mixed,
        lo80: stacked.lo80 * ratio,
        hi80: stacked.hi80 * ratio,
    })
}
