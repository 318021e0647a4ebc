//! From a row to a deployment and a demand: the rules for what a table leaves open.

mod problems;

use super::{LoadKind, MeasuredRow};
use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::job::{ArrivalPattern, JobClass, LengthStats, Slo, Workload};
use crate::model::{KvDtype, ModelFacts, WeightDtype};
use crate::surrogate::EngineGeneration;

/// A benchmark submission that does not state its split takes the smallest that leaves the cache
/// this share of memory.
const WEIGHTS_SHARE: f64 = 0.6;
/// Room for the tokens that a chat template adds to a request.
const SLACK_TOKENS: f64 = 64.0;

/// A row, ready to be asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The model in the row's weight format.
    pub model: ModelFacts,
    /// Engine settings of one replica.
    pub shape: EngineShape,
    /// Equal replicas: what is paid for.
    pub n_replicas: u32,
    /// Replicas that have anything to do: with fewer requests in flight than replicas, one for each
    /// request. The load is theirs alone.
    pub n_busy_replicas: u32,
    /// The engine.
    pub generation: EngineGeneration,
    /// Lengths.
    pub workload: Workload,
    /// What the load means.
    pub load_kind: LoadKind,
    /// Concurrency or rate of one replica, where the row has a load.
    pub load_per_replica: Option<f64>,
    /// Requests of a run that starts with all of them, per replica.
    pub backlog_per_replica: Option<f64>,
    /// Requests of the whole run, per replica, where the row states them.
    pub requests_per_replica: Option<f64>,
}

impl Question {
    /// The question of a row about a model on a device.
    ///
    /// # Errors
    /// Everything that keeps the row from being asked, joined by "; ".
    pub fn of(row: &MeasuredRow, model: &ModelFacts, gpu: &GpuType) -> Result<Self, String> {
        let problems = problems::of(row);
        let generation = EngineGeneration::of(&row.engine, row.engine_version.as_deref(), row.year);
        let (Some(isl), Some(osl), Some(load_kind), Some(generation), []) =
            (row.isl, row.osl, row.load_kind, generation, &problems[..])
        else {
            return Err(problems.join("; "));
        };
        if row.ep.is_some_and(|ep| ep != 1) && model.moe.is_none() {
            return Err("ep is given, and the model has no experts to spread".to_owned());
        }
        problems::check_context(isl + osl, model, generation)?;
        let (model, weight_dtype) = in_format(row, model, gpu, load_kind)?;
        let split = Split::of(row, &model, weight_dtype, gpu)?;
        let n_busy_replicas = busy_replicas(load_kind, row.load, split.n_replicas);
        let replicas = f64::from(n_busy_replicas);
        let load_per_replica = row.load.map(|load| match load_kind {
            LoadKind::RateRps => load / replicas,
            LoadKind::Concurrency
            | LoadKind::StaticBatch
            | LoadKind::MaxNumSeqs
            | LoadKind::AllAtOnce
            | LoadKind::Offline
            | LoadKind::Scenario => (load / replicas).max(1.0),
        });
        let backlog = match load_kind {
            LoadKind::AllAtOnce => row.load,
            LoadKind::MaxNumSeqs => row.n_requests.map(f64::from),
            LoadKind::Concurrency
            | LoadKind::StaticBatch
            | LoadKind::RateRps
            | LoadKind::Offline
            | LoadKind::Scenario => None,
        };
        let longest = (isl + osl).ceil() + SLACK_TOKENS;
        let shape = EngineShape {
            tp: split.tp,
            pp: split.pp,
            ep: split.ep,
            max_num_seqs: sequence_limit(generation, load_kind, load_per_replica),
            max_num_batched_tokens: 8_192,
            gpu_memory_utilization: 0.92,
            weight_dtype,
            kv_dtype: kv_dtype(row, weight_dtype, &model, generation, gpu),
            prefix_caching: false,
            max_model_len: Some(longest as u32),
            ..EngineShape::default()
        };
        let mut model = model;
        // The template's tokens, and what a compiled engine was built for.
        model.max_position = model.max_position.max(longest as u32);
        Ok(Self {
            model,
            shape,
            n_replicas: split.n_replicas,
            n_busy_replicas,
            generation,
            workload: workload(isl, osl),
            load_kind,
            load_per_replica,
            backlog_per_replica: backlog.map(|n| n / replicas),
            requests_per_replica: row.n_requests.map(|n| f64::from(n) / replicas),
        })
    }

