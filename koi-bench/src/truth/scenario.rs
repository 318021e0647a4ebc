//! Jobs and what each could run: drawn models and mixes per environment, every combination of tensor
//! width and engine settings for each, and the engine of each combination.

use anyhow::Context as _;
use koi_core::catalog::{Catalog, GpuType};
use koi_core::configuration::EngineShape;
use koi_core::job::{ArrivalPattern, LengthStats, Workload as JobWorkload};
use koi_core::model::ModelFacts;
use koi_sim::engine::EngineConfig;
use koi_sim::memory::{Sharding, kv_bytes_per_token, overhead_bytes, weight_bytes_per_device};
use koi_sim::model::SimModel;
use koi_sim::rng::digest;
use koi_sim::truth::{Switches, Truth, TruthInput};
use koi_sim::workload::{Arrivals, Lengths, Planned, Workload};

use crate::statistics::quantile;

/// Those of the demo fleet, and one of the smallest GPU type.
pub(super) const ENVIRONMENTS: [&str; 6] = [
    "on_demand/aws/us-east-1/us-east-1a/H100",
    "spot/nebius/eu-north1/eu-north1-a/H100",
    "on_demand/gcp/us-central1/us-central1-a/A100",
    "spot/gcp/us-central1/us-central1-a/A100",
    "on_demand/aws/us-east-1/us-east-1a/L40S",
    "on_demand/aws/us-east-1/us-east-1a/A10G",
];

const MODELS: [(&str, &str); 6] = [
    (
        "Llama-3.1-8B",
        include_str!("../../../configs/models/Llama-3.1-8B.json"),
    ),
    (
        "Qwen2.5-7B",
        include_str!("../../../configs/models/Qwen2.5-7B.json"),
    ),
    (
        "Qwen3-32B",
        include_str!("../../../configs/models/Qwen3-32B.json"),
    ),
    (
        "Qwen3-30B-A3B",
        include_str!("../../../configs/models/Qwen3-30B-A3B.json"),
    ),
    (
        "Mixtral-8x7B",
        include_str!("../../../configs/models/Mixtral-8x7B.json"),
    ),
    (
        "Llama-3.1-70B",
        include_str!("../../../configs/models/Llama-3.1-70B.json"),
    ),
];

/// Names and mean lengths of prompts and answers.
const MIXES: [(&str, f64, f64); 4] = [
    ("chat", 1000.0, 200.0),
    ("rag", 3400.0, 150.0),
    ("summary", 6000.0, 400.0),
    ("story", 200.0, 800.0),
];
const TENSOR_WIDTHS: [u32; 4] = [1, 2, 4, 8];
const MAX_NUM_SEQS: [u32; 2] = [48, 256];
const MAX_NUM_BATCHED_TOKENS: [u32; 2] = [2_048, 8_192];
/// Fewer configurations than this make no rank correlation.
pub(super) const MIN_CONFIGURATIONS: usize = 8;
const LONGEST: u32 = 16_384;
/// Spread of the logarithm of lengths, about that of the shipped traces.
const LOG_SPREAD: f64 = 0.6;

/// A model by name.
pub(crate) struct Model {
    /// Name of its file.
    pub(crate) name: &'static str,
    /// Text of its `config.json`.
    pub(crate) config_json: &'static str,
    /// What the planner knows.
    pub(crate) facts: ModelFacts,
}

/// The shipped models.
pub(crate) fn models() -> anyhow::Result<Vec<Model>> {
    let read = |(name, config_json): (&'static str, &'static str)| {
        let facts = ModelFacts::from_config_json(config_json)
            .map_err(|problems| anyhow::anyhow!("{name}: {problems:?}"))?;
        Ok(Model {
            name,
            config_json,
            facts,
        })
    };
    MODELS.into_iter().map(read).collect()
}

/// One engine and the lengths it is asked for.
pub(super) struct Scenario<'a> {
    /// Market, cloud, region, zone and GPU type.
    pub(super) environment: &'static str,
    /// Device.
    pub(super) gpu: &'a GpuType,
    /// Model.
    pub(super) model: &'a Model,
    /// Settings.
    pub(super) shape: EngineShape,
    /// Lengths and prefixes; its rate is set by each run.
    pub(super) workload: Workload,
    /// Seed of arrivals, lengths and noise.
    pub(super) seed: u64,
}

/// One job in one environment: the same requests for every configuration.
pub(super) struct Case<'a> {
    /// Configurations, whether they fit or not.
    pub(super) scenarios: Vec<Scenario<'a>>,
}

/// Jobs per environment, drawn by seed from all models and mixes of which enough configurations start.
pub(super) fn cases(models: &[Model], n_jobs: usize, seed: u64) -> anyhow::Result<Vec<Case<'_>>> {
    let mut cases = Vec::new();
    for environment in ENVIRONMENTS {
        let id = environment.rsplit('/').next().unwrap_or(environment);
        let gpu = Catalog::embedded()
            .gpu_type(id)
            .with_context(|| format!("the catalog has no {id}"))?;
        let mut drawn: Vec<(u64, Case<'_>)> = Vec::new();
        for model in models {
            for (mix, prompt, answer) in MIXES {
                let name = format!("{seed}/{environment}/{}/{mix}", model.name);
                let lot = digest(name.as_bytes());
                let case = case((environment, gpu), model, workload(prompt, answer), lot);
                if case.n_starting()? >= MIN_CONFIGURATIONS {
                    drawn.push((lot, case));
                }
            }
        }
        drawn.sort_by_key(|(lot, _)| *lot);
        cases.extend(drawn.into_iter().take(n_jobs).map(|(_, case)| case));
    }
    Ok(cases)
}

