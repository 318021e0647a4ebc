//! Memory mediators: what load uses, not what the engine preallocated (trap 12). Spec §3.

use super::ObserveFacts;
use crate::model::CacheShape;
use crate::telemetry::pool::PooledWindow;
use crate::telemetry::series::GaugeSeries;
use crate::variables::{Mediator, MediatorValues};

const BYTES_PER_GIB: f64 = 1_073_741_824.0;

/// Bytes in use on one GPU: weights, activations and live KV.
///
/// # Formula   used − (1 − usage)·pool
/// # Units     bytes of one GPU; `kv_usage` is a fraction
/// # Errors    `None` when the pool's idle part is larger than what is used
/// # Source    spec §3, gpu_mem_used_fraction
#[must_use]
pub fn gpu_memory_in_use_bytes(used_bytes: f64, kv_pool_bytes: f64, kv_usage: f64) -> Option<f64> {
    let in_use = used_bytes - (1.0 - kv_usage) * kv_pool_bytes;
    (in_use >= 0.0 && in_use.is_finite()).then_some(in_use)
}

/// Inputs of [`kv_pressure_score`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvDemand {
    /// Running plus waiting requests.
    pub requests: f64,
    /// Prompt plus generated tokens of a mean request.
    pub sequence_tokens: f64,
    /// Tokens of a KV block.
    pub block_size_tokens: f64,
    /// Blocks of the pool.
    pub total_blocks: f64,
    /// What a sequence takes by its length; where it is not known every layer keeps every token.
    pub cache: Option<CacheShape>,
}

/// Block demand of all running and waiting requests over the pool; both sides use this function.
///
/// # Formula   requests · ⌈sequence / block⌉ · held / blocks, held = the share of its blocks that a
/// sequence still holds: bytes(n) / (n · bytes of a new token), below 1 where layers have windows
/// # Units     a ratio; above 1 the pool cannot hold everybody
/// # Errors    `None` when a size is not positive
/// # Source    spec §3, kv_pressure_score
#[must_use]
pub fn kv_pressure_score(demand: KvDemand) -> Option<f64> {
    let positive =
        demand.block_size_tokens > 0.0 && demand.total_blocks > 0.0 && demand.sequence_tokens > 0.0;
    let blocks = (demand.sequence_tokens / demand.block_size_tokens).ceil();
    let tokens = blocks * demand.block_size_tokens;
    let held = demand.cache.map_or(1.0, |cache| cache.held_share(tokens));
    positive
        .then(|| demand.requests * blocks * held / demand.total_blocks)
        .filter(|p| p.is_finite() && *p >= 0.0)
}

/// Sets the memory mediators that can be observed.
pub(super) fn set_memory(v: &mut MediatorValues, window: &PooledWindow, facts: &ObserveFacts) {
    let memory = facts.gpu_memory_bytes.filter(|m| *m > 0.0);
    let blocks = window.kv_blocks.mean().or(facts.kv_blocks);
    let in_use = || {
        let pool = blocks? * facts.kv_block_bytes_per_gpu?;
        let usage = window.mean(GaugeSeries::KvCacheUsage)?;
        gpu_memory_in_use_bytes(window.mean(GaugeSeries::GpuMemoryUsedBytes)?, pool, usage)
    };
    let in_use = in_use();
    v.set(
        Mediator::GpuMemUsedFraction,
        in_use.zip(memory).map(|(used, all)| used / all),
    );
    let allowed = memory
        .zip(facts.gpu_memory_utilization)
        .map(|(all, share)| all * share);
    v.set(
        Mediator::VramHeadroomGb,
        allowed
            .zip(in_use)
            .map(|(a, used)| (a - used) / BYTES_PER_GIB),
    );
    let activation = facts
        .activation_peak_bytes
        .zip(memory)
        .map(|(peak, all)| peak / all);
    v.set(Mediator::ActivationMemPressure, activation);
    v.set(
        Mediator::KvPressureScore,
        kv_pressure(v, window, facts, blocks),
    );
}

fn kv_pressure(
    v: &MediatorValues,
    window: &PooledWindow,
    facts: &ObserveFacts,
    blocks: Option<f64>,
) -> Option<f64> {
    let requests =
        window.mean(GaugeSeries::RunningRequests)? + window.mean(GaugeSeries::WaitingRequests)?;
    kv_pressure_score(KvDemand {
        requests,
        sequence_tokens: v.get(Mediator::InputLengthObserved)?
            + v.get(Mediator::OutputLengthObserved)?,
        block_size_tokens: f64::from(window.block_size_tokens.or(facts.block_size_tokens)?),
        total_blocks: blocks?,
        cache: facts.cache,
    })
}
