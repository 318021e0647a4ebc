//! A wide search for one job: every combination of settings, replicas and places as a space with
//! positions, predicted, checked and scored by the code that [`super::enumerate`] uses.
//!
//! Enumeration sizes a few settings and hands ladders to the joint choice at every tick; this looks
//! at hundreds of thousands of them when somebody asks. The space is never written out: a position
//! is decoded when it is looked at, and nothing is allocated for it. Parts of it are independent, so
//! that whoever has threads may hand them out ([`Space::parts`]) and merge what they
//! [found](Found::merge). What hangs on one setting alone is worked out once ([`tables`]), a
//! prediction once for all places of one device type, which differ in price, in capacity, and in what
//! own deployments there showed beyond it.
//! Spec §10.1.

mod axes;
mod evaluate;
mod found;
mod tables;

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::enumerate::LadderOption;
use super::enumerate::rules::{device_defaults, legal_split, request_limit};
use super::enumerate::usable_place;
use super::forecast::{JobView, Place, RankPlan, forecast};
use super::pools::{CHAIN_SIZES, Pools};
use super::scoring::{Change, ResidualScope, Scorer};
use crate::catalog::GpuType;
use crate::configuration::{Configuration, EngineShape};
use crate::ladder::{Ladder, Rank};
use crate::score::{Eig, PreparedLimits};
use crate::surrogate::neighbours::HeardPoint;

pub use axes::Axes;
use axes::{AXES, Knob, VALUES_MAX};
pub use found::{Found, KEPT_MAX, Refusal, Scored};
use tables::{Mask, Tables, Value};

/// Largest space that is searched.
pub const CANDIDATES_MAX: u64 = 100_000_000;
/// Most replicas of one candidate.
const REPLICAS_MAX: u32 = 256;

/// Why there is no space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSpace {
    /// More than [`CANDIDATES_MAX`].
    #[error("{n} candidates, at most {CANDIDATES_MAX}: give the axes fewer values")]
    TooLarge {
        /// How many.
        n: u64,
    },
    /// An axis with too many values.
    #[error("an axis has {n} values, at most {VALUES_MAX}")]
    LongAxis {
        /// How many.
        n: usize,
    },
}

/// A pool as a place of candidates.
#[derive(Debug)]
struct Site<'a> {
    /// Position in [`Pools`].
    pool: usize,
    place: Place<'a>,
    /// What own deployments here showed; they move the prediction of the device type.
    own: &'a [HeardPoint],
    /// Mechanisms that hold here whatever the settings.
    mechanisms: Mask,
    /// Chains of each size, a power of two, that the empty pool holds and that are free now.
    when_empty: [u32; CHAIN_SIZES.len()],
    free: [u32; CHAIN_SIZES.len()],
}

/// All pools of one device type: what a prediction does not tell apart.
#[derive(Debug)]
struct Kind<'a> {
    gpu: &'a GpuType,
    base: EngineShape,
    axes: [Vec<Value>; AXES],
    sites: Vec<Site<'a>>,
    /// The job's limits by sets of residuals, and which of them a mechanism (or none, last) uses.
    limits: Vec<PreparedLimits>,
    limits_of: Vec<usize>,
    /// Position of the first shape and of the first candidate in the space.
    first_shape: u64,
    first_candidate: u64,
}

impl Kind<'_> {
    fn n_shapes(&self) -> u64 {
        self.axes.iter().map(|values| values.len() as u64).product()
    }

    /// The values of a shape, the last axis fastest; `None` beyond the end.
    fn values(&self, shape: u64) -> Option<[Value; AXES]> {
        let mut rest = shape;
        let mut picked = [None; AXES];
        for (slot, values) in picked.iter_mut().zip(&self.axes).rev() {
            let n = values.len() as u64;
            *slot = values.get((rest % n.max(1)) as usize).copied();
            rest /= n.max(1);
        }
        let [a, b, c, d, e] = picked;
        (rest == 0).then_some([a?, b?, c?, d?, e?])
    }

    fn shape(&self, values: &[Value; AXES]) -> EngineShape {
        let mut shape = self.base;
        for value in values {
            value.knob.apply(&mut shape);
        }
        shape
    }
}

/// The space of one job in one snapshot.
#[derive(Debug)]
pub struct Space<'a> {
    view: &'a JobView<'a>,
    scorer: &'a Scorer<'a>,
    change: Change<'a>,
    kinds: Vec<Kind<'a>>,
    /// Replica counts tried.
    replicas: Range<u32>,
    /// Ids of mechanisms by bit.
    mechanisms: Vec<&'a str>,
    is_entangled: bool,
    n_shapes: u64,
    n_candidates: u64,
    /// Places and settings that are not part of it, with the reason.
    pub left_out: Vec<String>,
}

