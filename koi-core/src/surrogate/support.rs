//! What the engine, or this member, cannot do: refused with the reason before any arithmetic.

use super::{Demand, Deployment};
use crate::configuration::Term;
use crate::job::LengthStats;
use crate::model::{KvDtype, WeightDtype};

/// Longest request in tokens that is reasoned about; keeps every product finite.
const MAX_TOKENS: f64 = 1e8;
/// Highest rate per replica that is reasoned about.
const MAX_RATE_RPS: f64 = 1e6;

/// First compute capability with kernels for 8-bit floats, of weights and of the cache: they widen
/// to bfloat16 where the device has no arithmetic of its own.
const FIRST_WITH_FP8: f64 = 8.0;
/// First compute capability with kernels for 4-bit floats.
const FIRST_WITH_FP4: f64 = 7.5;

/// Whether the checkpoint can be served in the chosen format. A measured row needs no asking: the
/// checkpoint in its format existed.
pub(super) fn check_format(deployment: &Deployment<'_>) -> Result<(), String> {
    deployment.model.servable(deployment.shape.weight_dtype)
}

/// Checks a question; allocation happens only for a refusal.
pub(super) fn check(deployment: &Deployment<'_>, demand: &Demand<'_>) -> Result<(), String> {
    let Deployment { model, shape, .. } = deployment;
    if deployment.n_replicas == 0 {
        return Err("a deployment has at least one replica".to_owned());
    }
    model.legal_split(shape.tp, shape.ep)?;
    model.legal_pp(shape.pp)?;
    model.legal_ep(shape.ep, shape.tp)?;
    check_device(deployment)?;
    check_context_shards(deployment)?;
    check_engine_limits(deployment, demand)?;
    check_numbers(demand)
}

fn check_engine_limits(deployment: &Deployment<'_>, demand: &Demand<'_>) -> Result<(), String> {
    let Deployment { model, shape, .. } = deployment;
    let longest = shape.max_model_len.unwrap_or(model.max_position);
    if longest > model.max_position {
        return Err(format!(
            "max_model_len {longest} exceeds the model's {} positions",
            model.max_position
        ));
    }
    let needed = demand.workload.isl.p99 + 1.0;
    if needed > f64::from(longest) {
        return Err(format!(
            "the workload's p99 prompt needs {needed:.0} tokens; the longest request is {longest}"
        ));
    }
    if shape.max_num_seqs > shape.max_num_batched_tokens {
        return Err(format!(
            "max_num_batched_tokens {} is below max_num_seqs {}",
            shape.max_num_batched_tokens, shape.max_num_seqs
        ));
    }
    if !shape.chunked_prefill && shape.max_num_batched_tokens < longest {
        return Err(format!(
            "without chunked prefill a step must hold the longest request: max_num_batched_tokens {} is below {longest}",
            shape.max_num_batched_tokens
        ));
    }
    Ok(())
}

/// What the device's generation, or its being a slice, leaves out.
fn check_device(deployment: &Deployment<'_>) -> Result<(), String> {
    let Deployment {
        model, gpu, shape, ..
    } = deployment;
    let n_devices = shape.tp.saturating_mul(shape.pp);
    if n_devices > 1 && gpu.mig.is_some() {
        return Err(format!(
            "tp · pp = {n_devices} slices of {}: slices of a GPU cannot send to each other, so a replica is one slice",
            gpu.id
        ));
    }
    let weights = model.served_dtype(shape.weight_dtype);
    let first = match weights {
        WeightDtype::Fp8 => FIRST_WITH_FP8,
        WeightDtype::Mxfp4 | WeightDtype::Nvfp4 => FIRST_WITH_FP4,
        WeightDtype::Auto
        | WeightDtype::Fp32
        | WeightDtype::Bf16
        | WeightDtype::Fp16
        | WeightDtype::Int8
        | WeightDtype::Int4 => 0.0,
    };
    let is_fp8_cache = shape.kv_dtype == KvDtype::Fp8;
    let needed = if is_fp8_cache {
        first.max(FIRST_WITH_FP8)
    } else {
        first
    };
    // Targets of other makers, such as gfx942, are no number and have no such order.
    let capability = gpu.compute_capability.as_deref().filter(|_| needed > 0.0);
    match capability.and_then(|c| c.parse::<f64>().ok()) {
        Some(has) if has < needed && has < first => Err(format!(
            "{} weights need compute capability {first:.1}; {} has {has:.1}",
            weights.name(),
            gpu.id
        )),
        Some(has) if has < needed => Err(format!(
            "an fp8 cache needs compute capability {needed:.1}; {} has {has:.1}",
            gpu.id
        )),
        _ => Ok(()),
    }
}

/// Only copies of a head can give their part of a sequence away.
fn check_context_shards(deployment: &Deployment<'_>) -> Result<(), String> {
    let Deployment { model, shape, .. } = deployment;
    let shards = shape.effects.get(Term::ContextShards);
    let copies = f64::from(shape.tp) / f64::from(model.kv_heads.max(1));
    if shards > 1.0 && (shards > copies || f64::from(shape.tp) % shards != 0.0) {
        return Err(format!(
            "dcp {shards} needs as many copies of every KV head: tp {} over {} heads gives {copies}",
            shape.tp, model.kv_heads
        ));
    }
    Ok(())
}

fn check_numbers(demand: &Demand<'_>) -> Result<(), String> {
    let rate = demand.rate_rps_per_replica;
    if !(0.0..=MAX_RATE_RPS).contains(&rate) {
        return Err(format!(
            "a rate of {rate} requests per second is not in 0..={MAX_RATE_RPS}"
        ));
    }
    let sane = |l: &LengthStats| {
        [l.mean, l.p50, l.p95, l.p99]
            .into_iter()
            .all(|x| (0.0..=MAX_TOKENS).contains(&x))
    };
    if !sane(&demand.workload.isl) || !sane(&demand.workload.osl) {
        return Err(format!("lengths must be in 0..={MAX_TOKENS} tokens"));
    }
    Ok(())
}
