//! Effects that exist in one place only, and how far apart two levels of a setting are.

use koi_core::catalog::Value;
use koi_core::configuration::Configuration;
use koi_core::variables::Mediator;
use koi_sim::world::Levers;

/// An effect of a setting on a mediator that the truth has in one place.
#[derive(Debug, Clone)]
pub(super) struct Hidden {
    pub(super) place: usize,
    pub(super) knob: &'static str,
    pub(super) mediator: Mediator,
    /// Level at which nothing is changed.
    pub(super) from: Value,
    /// Change of the mediator on its natural scale per unit of the setting on its own.
    pub(super) slope: f64,
}

/// Mediators that a hidden effect can take hold of.
pub(super) const REACHABLE: [Mediator; 11] = [
    Mediator::DecodeStepsPerSec,
    Mediator::QueueDepth,
    Mediator::KvcacheHitRate,
    Mediator::PdImbalance,
    Mediator::KvCacheUtil,
    Mediator::KvPressureScore,
    Mediator::RunningRequests,
    Mediator::SmUtilization,
    Mediator::MemBandwidthUtilization,
    Mediator::NvlinkBytesPerSec,
    Mediator::PerTokCommBytes,
];

/// Distance of two levels: ln ratio of positive numbers, 0/1 of flags, 1 between words.
pub(super) fn distance(from: &Value, to: &Value) -> f64 {
    let number = |value: &Value| match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Bool(_) | Value::Text(_) => None,
    };
    match (from, to) {
        (Value::Bool(a), Value::Bool(b)) => f64::from(u8::from(*b)) - f64::from(u8::from(*a)),
        (Value::Text(a), Value::Text(b)) => f64::from(u8::from(a != b)),
        _ => match number(from).zip(number(to)) {
            Some((a, b)) if a > 0.0 && b > 0.0 => (b / a).ln(),
            Some((a, b)) => b - a,
            None => 0.0,
        },
    }
}

/// Everything that is hidden in a chain.
pub(super) fn levers(
    hidden: &[Hidden],
    place: usize,
    configuration: &Configuration,
    base: Levers,
) -> Levers {
    let mut levers = base;
    for effect in hidden.iter().filter(|h| h.place == place) {
        let Some(level) = configuration.get(effect.knob) else {
            continue;
        };
        let shift = effect.slope * distance(&effect.from, level);
        pull(&mut levers, effect.mediator, shift);
    }
    levers
}

/// Moves one mediator by about so much on its natural scale.
fn pull(levers: &mut Levers, mediator: Mediator, shift: f64) {
    match mediator {
        Mediator::DecodeStepsPerSec => levers.step *= (-shift).exp(),
        // The queue is counted in requests and not in logarithms.
        Mediator::QueueDepth => levers.wait *= (2.0 * shift).exp(),
        Mediator::KvcacheHitRate => levers.hit += 0.4 * shift,
        Mediator::PdImbalance => levers.prefill *= (1.4 * shift).exp(),
        Mediator::KvCacheUtil | Mediator::KvPressureScore => levers.pool *= (-shift).exp(),
        Mediator::RunningRequests => levers.live *= shift.exp(),
        Mediator::SmUtilization => levers.activity *= shift.exp(),
        Mediator::MemBandwidthUtilization => levers.traffic *= shift.exp(),
        _ => levers.link *= shift.exp(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_lie_apart_on_their_own_scale() {
        let int = |n: i64| Value::Int(n);
        assert!((distance(&int(2), &int(8)) - 4.0_f64.ln()).abs() < 1e-12);
        assert!((distance(&Value::Float(0.9), &Value::Float(0.45)) + 2.0_f64.ln()).abs() < 1e-12);
        assert!((distance(&Value::Bool(true), &Value::Bool(false)) + 1.0).abs() < 1e-12);
        let text = |t: &str| Value::Text(t.to_owned());
        assert!((distance(&text("a"), &text("b")) - 1.0).abs() < 1e-12);
        assert!(distance(&text("a"), &text("a")).abs() < 1e-12);
    }
}
