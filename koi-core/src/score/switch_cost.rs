//! Churn: what it costs in USD to replace a live ladder, and that on J's scale.
//!
//! White paper V1, The Cluster Objective; spec §7, SwitchCost.

use serde::{Deserialize, Serialize};

use crate::params::Params;

/// The part of the running ladder that a change stops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoppedPart {
    /// The whole job's cost now.
    pub job_usd_per_hour: f64,
    /// Price of the chains that stop.
    pub usd_per_hour: f64,
    /// How many replicas stop.
    pub n_replicas: u32,
    /// Probability that the transition breaks the SLO, 0..=1.
    pub breach_probability: f64,
}

/// One change of one job; chains that stay as they are appear on neither side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SwitchCostInput {
    /// Price of the chains that start; unpriced GPUs at the catalog's reference price.
    pub started_usd_per_hour: f64,
    /// Time until they serve.
    pub cold_start_seconds: f64,
    /// The candidate ladder's cost.
    pub candidate_usd_per_hour: f64,
    /// What stops; `None` for a first placement, which pays the cold start only.
    pub stopped: Option<StoppedPart>,
}

/// The cost of a change and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SwitchCost {
    /// Price of new chains before they serve.
    pub cold_start_usd: f64,
    /// Old and new side by side during the canary.
    pub parallel_usd: f64,
    /// Tearing the old replicas down.
    pub kill_usd: f64,
    /// USD at stake times the probability that the transition breaks the SLO.
    pub risk_usd: f64,
    /// Sum of the four.
    pub total_usd: f64,
    /// What an hour of the job costs: the divisor.
    pub job_usd_per_hour: f64,
    /// The total in hours of the job's cost: the number on J's scale.
    pub hours_of_cost: f64,
}

/// The job has no price to measure a change by.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "hourly cost {usd_per_hour} USD is not a positive number: price the GPUs or their reference"
)]
pub struct NotPriced {
    /// The hourly cost offered.
    pub usd_per_hour: f64,
}

/// What a change of one job costs.
///
/// # Formula
/// (cold start · price + canary · (old + new price) + kill · replicas + stake · Pr) / (hourly cost
/// · 1 h)
///
/// # Units
/// USD, seconds, USD per hour; `hours_of_cost` has none.
///
/// # Errors
/// [`NotPriced`] when the job's hourly cost is not a positive number.
///
/// # Source
/// White paper V1, The Cluster Objective; spec §7
pub fn switch_cost(input: &SwitchCostInput, params: &Params) -> Result<SwitchCost, NotPriced> {
    let job_usd_per_hour = input
        .stopped
        .map_or(input.candidate_usd_per_hour, |s| s.job_usd_per_hour);
    if !(job_usd_per_hour > 0.0 && job_usd_per_hour.is_finite()) {
        return Err(NotPriced {
            usd_per_hour: job_usd_per_hour,
        });
    }
    let cold_start_usd = hours(input.cold_start_seconds) * input.started_usd_per_hour;
    let (parallel_usd, kill_usd, risk_usd) = match input.stopped {
        None => (0.0, 0.0, 0.0),
        Some(stopped) => {
            // Without a new chain there is nothing to compare, hence no canary.
            let has_canary = input.started_usd_per_hour > 0.0;
            let both = stopped.usd_per_hour + input.started_usd_per_hour;
            let at_stake = params.stake_hours * stopped.job_usd_per_hour;
            (
                if has_canary {
                    hours(params.canary_seconds) * both
                } else {
                    0.0
                },
                params.kill_usd_per_replica * f64::from(stopped.n_replicas),
                at_stake * stopped.breach_probability.clamp(0.0, 1.0),
            )
        }
    };
    let total_usd = cold_start_usd + parallel_usd + kill_usd + risk_usd;
    Ok(SwitchCost {
        cold_start_usd,
        parallel_usd,
        kill_usd,
        risk_usd,
        total_usd,
        job_usd_per_hour,
        hours_of_cost: total_usd / job_usd_per_hour,
    })
}

fn hours(seconds: f64) -> f64 {
    seconds / 3600.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap() -> SwitchCostInput {
        SwitchCostInput {
            started_usd_per_hour: 8.0,
            cold_start_seconds: 180.0,
            candidate_usd_per_hour: 8.0,
            stopped: Some(StoppedPart {
                job_usd_per_hour: 4.0,
                usd_per_hour: 4.0,
                n_replicas: 2,
                breach_probability: 0.1,
            }),
        }
    }

    #[test]
    fn a_swap_pays_all_four_parts() {
        // 0.05 h · 8 + (1/12) h · 12 + 2 · 0.02 + 0.1 · 4 = 0.4 + 1.0 + 0.04 + 0.4, over 4.
        let cost = switch_cost(&swap(), &Params::default()).unwrap();
        assert!((cost.total_usd - 1.84).abs() < 1e-12, "{cost:?}");
        assert!((cost.hours_of_cost - 0.46).abs() < 1e-12, "{cost:?}");
    }

    #[test]
    fn a_first_placement_pays_its_cold_start_only() {
        let first = SwitchCostInput {
            stopped: None,
            ..swap()
        };
        let cost = switch_cost(&first, &Params::default()).unwrap();
        assert!((cost.total_usd - 0.4).abs() < 1e-12);
        assert!((cost.hours_of_cost - 0.05).abs() < 1e-12);
    }

    #[test]
    fn a_job_without_a_price_is_an_error_and_not_free() {
        let free = SwitchCostInput {
            stopped: None,
            candidate_usd_per_hour: 0.0,
            ..swap()
        };
        assert!(switch_cost(&free, &Params::default()).is_err());
        let nan = SwitchCostInput {
            candidate_usd_per_hour: f64::NAN,
            ..free
        };
        assert!(switch_cost(&nan, &Params::default()).is_err());
    }
}