/// One candidate, decoded.
#[derive(Debug, Clone, Copy)]
struct Candidate<'s, 'a> {
    site: &'s Site<'a>,
    shape: EngineShape,
    n_replicas: u32,
}

impl<'a> Space<'a> {
    /// The space of these axes over all pools where the job may run. `change` is what choosing a
    /// candidate would do to what runs.
    ///
    /// # Errors
    /// [`NoSpace`] when it is larger than anyone wants to wait for.
    pub fn of(
        view: &'a JobView<'a>,
        pools: &'a Pools,
        scorer: &'a Scorer<'a>,
        change: Change<'a>,
        axes: &Axes,
    ) -> Result<Self, NoSpace> {
        let longest = axes.values().iter().map(Vec::len).max().unwrap_or(0);
        if longest > VALUES_MAX {
            return Err(NoSpace::LongAxis { n: longest });
        }
        let constraints = &view.record.spec.constraints;
        let least = constraints.min_replicas.max(1);
        let most = axes.replicas_max.min(constraints.max_replicas);
        let mut space = Self {
            view,
            scorer,
            change,
            kinds: Vec::new(),
            replicas: least..most.min(REPLICAS_MAX).saturating_add(1).max(least),
            mechanisms: Vec::new(),
            is_entangled: false,
            n_shapes: 0,
            n_candidates: 0,
            left_out: Vec::new(),
        };
        space.add_kinds(pools, axes);
        space.number();
        if space.n_candidates > CANDIDATES_MAX {
            return Err(NoSpace::TooLarge {
                n: space.n_candidates,
            });
        }
        Ok(space)
    }

    /// Candidates in all.
    #[must_use]
    pub const fn n_candidates(&self) -> u64 {
        self.n_candidates
    }

    /// The space in so many parts of about equal size, in order; fewer when it is small.
    #[must_use]
    pub fn parts(&self, n: u32) -> Vec<Range<u64>> {
        let n = u64::from(n).clamp(1, self.n_shapes.max(1));
        let cut = |i: u64| self.n_shapes * i / n;
        (0..n).map(|i| cut(i)..cut(i + 1)).collect()
    }

    fn add_kinds(&mut self, pools: &'a Pools, axes: &Axes) {
        let mut tables: Vec<Tables<'a>> = Vec::new();
        for (index, pool) in pools.pools.iter().enumerate() {
            let context = self.scorer.context;
            let place = match usable_place(&self.view.record.spec, &pool.key, context) {
                Ok(place) => place,
                Err((code, reason)) => {
                    let key = &pool.key;
                    self.left_out
                        .push(format!("{code} {}: {reason}", key.environment));
                    continue;
                }
            };
            let base = self.base(place.gpu);
            let known = tables.iter().position(|t| t.base == base);
            let known = known.unwrap_or_else(|| {
                tables.push(Tables::of(self.view, self.scorer, base, axes));
                tables.len() - 1
            });
            let Some(table) = tables.get(known) else {
                continue;
            };
            let chains = |of: &dyn Fn(u32) -> u64| {
                CHAIN_SIZES.map(|size| u32::try_from(of(size)).unwrap_or(u32::MAX))
            };
            let model = &self.view.record.spec.model.facts;
            let served = model.served_dtype(base.weight_dtype);
            let site = Site {
                pool: index,
                place,
                own: self.view.learned.own_in(&pool.key.environment, served),
                mechanisms: table.mask_at(self.view, self.scorer, &pool.key),
                when_empty: chains(&|size| u64::from(pool.chains_when_empty(size))),
                free: chains(&|size| pool.free_pieces(size)),
            };
            match self.kinds.iter_mut().find(|k| k.gpu.id == place.gpu.id) {
                Some(kind) => kind.sites.push(site),
                None => {
                    let kind = self.kind(place.gpu, table, site);
                    self.kinds.push(kind);
                }
            }
        }
        for table in tables {
            self.left_out.extend(table.refused);
            self.is_entangled |= table.is_entangled;
        }
    }

    /// What is not searched on a device.
    fn base(&self, gpu: &GpuType) -> EngineShape {
        EngineShape {
            max_model_len: Some(request_limit(self.view)),
            ..device_defaults(gpu, &self.view.record.spec.model.facts)
        }
    }

