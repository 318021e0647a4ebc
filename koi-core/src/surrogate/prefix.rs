//! How much of a prompt the prefix cache answers.
//!
//! A reuse model from the job's stated profile, not a simulation of the cache. Spec §3,
//! kvcache_hit_rate.

use super::memory::MemoryBreakdown;
use crate::configuration::{EngineShape, Term};
use crate::job::Workload;

/// Share of a follow-up prompt that repeats the conversation so far.
const HISTORY_SHARE: f64 = 0.5;
/// Share of the pool that cold cached blocks may hold before they are evicted by live ones.
const RETAINED_POOL_SHARE: f64 = 0.5;

/// Host pool over device pool where engines keep one. A larger one changes nothing here: a prefix
/// that one request can have fits either.
const USUAL_HOST_RATIO: f64 = 2.0;

/// What a cache answers of the mean prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    /// Share of prompt tokens from cache, 0..1.
    pub(super) hit_fraction: f64,
    /// Part of that share which host memory holds, since the device does not.
    pub(super) host_fraction: f64,
}

impl Found {
    const NOTHING: Self = Self {
        hit_fraction: 0.0,
        host_fraction: 0.0,
    };
}

/// What the prefix cache answers.
///
/// # Formula
/// hit = c·⌊s/b⌋·b/isl + (1 − that)·m·a·½, where c is the prefix concentration, s the shared
/// prefix, b the block size or a coarser boundary that is set, m the multi-turn share, a the chance
/// of meeting the same replica. Zero when the cache is off, keeps no states of a model that needs
/// them, or has no room for the shared prefix: half the pool, and what host memory there is.
pub(super) fn found(
    workload: &Workload,
    shape: &EngineShape,
    memory: &MemoryBreakdown,
    n_replicas: u32,
) -> Found {
    let isl = workload.isl.mean;
    let effects = &shape.effects;
    let has_state = memory.cache.state_bytes > 0.0;
    let is_forgotten = has_state && effects.get(Term::StatesForgotten) > 0.5;
    if !shape.prefix_caching || isl < 1.0 || is_forgotten {
        return Found::NOTHING;
    }
    let block = boundary(shape, has_state);
    // The last token of a prompt is always computed, so at most the blocks before it are shared.
    let shared = (workload.shared_prefix_tokens.min(isl - 1.0).max(0.0) / block).floor() * block;
    let on_device = memory.kv_pool_tokens * RETAINED_POOL_SHARE;
    let in_all = on_device + host_tokens(shape, memory);
    let concentration = workload.prefix_concentration.clamp(0.0, 1.0);
    let common = if shared <= in_all {
        concentration * shared / isl
    } else {
        0.0
    };
    let same_replica = if workload.session_affinity {
        1.0
    } else {
        1.0 / f64::from(n_replicas.max(1))
    };
    let history = workload.multi_turn_ratio.clamp(0.0, 1.0) * same_replica * HISTORY_SHARE;
    let hit = common + (1.0 - common) * history;
    Found {
        hit_fraction: (hit * effects.get(Term::PrefixHitFactor)).clamp(0.0, 1.0),
        host_fraction: if shared > on_device { common } else { 0.0 },
    }
}

/// A cached prefix ends at a multiple of this many tokens.
fn boundary(shape: &EngineShape, has_state: bool) -> f64 {
    let effects = &shape.effects;
    let block = f64::from(shape.block_size.max(1)).max(effects.get(Term::PrefixUnitTokens));
    if has_state {
        block.max(effects.get(Term::StateUnitTokens))
    } else {
        block
    }
}

/// Tokens that host memory keeps after the device gave them up.
fn host_tokens(shape: &EngineShape, memory: &MemoryBreakdown) -> f64 {
    let effects = &shape.effects;
    let bytes = effects.get(Term::HostCacheBytes);
    let mut tokens = 0.0;
    if bytes > 0.0 && memory.kv_bytes_per_token > 0.0 {
        tokens += bytes / (memory.kv_bytes_per_token * f64::from(shape.gpus().max(1)));
    }
    if effects.get(Term::HostCacheEnabled) > 0.5 {
        tokens += memory.kv_pool_tokens * USUAL_HOST_RATIO;
    }
    tokens
}

/// Share of the computed tokens whose blocks are copied to host memory.
pub(super) fn written_share(shape: &EngineShape) -> f64 {
    let effects = &shape.effects;
    let has_host =
        effects.get(Term::HostCacheBytes) > 0.0 || effects.get(Term::HostCacheEnabled) > 0.5;
    if has_host && shape.prefix_caching {
        effects.get(Term::HostWriteShare)
    } else {
        0.0
    }
}
