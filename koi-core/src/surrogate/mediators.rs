//! V̂ at an operating point, each by the definition that the observing side uses.
//!
//! Mediators on a logarithmic scale are absent where they are exactly nothing (no link traffic
//! without a second GPU). Spec §3, the table of V.

use super::memory::{MemoryBreakdown, offloaded_bytes};
use super::operating_point::{Machine, Point, Traffic};
use super::queueing::Wait;
use super::roofline::dispatch_overhead_seconds;
use super::{links, prefix};
use crate::catalog::Link;
use crate::configuration::Term;
use crate::model::{comm_bytes_per_token, pipeline_bubble_fraction};
use crate::telemetry::observe::{KvDemand, kv_pressure_score};
use crate::variables::{Mediator, MediatorValues};

const GIB: f64 = (1_u64 << 30) as f64;

/// All mediators that the analytic member can give.
pub(super) fn of(
    machine: &Machine<'_>,
    traffic: &Traffic,
    memory: &MemoryBreakdown,
    point: &Point,
    (wait, arrivals_rps): (Option<&Wait>, f64),
) -> MediatorValues {
    let mut v = MediatorValues::absent();
    put_lengths(&mut v, machine, traffic);
    let waiting = waiting(wait, arrivals_rps);
    put_memory(&mut v, machine, traffic, memory, (point, waiting));
    put_work(&mut v, machine, traffic, point, wait);
    put_device(&mut v, machine, point);
    put_links(&mut v, machine, traffic, point);
    v
}

