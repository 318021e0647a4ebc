//! What no formula of sizes tells: how well an architecture gets on with a device.

use crate::model::SimModel;
use crate::rng::{SimRng, digest};

/// How well the kernels, formats and schedules for one architecture suit one device: attention of a
/// shape, routing, norms and heads run well on some and badly on others, whatever their sizes say.
/// Multipliers on times, fixed by the architecture and the type of device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ArchitectureLuck {
    /// On the arithmetic of prompts.
    pub(super) prompt: f64,
    /// On reading weights and cache, and on what every step costs besides.
    pub(super) decode: f64,
}

/// Standard deviation of ln `prompt`: that of the mean left-out error of TTFT among models on one GPU
/// type (docs/surrogate.md, "How far models lie apart").
const PROMPT_SPREAD: f64 = 0.35;
/// Standard deviation of ln `decode`: the same of TPOT.
const DECODE_SPREAD: f64 = 0.15;
/// Part of both variances that an architecture takes along to every device, measured likewise.
const SHARED_FRACTION: f64 = 0.5;
/// Standard deviations beyond which nothing is drawn.
const FURTHEST: f64 = 2.5;

impl ArchitectureLuck {
    /// Of a model on a type of device; `device` is the name of its table.
    pub(super) fn of(device: &str, model: &SimModel) -> Self {
        let name = name(model);
        let mut everywhere = SimRng::new(digest(format!("architecture/{name}").as_bytes()));
        let mut here = SimRng::new(digest(format!("architecture/{name}/{device}").as_bytes()));
        let mut factor = |spread: f64| {
            let (shared, own) = (SHARED_FRACTION.sqrt(), (1.0 - SHARED_FRACTION).sqrt());
            let deviation = shared * everywhere.normal() + own * here.normal();
            (spread * deviation.clamp(-FURTHEST, FURTHEST)).exp()
        };
        Self {
            prompt: factor(PROMPT_SPREAD),
            decode: factor(DECODE_SPREAD),
        }
    }

    /// The same everywhere: what the tables say by themselves.
    #[cfg(test)]
    pub(super) const fn even() -> Self {
        Self {
            prompt: 1.0,
            decode: 1.0,
        }
    }
}

/// What makes two models one architecture: their shape, not their name or the format of their weights.
fn name(model: &SimModel) -> String {
    let experts = model.experts.map(|e| (e.count, e.per_token, e.layers));
    format!(
        "{}/{}/{}/{}/{}/{experts:?}",
        model.hidden_size, model.layers, model.heads, model.kv_heads, model.attention_width
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{llama_8b, llama_70b};

    /// Architectures that differ in depth alone.
    fn models() -> Vec<SimModel> {
        let of = |layers| SimModel {
            layers,
            ..llama_8b()
        };
        (1..=2000).map(of).collect()
    }

    fn deviations(device: &str, of: fn(ArchitectureLuck) -> f64, spread: f64) -> Vec<f64> {
        let luck = |m: &SimModel| of(ArchitectureLuck::of(device, m)).ln() / spread;
        models().iter().map(luck).collect()
    }

    fn mean_product(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / a.len() as f64
    }

    fn check_spread(of: fn(ArchitectureLuck) -> f64, spread: f64) {
        let (a, b) = (
            deviations("H100", of, spread),
            deviations("L40S", of, spread),
        );
        for (what, found, want) in [
            ("variance", mean_product(&a, &a), 1.0),
            (
                "shared by two devices",
                mean_product(&a, &b),
                SHARED_FRACTION,
            ),
        ] {
            assert!((found - want).abs() < 0.08, "{what}: {found}, want {want}");
        }
        assert!(a.iter().all(|x| x.abs() <= FURTHEST + 1e-9));
    }

    #[test]
    fn spreads_are_those_measured_and_partly_shared() {
        check_spread(|l| l.prompt, PROMPT_SPREAD);
        check_spread(|l| l.decode, DECODE_SPREAD);
    }

    #[test]
    fn prompts_and_decoding_have_each_their_own() {
        let prompt = deviations("H100", |l| l.prompt, PROMPT_SPREAD);
        let decode = deviations("H100", |l| l.decode, DECODE_SPREAD);
        assert!(mean_product(&prompt, &decode).abs() < 0.08);
    }

    #[test]
    fn luck_belongs_to_the_shape_and_the_device() {
        let of = ArchitectureLuck::of;
        assert_eq!(of("H100", &llama_8b()), of("H100", &llama_8b()));
        let quantized = SimModel {
            precision: crate::model::Precision::Eight,
            ..llama_8b()
        };
        assert_eq!(of("H100", &llama_8b()), of("H100", &quantized));
        assert_ne!(of("H100", &llama_8b()), of("A100", &llama_8b()));
        assert_ne!(of("H100", &llama_8b()), of("H100", &llama_70b()));
    }
}
