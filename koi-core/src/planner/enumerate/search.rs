//! The options of one job in one pool. Spec §10.1 and §10.2.

use super::LadderOption;
use super::refusals::Refusals;
use crate::catalog::GpuType;
use crate::configuration::{Configuration, EngineShape};
use crate::job::JobSpec;
use crate::ladder::{Ladder, Rank};
use crate::model::{ModelFacts, WeightDtype};
use crate::planner::forecast::{JobView, NoForecast, Place};
use crate::planner::pools::Pool;
use crate::planner::scoring::{Change, ResidualScope, Scorer};
use crate::planner::size::{SizeInput, Sized, size, size_fixed};

/// Tensor-parallel widths tried.
const TP: [u32; 5] = [1, 2, 4, 8, 16];
/// Pipeline depths tried, inside one host.
const PP: [u32; 3] = [1, 2, 4];
/// Batching knobs tried: sequences and tokens in one step.
const BATCHING: [(u32, u32); 6] = [
    (256, 8192),
    (256, 2048),
    (64, 2048),
    (64, 8192),
    (512, 8192),
    (512, 16384),
];
/// Requests longer than this multiple of the workload's p99 lengths are refused by the engine.
const LENGTH_SLACK: f64 = 4.0;
/// Shortest request limit that a ladder is given.
const MODEL_LEN_MIN: u32 = 4096;
/// Request limits are multiples of this.
const MODEL_LEN_STEP: u32 = 1024;
/// Tokens per KV block on a processor: its kernels want multiples of 32.
const CPU_BLOCK_TOKENS: u32 = 32;

/// The search in one pool.
pub(super) struct Search<'a> {
    pub(super) view: &'a JobView<'a>,
    pub(super) scorer: &'a Scorer<'a>,
    pub(super) change: Change<'a>,
    pub(super) place: Place<'a>,
    pub(super) pool: (usize, &'a Pool),
}

