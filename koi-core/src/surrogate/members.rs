//! What every member said of one planned deployment, kept with the prediction it led to.
//!
//! Corrections are logarithms and add up; what stands here is enough to say the same again at another
//! load, which is what a verdict on a deployment does ([`super::predict_frozen`]). Spec §4.

use serde::{Deserialize, Serialize};

use super::Prediction;
use super::neighbours::{NeighbourVoice, Spot};
use super::residual::Quantity;

/// What the learned members said of one quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Voices {
    /// The forests' correction in full.
    pub forests: f64,
    /// Share of it that is believed.
    pub forests_share: f64,
    /// Measured points of the scope, as far as they are believed.
    pub neighbours: NeighbourVoice,
    /// What this fleet's own deployments showed beyond both.
    pub own: NeighbourVoice,
    /// Offsets of the 80 % interval.
    pub low: f64,
    /// Upper offset.
    pub high: f64,
}

impl Voices {
    /// ln(what is predicted / what first principles say).
    #[must_use]
    pub fn shift(&self) -> f64 {
        self.forests_share * self.forests + self.neighbours.correction + self.own.correction
    }
}

/// What the learned members said of one deployment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Members {
    /// Where it lies within its scope.
    pub spot: Spot,
    /// By [`Quantity::index`].
    pub voices: [Voices; 3],
}

impl Members {
    /// What was said of a quantity.
    #[must_use]
    pub const fn of(&self, quantity: Quantity) -> &Voices {
        let [tpot, ttft, throughput] = &self.voices;
        match quantity {
            Quantity::Tpot => tpot,
            Quantity::Ttft => ttft,
            Quantity::Throughput => throughput,
        }
    }

    /// Corrections of time per output token, time to first token and throughput.
    #[must_use]
    pub fn shifts(&self) -> [f64; 3] {
        self.voices.map(|v| v.shift())
    }

    /// One sentence per predicted quantity: what each member said, and the interval.
    #[must_use]
    pub fn lines(&self, prediction: &Prediction) -> Vec<String> {
        let throughput = prediction
            .outcomes
            .get(crate::variables::Outcome::ThroughputTokensPerSec)
            .filter(|_| !self.spot.is_open());
        let said = [
            (Quantity::Ttft, "mean TTFT", "ms", prediction.ttft_mean_ms),
            (Quantity::Tpot, "mean TPOT", "ms", prediction.tpot_mean_ms),
            (Quantity::Throughput, "throughput", "tokens/s", throughput),
        ];
        let line = |(quantity, name, unit, value): (Quantity, &str, &str, Option<f64>)| {
            Some(sentence(self.of(quantity), (name, unit), value?))
        };
        said.into_iter().filter_map(line).collect()
    }
}

fn sentence(v: &Voices, (name, unit): (&str, &str), value: f64) -> String {
    let analytic = value / v.shift().exp();
    let heard = |who: &str, voice: &NeighbourVoice| {
        if voice.coverage < 0.005 {
            return format!("{who} silent");
        }
        let factor = voice.correction.exp();
        format!("{who} ×{factor:.3} (coverage {:.2})", voice.coverage)
    };
    format!(
        "{name} {value:.1} {unit}: first principles {analytic:.1}, forests ×{:.3} (believed {:.0} %), {}, {}; 80 % between {:.1} and {:.1}",
        v.forests.exp(),
        100.0 * v.forests_share,
        heard("neighbours", &v.neighbours),
        heard("own deployments", &v.own),
        value * v.low.exp(),
        value * v.high.exp(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_every_member_and_silence() {
        let voices = Voices {
            forests: 0.1,
            forests_share: 0.0,
            neighbours: NeighbourVoice::default(),
            own: NeighbourVoice {
                correction: 2.0_f64.ln(),
                coverage: 0.9,
            },
            low: -0.5,
            high: 0.5,
        };
        let text = sentence(&voices, ("mean TPOT", "ms"), 20.0);
        assert_eq!(
            text,
            "mean TPOT 20.0 ms: first principles 10.0, forests ×1.105 (believed 0 %), neighbours silent, \
             own deployments ×2.000 (coverage 0.90); 80 % between 12.1 and 33.0"
        );
    }
}
