//! How many replicas: the fewest with which peak demand leaves headroom and the predicted limits
//! hold at the shared load; for a batch, the fewest that finish in time. Spec §10.2.

use super::forecast::{Forecast, JobView, NoForecast, Place, RankPlan, forecast};
use super::scoring::Scorer;
use crate::configuration::EngineShape;
use crate::job::JobClass;
use crate::score::PreparedLimits;
use crate::variables::Outcome;

/// Most replicas that sizing looks at; with more, one pool is the wrong answer.
const REPLICAS_MAX: u32 = 256;
/// Peak utilization below which more replicas cannot help: what is left is one request's own time.
const IDLE: f64 = 0.2;
/// Fall of the breach probability below which growth has stalled.
const STALLED: f64 = 1e-3;

/// A sized rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Sized {
    /// Replicas.
    pub n_replicas: u32,
    /// What they would do.
    pub forecast: Forecast,
    /// Probability of a breach.
    pub breach_probability: f64,
    /// Headroom at peak and breach probability are both as wanted.
    pub meets: bool,
}

/// One sizing question.
#[derive(Debug, Clone, Copy)]
pub struct SizeInput<'a> {
    /// Job.
    pub view: &'a JobView<'a>,
    /// Where.
    pub place: Place<'a>,
    /// How.
    pub shape: EngineShape,
    /// The job's limits where its rank would stand.
    pub limits: &'a PreparedLimits,
    /// Largest number of chains that the pool could ever hold.
    pub chains_max: u32,
}

struct Sizing<'a> {
    input: &'a SizeInput<'a>,
    scorer: &'a Scorer<'a>,
    least: u32,
    most: u32,
}

/// Sizes one shape at one place.
///
/// # Errors
/// [`NoForecast`] when the shape does not fit or is not supported.
pub fn size(input: &SizeInput<'_>, scorer: &Scorer<'_>) -> Result<Sized, NoForecast> {
    let constraints = &input.view.record.spec.constraints;
    let least = constraints.min_replicas.max(1);
    let most = constraints
        .max_replicas
        .min(input.chains_max)
        .min(REPLICAS_MAX)
        .max(least);
    let sizing = Sizing {
        input,
        scorer,
        least,
        most,
    };
    let one = sizing.at(least)?;
    if one.meets || least == most {
        return Ok(one);
    }
    let start = sizing.by_capacity(&one);
    let mut low = least;
    let mut best = if start == least {
        one
    } else {
        sizing.at(start)?
    };
    let mut stride = 1;
    while !best.meets && best.n_replicas < most {
        let next = sizing.at((best.n_replicas + stride).min(most))?;
        let stalled = next.breach_probability > best.breach_probability - STALLED;
        if !next.meets && stalled && is_idle(&next) {
            return Ok(best);
        }
        low = best.n_replicas;
        best = next;
        stride *= 2;
    }
    sizing.narrow(low, best)
}

fn is_idle(sized: &Sized) -> bool {
    sized
        .forecast
        .summary
        .peak_utilization
        .is_some_and(|u| u < IDLE)
}

/// Forecasts a fixed number of replicas.
///
/// # Errors
/// [`NoForecast`] when the shape does not fit or is not supported.
pub fn size_fixed(input: &SizeInput<'_>, n: u32, scorer: &Scorer<'_>) -> Result<Sized, NoForecast> {
    Sizing {
        input,
        scorer,
        least: n,
        most: n,
    }
    .at(n)
}

impl Sizing<'_> {
    fn at(&self, n_replicas: u32) -> Result<Sized, NoForecast> {
        let SizeInput {
            view,
            place,
            shape,
            limits,
            ..
        } = *self.input;
        let rank = RankPlan {
            place,
            shape,
            n_replicas,
        };
        let forecast = forecast(view, &[rank], true)?;
        let params = self.scorer.context.params;
        let breach_probability = limits.any(&forecast.summary.outcomes, params);
        let meets = self
            .scorer
            .meets(view, &forecast.summary, breach_probability);
        Ok(Sized {
            n_replicas,
            forecast,
            breach_probability,
            meets,
        })
    }

    /// The number that capacity alone asks for.
    fn by_capacity(&self, one: &Sized) -> u32 {
        let n = f64::from(one.n_replicas);
        let wanted = match self.input.view.record.spec.class {
            JobClass::Online => {
                let utilization = one.forecast.summary.peak_utilization.unwrap_or(0.0);
                n * utilization / self.scorer.context.params.utilization_max
            }
            JobClass::Batch => {
                let progress = self
                    .input
                    .view
                    .progress_after(one.forecast.summary.cold_start_seconds);
                let rate = one
                    .forecast
                    .summary
                    .outcomes
                    .get(Outcome::ThroughputTokensPerSec);
                match (progress, rate) {
                    (Some(p), Some(rate)) if p.seconds_left > 0.0 => {
                        n * p.tokens_left / (rate * p.seconds_left)
                    }
                    // Past its deadline any size is late, and the smallest is the cheapest.
                    _ => n,
                }
            }
        };
        if wanted.is_finite() {
            (wanted.ceil() as u32).clamp(self.least, self.most)
        } else {
            self.most
        }
    }

    /// Halves the gap between a number that is too small and one that suffices.
    fn narrow(&self, mut low: u32, mut best: Sized) -> Result<Sized, NoForecast> {
        while best.meets && low + 1 < best.n_replicas {
            let middle = self.at(low.midpoint(best.n_replicas))?;
            if middle.meets {
                best = middle;
            } else {
                low = middle.n_replicas;
            }
        }
        Ok(best)
    }
}