impl Search<'_> {
    pub(super) fn options(&self, refusals: &mut Refusals) -> Vec<LadderOption> {
        let mut found = Vec::new();
        for tp in TP {
            for pp in PP {
                if tp * pp > self.place.key.n_gpus {
                    continue;
                }
                match self.legal_split(tp, pp) {
                    Err(reason) => refusals.place(self.place.key, "SPLIT", reason),
                    Ok(()) => self.options_of_split((tp, pp), &mut found, refusals),
                }
            }
        }
        found
    }

    fn legal_split(&self, tp: u32, pp: u32) -> Result<(), String> {
        let model = &self.view.record.spec.model.facts;
        model.legal_tp(tp)?;
        model.legal_pp(pp)?;
        if !model.layers.is_multiple_of(pp) {
            return Err(format!(
                "pp={pp} does not divide the {} layers",
                model.layers
            ));
        }
        Ok(())
    }

    fn options_of_split(
        &self,
        (tp, pp): (u32, u32),
        found: &mut Vec<LadderOption>,
        refusals: &mut Refusals,
    ) {
        let key = self.place.key;
        let model = &self.view.record.spec.model.facts;
        for (max_num_seqs, max_num_batched_tokens) in BATCHING {
            let shape = EngineShape {
                tp,
                pp,
                max_num_seqs,
                max_num_batched_tokens,
                max_model_len: Some(self.request_limit()),
                ..device_defaults(self.place.gpu, model)
            };
            let rank = match self.rank(shape) {
                Ok(rank) => rank,
                Err(reason) => {
                    refusals.place(key, "C6-DOMAIN", reason);
                    continue;
                }
            };
            match self.sized(shape, &rank) {
                Ok(sizes) => {
                    for sized in sizes {
                        self.accept(&rank, sized, found, refusals);
                    }
                }
                Err(NoForecast::DoesNotFit(memory)) => {
                    refusals.memory(key, tp * pp, &memory);
                }
                Err(NoForecast::Unsupported(reason)) => {
                    refusals.place(key, "UNSUPPORTED", reason);
                    break;
                }
            }
        }
    }

    /// Longest request that the engine is told to accept.
    fn request_limit(&self) -> u32 {
        let workload = &self.view.workload;
        let tokens = LENGTH_SLACK * (workload.isl.p99 + workload.osl.p99);
        let most = self.view.record.spec.model.facts.max_position;
        let wanted = (tokens.clamp(0.0, 1e9) as u32).next_multiple_of(MODEL_LEN_STEP);
        wanted.max(MODEL_LEN_MIN).min(most)
    }

    /// One replica of a shape, with the mechanism that it commits.
    fn rank(&self, shape: EngineShape) -> Result<Rank, String> {
        let key = self.place.key;
        let engine = self.view.record.spec.engine;
        let catalog = self.scorer.context.catalog;
        let configuration =
            Configuration::from_shape_in(catalog, &shape, engine).map_err(|violations| {
                let line =
                    |v: &crate::violation::FieldViolation| format!("{} {}", v.field, v.message);
                violations.iter().map(line).collect::<Vec<_>>().join("; ")
            })?;
        let mut rank = Rank {
            environment: key.environment.clone(),
            instance_type: key.instance_type.clone(),
            configuration,
            n_replicas: 1,
            mechanism_id: None,
        };
        rank.mechanism_id = self.scorer.mechanism(self.view.record, &rank);
        Ok(rank)
    }

    /// The right size, and beside it the largest that is free now when the right one is not.
    fn sized(&self, shape: EngineShape, rank: &Rank) -> Result<Vec<Sized>, NoForecast> {
        let (_, pool) = self.pool;
        let input = SizeInput {
            view: self.view,
            place: self.place,
            shape,
            mechanism: rank.mechanism_id.as_deref(),
            chains_max: pool.chains_when_empty(shape.gpus()),
        };
        let right = size(&input, self.scorer)?;
        let free = u32::try_from(pool.free_pieces(shape.gpus())).unwrap_or(u32::MAX);
        let least = self.view.record.spec.constraints.min_replicas.max(1);
        let is_short = right.n_replicas > free && free >= least;
        let mut sizes = vec![right];
        if is_short {
            sizes.push(size_fixed(&input, free, self.scorer)?);
        }
        Ok(sizes)
    }

    fn accept(
        &self,
        rank: &Rank,
        sized: Sized,
        found: &mut Vec<LadderOption>,
        refusals: &mut Refusals,
    ) {
        let key = self.place.key;
        if let Err((code, reason)) = within_amounts(&self.view.record.spec, &sized) {
            return refusals.place(key, code, reason);
        }
        let scope = ResidualScope::of(rank);
        match self
            .scorer
            .score(self.view, &sized.forecast, scope, self.change)
        {
            Err(reason) => refusals.place(key, "NOT-SCORED", reason.to_string()),
            Ok(terms) => {
                let rank = Rank {
                    n_replicas: sized.n_replicas,
                    ..rank.clone()
                };
                found.push(LadderOption {
                    pool: self.pool.0,
                    ladder: Ladder { ranks: vec![rank] },
                    forecast: sized.forecast,
                    terms,
                    meets: sized.meets,
                });
            }
        }
    }
}

/// What is not searched. On a processor graphs would be compiled for minutes, blocks of 16 tokens
/// are slow, and `auto` would narrow a 32-bit checkpoint to 16 bits, which is slower there.
fn device_defaults(gpu: &GpuType, model: &ModelFacts) -> EngineShape {
    let fallback = EngineShape::default();
    if !gpu.is_cpu {
        return fallback;
    }
    let weight_dtype = match model.native_weight_dtype {
        WeightDtype::Fp32 => WeightDtype::Fp32,
        _ => fallback.weight_dtype,
    };
    EngineShape {
        weight_dtype,
        enforce_eager: true,
        block_size: CPU_BLOCK_TOKENS,
        ..fallback
    }
}

/// Replica bounds and the price limit of the job.
fn within_amounts(spec: &JobSpec, sized: &Sized) -> Result<(), (&'static str, String)> {
    let c = &spec.constraints;
    let n = sized.n_replicas;
    if n > c.max_replicas || n < c.min_replicas {
        let range = format!("{} to {}", c.min_replicas, c.max_replicas);
        return Err((
            "C3-REPLICAS",
            format!("{n} replicas, the job allows {range}"),
        ));
    }
    match (c.max_usd_per_hour, sized.forecast.stated_usd_per_hour) {
        (Some(limit), Some(usd)) if usd > limit => Err((
            "C3-USD",
            format!("{usd:.2} USD/h, the job allows {limit:.2}"),
        )),
        (Some(_), None) => Err((
            "C3-USD",
            "the job has a price limit and its hosts state no price".to_owned(),
        )),
        (Some(_), Some(_)) | (None, _) => Ok(()),
    }
}