    fn kind(&mut self, gpu: &'a GpuType, table: &Tables<'a>, site: Site<'a>) -> Kind<'a> {
        self.mechanisms = table.mechanisms.iter().map(|m| m.id.as_str()).collect();
        let model = &self.view.record.spec.model.facts;
        let mut axes = table.axes.clone();
        for values in &mut axes {
            values.retain(|value| match value.knob {
                Knob::Split(tp, pp) => legal_split(model, tp, pp).is_ok(),
                // A processor's kernels want the blocks that they were given.
                Knob::Block(tokens) => !gpu.is_cpu || tokens.is_multiple_of(table.base.block_size),
                Knob::Batch(..) | Knob::MemoryShare(_) | Knob::PrefixCaching(_) => true,
            });
        }
        let nobody = std::iter::once(None);
        let speakers = self.mechanisms.iter().copied().map(Some).chain(nobody);
        let mut sets: Vec<Vec<&[f64]>> = Vec::new();
        let mut limits: Vec<PreparedLimits> = Vec::new();
        let mut limits_of = Vec::with_capacity(self.mechanisms.len() + 1);
        for mechanism in speakers {
            let scope = ResidualScope {
                mechanism,
                gpu_type: &gpu.id,
            };
            // Most mechanisms have no residuals of their own and share those of the device type.
            let set = self.scorer.residuals(self.view, scope);
            let is_same = |known: &Vec<&[f64]>| {
                let mut pairs = known.iter().zip(&set);
                pairs.all(|(a, b)| std::ptr::eq(*a, *b))
            };
            limits_of.push(sets.iter().position(is_same).unwrap_or(sets.len()));
            if limits_of.last() == Some(&sets.len()) {
                limits.push(self.scorer.limits(self.view, scope));
                sets.push(set);
            }
        }
        Kind {
            gpu,
            base: table.base,
            axes,
            sites: vec![site],
            limits,
            limits_of,
            first_shape: 0,
            first_candidate: 0,
        }
    }

    /// Gives every kind its positions.
    fn number(&mut self) {
        let n_replicas = u64::from(self.replicas.end - self.replicas.start);
        for kind in &mut self.kinds {
            kind.first_shape = self.n_shapes;
            kind.first_candidate = self.n_candidates;
            let n = kind.n_shapes();
            self.n_shapes += n;
            self.n_candidates += n * n_replicas * kind.sites.len() as u64;
        }
    }

    /// The candidate at a position.
    fn decode(&self, candidate: u64) -> Option<Candidate<'_, 'a>> {
        let after = self
            .kinds
            .partition_point(|k| k.first_candidate <= candidate);
        let kind = self.kinds.get(after.checked_sub(1)?)?;
        let n_sites = kind.sites.len() as u64;
        let n_replicas = u64::from(self.replicas.end - self.replicas.start);
        let at = candidate - kind.first_candidate;
        let site = kind.sites.get((at % n_sites.max(1)) as usize)?;
        let at = at / n_sites.max(1);
        let values = kind.values(at / n_replicas.max(1))?;
        Some(Candidate {
            site,
            shape: kind.shape(&values),
            n_replicas: self.replicas.start + (at % n_replicas.max(1)) as u32,
        })
    }

    /// The ladder at a position, as enumeration would have made it: settings in full, mechanism,
    /// forecast and σ with its terms.
    ///
    /// # Errors
    /// Why the candidate is none, in words.
    pub fn option(&self, candidate: u64) -> Result<LadderOption, String> {
        let found = self.decode(candidate);
        let candidate = found.ok_or_else(|| format!("there is no candidate {candidate}"))?;
        let rank = self.rank(&candidate)?;
        let plan = RankPlan {
            place: candidate.site.place,
            shape: candidate.shape,
            n_replicas: candidate.n_replicas,
        };
        let forecast =
            forecast(self.view, &[plan], true).map_err(|no| format!("no forecast: {no:?}"))?;
        let limits = self.scorer.limits(self.view, ResidualScope::of(&rank));
        let terms = self
            .scorer
            .score(
                self.view,
                &forecast,
                &limits,
                (self.change, Eig::NotComputed),
            )
            .map_err(|no| no.to_string())?;
        Ok(LadderOption {
            pool: candidate.site.pool,
            meets: self
                .scorer
                .meets(self.view, &forecast.summary, terms.slo_risk.any),
            ladder: Ladder { ranks: vec![rank] },
            forecast,
            terms,
        })
    }

    fn rank(&self, candidate: &Candidate<'_, '_>) -> Result<Rank, String> {
        let record = self.view.record;
        let (catalog, engine) = (self.scorer.context.catalog, record.spec.engine);
        let settings = Configuration::from_shape_in(catalog, &candidate.shape, engine);
        let configuration = settings.map_err(|violations| {
            let line = |v: &crate::violation::FieldViolation| format!("{} {}", v.field, v.message);
            violations.iter().map(line).collect::<Vec<_>>().join("; ")
        })?;
        let key = candidate.site.place.key;
        let mut rank = Rank {
            environment: key.environment.clone(),
            instance_type: key.instance_type.clone(),
            configuration,
            n_replicas: candidate.n_replicas,
            mechanism_id: None,
        };
        rank.mechanism_id = self.scorer.mechanism(record, &rank);
        Ok(rank)
    }
}