fn case<'a>(
    (environment, gpu): (&'static str, &'a GpuType),
    model: &'a Model,
    workload: Workload,
    seed: u64,
) -> Case<'a> {
    let mut scenarios = Vec::new();
    for tp in TENSOR_WIDTHS {
        for max_num_seqs in MAX_NUM_SEQS {
            for max_num_batched_tokens in MAX_NUM_BATCHED_TOKENS {
                for enforce_eager in [false, true] {
                    scenarios.push(Scenario {
                        environment,
                        gpu,
                        model,
                        shape: EngineShape {
                            tp,
                            max_num_seqs,
                            max_num_batched_tokens,
                            enforce_eager,
                            max_model_len: Some(LONGEST.min(model.facts.max_position)),
                            ..EngineShape::default()
                        },
                        workload,
                        seed,
                    });
                }
            }
        }
    }
    Case { scenarios }
}

impl Case<'_> {
    fn n_starting(&self) -> anyhow::Result<usize> {
        let mut n = 0;
        for scenario in &self.scenarios {
            n += usize::from(scenario.engine()?.is_some());
        }
        Ok(n)
    }
}

fn workload(prompt: f64, answer: f64) -> Workload {
    let lengths = |mean_tokens: f64, max_tokens: u32| Lengths {
        mean_tokens,
        log_spread: LOG_SPREAD,
        min_tokens: 8,
        max_tokens,
    };
    Workload {
        arrivals: Arrivals::Poisson { rate_rps: 1.0 },
        prompt: lengths(prompt, LONGEST * 3 / 4),
        answer: lengths(answer, LONGEST / 4 - 1),
        shared_prefix_tokens: 0,
        n_prefixes: 1,
    }
}

impl Scenario<'_> {
    /// The engine as the simulated one would start; `None` where it would refuse to.
    pub(super) fn engine(&self) -> anyhow::Result<Option<(EngineConfig, Truth)>> {
        let model = SimModel::of_facts(&self.model.facts);
        let cut = Sharding {
            tensor: self.shape.tp,
            pipeline: self.shape.pp,
        };
        if !model.heads.is_multiple_of(cut.tensor) {
            return Ok(None);
        }
        let truth = Truth::new(&TruthInput {
            gpu_type: &self.gpu.id,
            environment: self.environment,
            model: &model,
            precision: model.precision,
            kv_value_bytes: 2.0,
            cut,
            switches: Switches {
                eager: self.shape.enforce_eager,
                ..Switches::default()
            },
        })?;
        let allowed = self.gpu.memory_bytes * self.shape.gpu_memory_utilization;
        let batch = self.shape.max_num_batched_tokens;
        let used = weight_bytes_per_device(&model, model.precision, cut)
            + overhead_bytes(&model, batch, cut, self.shape.enforce_eager);
        let tokens = (allowed - used as f64) / kv_bytes_per_token(&model, 2.0, cut);
        let n_blocks = (tokens.max(0.0) / f64::from(self.shape.block_size)) as u32;
        let max_model_len = self.shape.max_model_len.unwrap_or(model.max_positions);
        if u64::from(n_blocks.saturating_sub(1)) * u64::from(self.shape.block_size)
            < u64::from(max_model_len)
        {
            return Ok(None);
        }
        let config = EngineConfig {
            n_blocks,
            block_size: self.shape.block_size,
            max_num_seqs: self.shape.max_num_seqs,
            max_num_batched_tokens: batch,
            max_model_len,
            long_prefill_token_threshold: 0,
            prefix_caching: self.shape.prefix_caching,
            chunked_prefill: self.shape.chunked_prefill,
            seed: self.seed,
        };
        Ok(Some((config, truth)))
    }
}

/// What the planner would be told of these very requests.
pub(super) fn told(planned: &[Planned], rate_rps: f64) -> JobWorkload {
    let prompts: Vec<f64> = planned.iter().map(|p| f64::from(p.prompt_tokens)).collect();
    let answers: Vec<f64> = planned.iter().map(|p| f64::from(p.answer_tokens)).collect();
    JobWorkload {
        arrival_rate_rps: rate_rps,
        arrival_pattern: ArrivalPattern::Poisson,
        peak_to_mean: 1.0,
        isl: lengths(&prompts),
        osl: lengths(&answers),
        shared_prefix_tokens: 0.0,
        prefix_concentration: 0.0,
        multi_turn_ratio: 0.0,
        session_affinity: false,
    }
}

fn lengths(tokens: &[f64]) -> LengthStats {
    let q = |q| quantile(tokens, q).unwrap_or(0.0);
    LengthStats {
        mean: tokens.iter().sum::<f64>() / tokens.len().max(1) as f64,
        p50: q(0.5),
        p95: q(0.95),
        p99: q(0.99),
    }
}