    /// Latency-bound or deadline-bound: a backlog has no arrivals.
    #[must_use]
    pub const fn class(&self) -> JobClass {
        match self.load_kind {
            LoadKind::Offline | LoadKind::Scenario => JobClass::Batch,
            LoadKind::Concurrency
            | LoadKind::StaticBatch
            | LoadKind::MaxNumSeqs
            | LoadKind::RateRps
            | LoadKind::AllAtOnce => JobClass::Online,
        }
    }

    /// Targets that bind nothing: a measured row promises nothing.
    #[must_use]
    pub const fn slo() -> Slo {
        Slo::Online {
            p99_ttft_ms: None,
            p99_tpot_ms: None,
        }
    }
}

/// Replicas that have a request, of those there are: requests in flight spread over as many
/// replicas as there are, and over no more than there are requests.
fn busy_replicas(kind: LoadKind, load: Option<f64>, n_replicas: u32) -> u32 {
    match kind {
        LoadKind::Concurrency | LoadKind::StaticBatch | LoadKind::AllAtOnce => {
            load.map_or(n_replicas, |n| (n.floor() as u32).clamp(1, n_replicas))
        }
        // A limit of every engine, arrivals, and backlogs: every replica has its part.
        LoadKind::MaxNumSeqs | LoadKind::RateRps | LoadKind::Offline | LoadKind::Scenario => {
            n_replicas
        }
    }
}

/// The model as the row's weights are stored.
fn in_format(
    row: &MeasuredRow,
    model: &ModelFacts,
    gpu: &GpuType,
    kind: LoadKind,
) -> Result<(ModelFacts, WeightDtype), String> {
    let has_fp8 = gpu.peak_flops.fp8.is_some();
    let scenario = matches!(kind, LoadKind::Scenario) || row.load_kind == Some(LoadKind::Offline);
    let stated = row.weight_dtype.as_deref().filter(|d| !d.is_empty());
    let dtype = match stated {
        // Submissions to a throughput contest use the fastest format that its rules allow.
        None if scenario && row.tp.is_none() && has_fp8 => WeightDtype::Fp8,
        None => WeightDtype::Auto,
        Some("fp16/bf16" | "bf16" | "fp16") => WeightDtype::Bf16,
        Some("fp32") => WeightDtype::Fp32,
        Some("fp8" | "fp8_block") => WeightDtype::Fp8,
        Some("int8") => WeightDtype::Int8,
        Some(other) => match WeightDtype::from_name(other) {
            Some(dtype) => dtype,
            None if other.to_ascii_lowercase().contains('4') => WeightDtype::Int4,
            None => return Err(format!("weight_dtype {other:?} is not known")),
        },
    };
    let mut model = model.clone();
    // Engines pad what a group does not divide; a measured split was possible.
    model.quantization_group = None;
    model.quantization = None;
    let is_native = dtype == model.native_weight_dtype;
    Ok((model, if is_native { WeightDtype::Auto } else { dtype }))
}

/// TensorRT-LLM keeps the cache in 8 bits with weights of 8 bits or fewer; other engines keep 16
/// bits unless told otherwise.
fn kv_dtype(
    row: &MeasuredRow,
    dtype: WeightDtype,
    model: &ModelFacts,
    generation: EngineGeneration,
    gpu: &GpuType,
) -> KvDtype {
    let is_tensorrt = matches!(
        generation,
        EngineGeneration::TensorrtCompiled
            | EngineGeneration::TensorrtPytorch
            | EngineGeneration::TensorrtPreview
    );
    let is_narrow = model.served_dtype(dtype).bytes_per_weight() < 1.2;
    match row.kv_dtype.as_deref() {
        Some("fp8" | "fp8_e4m3" | "fp8_e5m2") => KvDtype::Fp8,
        None | Some("") if is_tensorrt && is_narrow && gpu.peak_flops.fp8.is_some() => KvDtype::Fp8,
        _ => KvDtype::Auto,
    }
}