fn positive(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

fn put_lengths(v: &mut MediatorValues, machine: &Machine<'_>, traffic: &Traffic) {
    let cached = machine.deployment.shape.prefix_caching;
    v.set(
        Mediator::KvcacheHitRate,
        cached.then_some(traffic.hit_fraction),
    );
    v.set(Mediator::InputLengthObserved, Some(traffic.prompt));
    v.set(Mediator::OutputLengthObserved, Some(traffic.output));
}

fn put_memory(
    v: &mut MediatorValues,
    machine: &Machine<'_>,
    traffic: &Traffic,
    memory: &MemoryBreakdown,
    (point, waiting): (&Point, Option<f64>),
) {
    let live_tokens = held_tokens(traffic, memory, point.live).min(memory.kv_pool_tokens);
    let used = memory.used_bytes(live_tokens);
    v.set(
        Mediator::GpuMemUsedFraction,
        Some(used / memory.device_bytes),
    );
    v.set(
        Mediator::VramHeadroomGb,
        Some((memory.allowed_bytes - used) / GIB),
    );
    v.set(
        Mediator::KvCacheUtil,
        Some(live_tokens / memory.kv_pool_tokens),
    );
    v.set(
        Mediator::ActivationMemPressure,
        Some(memory.activation_bytes / memory.device_bytes),
    );
    let block = f64::from(machine.deployment.shape.block_size.max(1));
    let pressure = waiting.and_then(|waiting| {
        kv_pressure_score(KvDemand {
            requests: point.live + waiting,
            sequence_tokens: traffic.prompt + traffic.output,
            block_size_tokens: block,
            total_blocks: memory.kv_pool_tokens / block,
            cache: Some(memory.cache),
        })
    });
    v.set(Mediator::KvPressureScore, pressure.and_then(positive));
    v.set(Mediator::QueueDepth, waiting);
}

/// Requests that wait, by Little's law for the queue: from arrivals, not from what a held batch would
/// finish.
fn waiting(wait: Option<&Wait>, arrivals_rps: f64) -> Option<f64> {
    wait.map(|w| w.queue_seconds * arrivals_rps)
}

/// Tokens of cache that so many live requests hold: what layers with windows have forgotten is free
/// again.
pub(super) fn held_tokens(traffic: &Traffic, memory: &MemoryBreakdown, live: f64) -> f64 {
    traffic.live_tokens(live) * memory.cache.held_share(traffic.unique_tokens)
}

fn put_work(
    v: &mut MediatorValues,
    machine: &Machine<'_>,
    traffic: &Traffic,
    point: &Point,
    wait: Option<&Wait>,
) {
    v.set(Mediator::RunningRequests, positive(point.live));
    v.set(
        Mediator::PrefillTokensPerSec,
        positive(point.rate_rps * traffic.prompt),
    );
    // Without a live request the engine takes no steps.
    let busy = point.live.min(1.0);
    let steps = busy * point.micro_batches / point.iteration_seconds;
    v.set(Mediator::DecodeStepsPerSec, positive(steps));
    let prefill =
        point.prefill_iterations * point.chunk_seconds + wait.map_or(0.0, |w| w.residual_seconds);
    let gain = machine.guessing_at(point.live).gain;
    let decode = (traffic.output - 1.0) / gain * point.iteration_seconds;
    v.set(
        Mediator::PdImbalance,
        positive(decode).map(|decode| (prefill / decode).ln()),
    );
    let overhead = dispatch_overhead_seconds(machine.deployment, &machine.profile)
        + machine.overhead_of_seconds(traffic, point);
    v.set(Mediator::DispatchOverheadMs, Some(overhead * 1e3));
    v.set(
        Mediator::ExpertImbalance,
        Some(expert_imbalance(machine, point)),
    );
}

/// Largest over mean load of the experts under uniform routing.
///
/// # Formula
/// 1 + √(2·ln E / load), load = routed tokens per expert and step; 1 for dense models
fn expert_imbalance(machine: &Machine<'_>, point: &Point) -> f64 {
    let Some(moe) = machine.deployment.model.moe else {
        return 1.0;
    };
    let effects = &machine.deployment.shape.effects;
    let experts = f64::from(moe.experts);
    let routed = point.live.max(1.0) * f64::from(moe.experts_per_token);
    let most_possible = experts / f64::from(moe.experts_per_token);
    // Copies of the fullest experts share what is theirs.
    let copied = experts / (experts + effects.get(Term::RedundantExperts));
    let narrowed = effects.get(Term::ImbalanceExcessFactor) * copied;
    let excess = (2.0 * experts.ln() * experts / routed).sqrt() * narrowed;
    (1.0 + excess).min(most_possible)
}

fn put_device(v: &mut MediatorValues, machine: &Machine<'_>, point: &Point) {
    let gpu = machine.deployment.gpu;
    let dtype = machine
        .deployment
        .model
        .served_dtype(machine.deployment.shape.weight_dtype);
    let busy = point.live.min(1.0);
    // Every stage takes one step per micro-batch and iteration.
    let steps_per_second = busy * point.micro_batches / point.iteration_seconds;
    let flops = point.cost.flops * steps_per_second / gpu.peak_for(dtype);
    let bytes = point.cost.bytes * steps_per_second / gpu.bandwidth_bytes_per_second;
    v.set(Mediator::SmUtilization, Some(flops));
    v.set(Mediator::MemBandwidthUtilization, Some(bytes));
}

fn put_links(v: &mut MediatorValues, machine: &Machine<'_>, traffic: &Traffic, point: &Point) {
    let (model, shape) = (machine.deployment.model, &machine.deployment.shape);
    let bubble = pipeline_bubble_fraction(shape.pp, point.micro_batches)
        * shape.effects.get(Term::BubbleFactor);
    v.set(Mediator::PipelineBubbleFraction, Some(bubble));
    let activation = model.served_dtype(shape.weight_dtype).activation_bytes();
    let formula = comm_bytes_per_token(model.layers, model.hidden, activation, shape.tp, shape.pp)
        + f64::from(model.layers) * links::more_bytes_per_token_and_layer(machine.deployment);
    // The observing side divides by all prompt tokens, and cached ones send nothing.
    let tokens = traffic.prompt + traffic.output;
    let guessing = machine.guessing_at(point.live);
    let steps = traffic.output / guessing.gain;
    let sent = formula * (traffic.computed + steps * (1.0 + guessing.tokens))
        + links::draft_bytes_per_pass(machine.deployment) * guessing.passes * steps;
    let per_token = sent / tokens;
    v.set(Mediator::PerTokCommBytes, positive(per_token));
    let tokens_per_second = point.rate_rps * tokens;
    // per_tok_comm_bytes is one shard's; the counters of all the replica's GPUs are summed.
    let bytes_per_second = per_token * f64::from(shape.tp) * tokens_per_second;
    let (link, peak) = machine.deployment.gpu.best_link();
    let host = host_bytes_per_second(machine, traffic, point);
    match link {
        Link::Nvlink => {
            v.set(Mediator::NvlinkBytesPerSec, positive(bytes_per_second));
            v.set(Mediator::PcieBytesPerSec, positive(host));
        }
        Link::Pcie => v.set(Mediator::PcieBytesPerSec, positive(bytes_per_second + host)),
    }
    // A single GPU has no links to load: absent on both sides.
    let share = bytes_per_second / (f64::from(shape.gpus()) * peak);
    v.set(Mediator::CommOverheadPct, positive(share));
}

/// Bytes per second between all devices and host memory: offloaded weights in every step, cache
/// blocks that are fetched and kept.
fn host_bytes_per_second(machine: &Machine<'_>, traffic: &Traffic, point: &Point) -> f64 {
    let shape = &machine.deployment.shape;
    if shape.effects.is_neutral() {
        return 0.0;
    }
    let steps = point.live.min(1.0) * point.micro_batches / point.iteration_seconds;
    let weights = offloaded_bytes(machine.deployment.model, shape) * steps;
    let kept = (traffic.computed + traffic.output) * prefix::written_share(shape);
    let blocks = (traffic.loaded_tokens + kept) * machine.kv_bytes_per_token() * point.rate_rps;
    (weights + blocks) * f64::from(shape.gpus())
}
