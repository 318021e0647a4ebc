//! A candidate host and its raw signals. Not the order (`order.rs`). ADR-0007 D2; spec §15.

use serde::{Deserialize, Serialize};

use crate::ids::HostId;
use crate::time::UtcMicros;

/// Lifecycle of a model's weights on a node, coldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Warmth {
    /// Nothing of the model is there.
    Cold,
    /// Weights are on their way or a replica is starting.
    Warming,
    /// The model is served and ready on the node, or its weights are resident.
    Warm,
}

/// A raw observed value with its observation time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// As reported; may be anything.
    pub value: f64,
    /// When it was observed.
    pub observed_at: UtcMicros,
}

/// Signals of a node; each may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct NodeSignals {
    /// Share of prefix-cache queries answered from cache, 0..=1; more is better.
    pub kv_cache_hit_rate: Option<Signal>,
    /// Generated tokens per joule, at least 0; more is better.
    pub tokens_per_joule: Option<Signal>,
    /// Share of time the GPUs ran a kernel, 0..=1; less is better.
    pub gpu_utilization: Option<Signal>,
    /// Replicas that serve on the node, at least 0; less is better.
    pub active_service_count: Option<Signal>,
}

/// One host that could take the replica. The caller has already left out hosts that are cordoned,
/// lost, or of another environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeCandidate {
    /// The host.
    pub name: HostId,
    /// Warmth for the model to be placed.
    pub warmth: Warmth,
    /// GPUs that nobody holds or has reserved.
    pub free_gpus: u32,
    /// Raw signals.
    pub signals: NodeSignals,
}

/// How to order the candidates; set per job.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PlacementStrategy {
    /// warmth, then fewer services, then less utilization.
    #[default]
    WarmthFirst,
    /// warmth, cache hit rate, tokens per joule, less utilization, fewer services.
    EfficiencyAware,
}

/// What a placement decision goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementPolicy {
    /// The order.
    pub strategy: PlacementStrategy,
    /// Time of the decision.
    pub now: UtcMicros,
    /// Older signals count as absent.
    pub signal_max_age_seconds: u32,
}

/// Report interval of a node's state.
pub const NODE_STATE_SECONDS: u32 = 15;
/// Default of [`PlacementPolicy::signal_max_age_seconds`]: four reports.
pub const DEFAULT_SIGNAL_MAX_AGE_SECONDS: u32 = 4 * NODE_STATE_SECONDS;

/// Signals inside their domain and young enough; everything else is absent.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ValidSignals {
    /// 0..=1.
    pub kv_cache_hit_rate: Option<f64>,
    /// At least 0.
    pub tokens_per_joule: Option<f64>,
    /// 0..=1.
    pub gpu_utilization: Option<f64>,
    /// At least 0.
    pub active_service_count: Option<f64>,
}

impl NodeSignals {
    /// The values that may be used at `policy.now`; a value from the future is as unknown as an old
    /// one, beyond the same age.
    #[must_use]
    pub fn valid(&self, policy: &PlacementPolicy) -> ValidSignals {
        let usable = |signal: Option<Signal>, highest: f64| {
            let signal = signal?;
            let age = policy.now.seconds_since(signal.observed_at).abs();
            let young = age <= f64::from(policy.signal_max_age_seconds);
            let in_domain = signal.value.is_finite() && (0.0..=highest).contains(&signal.value);
            // Adding zero makes minus zero zero: they are one value and must compare equal.
            (young && in_domain).then_some(signal.value + 0.0)
        };
        ValidSignals {
            kv_cache_hit_rate: usable(self.kv_cache_hit_rate, 1.0),
            tokens_per_joule: usable(self.tokens_per_joule, f64::MAX),
            gpu_utilization: usable(self.gpu_utilization, 1.0),
            active_service_count: usable(self.active_service_count, f64::MAX),
        }
    }
}
