//! Seeded arrivals and lengths for scenarios and benches.

use koi_core::time::{MICROS_PER_SECOND, UtcMicros};

use crate::rng::SimRng;

/// How requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Independent arrivals.
    Poisson {
        /// Mean requests per second.
        rate_rps: f64,
    },
    /// Gaps with a gamma distribution: bursts when the coefficient of variation is above 1.
    Bursty {
        /// Mean requests per second.
        rate_rps: f64,
        /// Standard deviation of the gaps over their mean.
        coefficient_of_variation: f64,
    },
}

/// Distribution of token counts: log-normal with this mean, between two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lengths {
    /// Mean in tokens before the bounds apply.
    pub mean_tokens: f64,
    /// Standard deviation of the logarithm; 0 for a constant.
    pub log_spread: f64,
    /// Least.
    pub min_tokens: u32,
    /// Most.
    pub max_tokens: u32,
}

/// A stream of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Arrival process.
    pub arrivals: Arrivals,
    /// Whole prompt lengths.
    pub prompt: Lengths,
    /// Answer lengths.
    pub answer: Lengths,
    /// Tokens that prompts share with others of the same prefix.
    pub shared_prefix_tokens: u32,
    /// Number of different prefixes, chosen with equal chance; 0 counts as 1.
    pub n_prefixes: u32,
}

/// One generated request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// When it arrives.
    pub at: UtcMicros,
    /// Which prefix it starts with.
    pub prefix: u32,
    /// Prefix length, at most the prompt's.
    pub prefix_tokens: u32,
    /// Whole prompt length.
    pub prompt_tokens: u32,
    /// Answer length.
    pub answer_tokens: u32,
}

impl Arrivals {
    /// Seconds to the next arrival; `None` when the rate is not a positive number.
    fn gap_s(self, rng: &mut SimRng) -> Option<f64> {
        let (rate, gap) = match self {
            Self::Poisson { rate_rps } => (rate_rps, rng.exponential()),
            Self::Bursty {
                rate_rps,
                coefficient_of_variation,
            } => {
                let shape = coefficient_of_variation.powi(-2);
                let usable = shape.is_finite() && shape > 0.0;
                (
                    rate_rps,
                    if usable {
                        rng.gamma(shape) / shape
                    } else {
                        1.0
                    },
                )
            }
        };
        (rate.is_finite() && rate > 0.0).then(|| gap / rate)
    }
}

impl Lengths {
    fn draw(self, rng: &mut SimRng) -> u32 {
        let log_mean = self.mean_tokens.max(1.0).ln() - self.log_spread * self.log_spread / 2.0;
        let tokens = (log_mean + self.log_spread * rng.normal()).exp();
        (tokens.round() as u32).clamp(self.min_tokens, self.max_tokens.max(self.min_tokens))
    }
}

impl Workload {
    /// The requests of `duration_s` seconds from `start`, in order; none when the rate is not a
    /// positive number. At most `limit` of them, so that a wrong rate cannot fill the memory.
    #[must_use]
    pub fn generate(
        &self,
        seed: u64,
        start: UtcMicros,
        duration_s: f64,
        limit: usize,
    ) -> Vec<Planned> {
        let mut rng = SimRng::new(seed);
        let mut planned = Vec::new();
        let mut elapsed_s = 0.0;
        while planned.len() < limit {
            let Some(gap) = self.arrivals.gap_s(&mut rng) else {
                break;
            };
            elapsed_s += gap;
            if elapsed_s >= duration_s {
                break;
            }
            let prompt_tokens = self.prompt.draw(&mut rng).max(1);
            planned.push(Planned {
                at: UtcMicros(start.0 + (elapsed_s * MICROS_PER_SECOND as f64) as i64),
                prefix: rng.below(u64::from(self.n_prefixes.max(1))) as u32,
                prefix_tokens: self.shared_prefix_tokens.min(prompt_tokens - 1),
                prompt_tokens,
                answer_tokens: self.answer.draw(&mut rng).max(1),
            });
        }
        planned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(arrivals: Arrivals) -> Workload {
        let lengths = Lengths {
            mean_tokens: 400.0,
            log_spread: 0.8,
            min_tokens: 4,
            max_tokens: 8000,
        };
        Workload {
            arrivals,
            prompt: lengths,
            answer: lengths,
            shared_prefix_tokens: 100,
            n_prefixes: 3,
        }
    }

    fn gap_variation(planned: &[Planned]) -> f64 {
        let gaps: Vec<f64> = planned
            .windows(2)
            .map(|w| w[1].at.seconds_since(w[0].at))
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        variance.sqrt() / mean
    }

    #[test]
    fn rates_lengths_and_bursts_come_out() {
        let start = UtcMicros(5);
        let calm =
            workload(Arrivals::Poisson { rate_rps: 20.0 }).generate(1, start, 500.0, 1 << 20);
        assert!((9_500..10_500).contains(&calm.len()), "{}", calm.len());
        let mean = calm.iter().map(|p| f64::from(p.prompt_tokens)).sum::<f64>() / calm.len() as f64;
        assert!((370.0..430.0).contains(&mean), "{mean}");
        assert!(
            calm.iter()
                .all(|p| p.prefix < 3 && p.prefix_tokens < p.prompt_tokens)
        );
        assert!((gap_variation(&calm) - 1.0).abs() < 0.1);
        let bursty = Arrivals::Bursty {
            rate_rps: 20.0,
            coefficient_of_variation: 2.0,
        };
        assert!(gap_variation(&workload(bursty).generate(1, start, 500.0, 1 << 20)) > 1.7);
    }

    #[test]
    fn seeds_decide_and_nonsense_gives_nothing() {
        let calm = workload(Arrivals::Poisson { rate_rps: 5.0 });
        let start = UtcMicros(0);
        assert_eq!(
            calm.generate(3, start, 60.0, 1000),
            calm.generate(3, start, 60.0, 1000)
        );
        assert_ne!(
            calm.generate(3, start, 60.0, 1000),
            calm.generate(4, start, 60.0, 1000)
        );
        assert_eq!(calm.generate(3, start, 60.0, 7).len(), 7);
        let broken = workload(Arrivals::Poisson { rate_rps: f64::NAN });
        assert!(broken.generate(3, start, 60.0, 1000).is_empty());
    }
}
