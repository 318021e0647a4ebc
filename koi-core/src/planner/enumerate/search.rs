//! The options of one job in one pool. Spec §10.1 and §10.2.

use super::LadderOption;
use super::refusals::Refusals;
use super::rules::{amount_refusal, device_defaults, legal_split, request_limit};
use crate::configuration::{Configuration, EngineShape};
use crate::ladder::{Ladder, Rank};
use crate::planner::forecast::{JobView, NoForecast, Place};
use crate::planner::pools::Pool;
use crate::planner::scoring::{Change, ResidualScope, Scorer};
use crate::planner::size::{SizeInput, Sized, size, size_fixed};
use crate::score::PreparedLimits;

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
                match legal_split(&self.view.record.spec.model.facts, tp, pp) {
                    Err(reason) => refusals.place(self.place.key, "SPLIT", reason),
                    Ok(()) => self.options_of_split((tp, pp), &mut found, refusals),
                }
            }
        }
        found
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
                max_model_len: Some(request_limit(self.view)),
                ..device_defaults(self.place.gpu, model)
            };
            let rank = match self.rank(shape) {
                Ok(rank) => rank,
                Err(reason) => {
                    refusals.place(key, "C6-DOMAIN", reason);
                    continue;
                }
            };
            let limits = self.scorer.limits(self.view, ResidualScope::of(&rank));
            match self.sized(shape, &limits) {
                Ok(sizes) => {
                    for sized in sizes {
                        self.accept((&rank, &limits), sized, found, refusals);
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
    fn sized(&self, shape: EngineShape, limits: &PreparedLimits) -> Result<Vec<Sized>, NoForecast> {
        let (_, pool) = self.pool;
        let input = SizeInput {
            view: self.view,
            place: self.place,
            shape,
            limits,
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
        (rank, limits): (&Rank, &PreparedLimits),
        sized: Sized,
        found: &mut Vec<LadderOption>,
        refusals: &mut Refusals,
    ) {
        let key = self.place.key;
        let stated = sized.forecast.summary.stated_usd_per_hour;
        let spec = &self.view.record.spec;
        if let Some(refusal) = amount_refusal(&spec.constraints, sized.n_replicas, stated) {
            return refusals.place(key, refusal.code(), refusal.to_string());
        }
        let eig = self.scorer.eig(self.view.record, rank);
        match self
            .scorer
            .score(self.view, &sized.forecast, limits, (self.change, eig))
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
