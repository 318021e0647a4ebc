//! How much of a prompt the prefix cache answers.
//!
//! A reuse model from the job's stated profile, not a simulation of the cache. Spec §3,
//! kvcache_hit_rate.

use crate::configuration::EngineShape;
use crate::job::Workload;

/// Share of a follow-up prompt that repeats the conversation so far.
const HISTORY_SHARE: f64 = 0.5;
/// Share of the pool that cold cached blocks may hold before they are evicted by live ones.
const RETAINED_POOL_SHARE: f64 = 0.5;

/// Share of prompt tokens that come from cache, 0..1.
///
/// # Formula
/// hit = c·⌊s/b⌋·b/isl + (1 − that)·m·a·½, where c is the prefix concentration, s the shared
/// prefix, b the block size, m the multi-turn share, a the chance of meeting the same replica.
/// Zero when the cache is off or the shared prefix does not fit half the pool.
pub(super) fn hit_fraction(
    workload: &Workload,
    shape: &EngineShape,
    pool_tokens: f64,
    n_replicas: u32,
) -> f64 {
    let isl = workload.isl.mean;
    if !shape.prefix_caching || isl < 1.0 {
        return 0.0;
    }
    let block = f64::from(shape.block_size.max(1));
    // The last token of a prompt is always computed, so at most the blocks before it are shared.
    let shared = (workload.shared_prefix_tokens.min(isl - 1.0).max(0.0) / block).floor() * block;
    let fits = shared <= pool_tokens * RETAINED_POOL_SHARE;
    let concentration = workload.prefix_concentration.clamp(0.0, 1.0);
    let common = if fits {
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
    (common + (1.0 - common) * history).clamp(0.0, 1.0)
}