/// Sequences per step: the load's own number where it is one, else the generation's default.
fn sequence_limit(generation: EngineGeneration, kind: LoadKind, load: Option<f64>) -> u32 {
    const LEGACY: u32 = 256;
    const CURRENT: u32 = 1_024;
    const MOST: u32 = 4_096;
    let default = if generation.is_current() {
        CURRENT
    } else {
        LEGACY
    };
    match kind {
        LoadKind::Concurrency | LoadKind::StaticBatch | LoadKind::MaxNumSeqs => {
            load.map_or(default, |n| (n.ceil() as u32).clamp(1, MOST))
        }
        LoadKind::RateRps | LoadKind::AllAtOnce | LoadKind::Offline | LoadKind::Scenario => default,
    }
}

fn workload(isl: f64, osl: f64) -> Workload {
    let equal = |tokens: f64| LengthStats {
        mean: tokens,
        p50: tokens,
        p95: tokens,
        p99: tokens,
    };
    Workload {
        arrival_rate_rps: 0.0,
        arrival_pattern: ArrivalPattern::Poisson,
        peak_to_mean: 1.0,
        isl: equal(isl),
        osl: equal(osl),
        shared_prefix_tokens: 0.0,
        prefix_concentration: 0.0,
        multi_turn_ratio: 0.0,
        session_affinity: false,
    }
}

/// How a row's devices are split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Split {
    tp: u32,
    pp: u32,
    ep: u32,
    n_replicas: u32,
}

impl Split {
    fn of(
        row: &MeasuredRow,
        model: &ModelFacts,
        dtype: WeightDtype,
        gpu: &GpuType,
    ) -> Result<Self, String> {
        let given = |n: Option<u32>| n.filter(|n| *n > 0);
        let (mut tp, mut dp) = (given(row.tp), given(row.dp).unwrap_or(1));
        let mut gpus = given(row.num_gpus);
        // One source multiplies attention and expert parallelism of the same devices.
        if let Some(ep) = given(row.ep).filter(|ep| *ep > 1) {
            if tp == Some(ep * ep) {
                (tp, gpus) = (Some(ep), Some(ep));
            }
            if dp == ep * ep {
                (dp, gpus) = (ep, Some(ep));
            }
        }
        let pp = given(row.pp).unwrap_or(1);
        let tp = match (tp, gpus) {
            (Some(tp), _) => tp,
            (None, Some(n)) if row.load.is_none() => smallest_split(model, dtype, gpu, n),
            (None, Some(n)) => (n / pp / dp).max(1),
            (None, None) => return Err("neither num_gpus nor tp is given".to_owned()),
        };
        // Attention in data parallel over shared experts is taken as one group of all devices.
        let (tp, dp) = if model.moe.is_some() {
            (tp * dp, 1)
        } else {
            (tp, dp)
        };
        let n_replicas = gpus.map_or(dp, |n| (n / (tp * pp)).max(1));
        let ep = if model.moe.is_some() && row.ep.is_some_and(|ep| ep != 1) {
            tp
        } else {
            1
        };
        Ok(Self {
            tp,
            pp,
            ep,
            n_replicas,
        })
    }
}

/// The fewest shards that leave room for a cache and divide the devices.
fn smallest_split(model: &ModelFacts, dtype: WeightDtype, gpu: &GpuType, gpus: u32) -> u32 {
    let weights = model.weight_bytes(dtype) as f64;
    let divides = |tp: &u32| *tp <= gpus && gpus.is_multiple_of(*tp);
    let fits = |tp: &u32| weights / f64::from(*tp) < WEIGHTS_SHARE * gpu.memory_bytes;
    let candidates = [1, 2, 4, 8];
    let enough = candidates.into_iter().filter(divides).find(fits);
    enough.unwrap_or_else(|| candidates.into_iter().rfind(divides).unwrap_or(1))
}
