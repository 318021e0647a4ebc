//! Every way a job could run: pools × tp × pp × batching knobs, legal, in memory, sized, scored,
//! without dominated ones, at most 64.
//!
//! Formats of weights and KV cache stay as the model's owner chose them: a cheaper format changes
//! what the model says, and no objective here can see that. Spec §10.1.

mod prune;
mod refusals;
pub(in crate::planner) mod rules;
mod search;

#[cfg(test)]
mod tests;

use super::context::PlanningContext;
use super::forecast::{Forecast, JobView, Place};
use super::pools::{PoolKey, Pools};
use super::scoring::{Change, Scorer};
use crate::catalog::EngineVersion;
use crate::job::JobSpec;
use crate::ladder::{Ladder, Rank};
use crate::plan::Considered;
use crate::plan_check::place_refusal;
use crate::score::SigmaTerms;

use refusals::Refusals;
use search::Search;

/// One way to run a job.
#[derive(Debug, Clone, PartialEq)]
pub struct LadderOption {
    /// Pool in which all its replicas lie.
    pub pool: usize,
    /// The ladder.
    pub ladder: Ladder,
    /// What it would do.
    pub forecast: Forecast,
    /// σ and its terms.
    pub terms: SigmaTerms,
    /// Breach probability within tau and headroom at peak.
    pub meets: bool,
}

impl LadderOption {
    /// GPUs of one chain.
    #[must_use]
    pub fn chain_size(&self) -> u32 {
        self.ladder.ranks.first().map_or(0, Rank::gpus_per_replica)
    }
}

/// One-line form of a ladder, e.g. `2 × H100 tp=1 pp=1 seqs=256 tokens=8192 in reserved/… on
/// p5.48xlarge`.
#[must_use]
pub fn label(ladder: &Ladder) -> String {
    let of_rank = |rank: &Rank| {
        let shape = rank.configuration.shape();
        format!(
            "{} × {} tp={} pp={} seqs={} tokens={} in {} on {}",
            rank.n_replicas,
            rank.environment.gpu_type,
            shape.tp,
            shape.pp,
            shape.max_num_seqs,
            shape.max_num_batched_tokens,
            rank.environment,
            rank.instance_type
        )
    };
    ladder
        .ranks
        .iter()
        .map(of_rank)
        .collect::<Vec<_>>()
        .join(" + ")
}

/// What enumeration found.
#[derive(Debug, Clone, Default)]
pub struct Enumerated {
    /// Options, best σ first.
    pub options: Vec<LadderOption>,
    /// What was refused before it could be scored, one line per place and reason.
    pub refused: Vec<Considered>,
}

/// Enumerates the options of a job. `change` is what choosing one would do to what runs.
#[must_use]
pub fn enumerate(
    view: &JobView<'_>,
    pools: &Pools,
    scorer: &Scorer<'_>,
    change: Change<'_>,
) -> Enumerated {
    let mut refusals = Refusals::new(view.record.id);
    let mut options = Vec::new();
    for (index, pool) in pools.pools.iter().enumerate() {
        match usable_place(&view.record.spec, &pool.key, scorer.context) {
            Err((code, reason)) => refusals.place(&pool.key, code, reason),
            Ok(place) => {
                let search = Search {
                    view,
                    scorer,
                    change,
                    place,
                    pool: (index, pool),
                };
                let mut found = search.options(&mut refusals);
                prune::drop_dominated(&mut found);
                options.append(&mut found);
            }
        }
    }
    prune::cap(&mut options);
    Enumerated {
        options,
        refused: refusals.into_considered(),
    }
}

/// The place of a pool if the job may and can run there at all, or code and reason.
pub(in crate::planner) fn usable_place<'a>(
    spec: &JobSpec,
    key: &'a PoolKey,
    context: &PlanningContext<'a>,
) -> Result<Place<'a>, (&'static str, String)> {
    if let Some(refusal) = place_refusal(&key.environment, &spec.constraints) {
        return Err(refusal);
    }
    let engine = spec.engine.name();
    let Some(version) = key.engines.get(&spec.engine) else {
        return Err((
            "ENGINE",
            format!("no host there has engine {engine}; install it"),
        ));
    };
    if !is_known_version(version, context) {
        let table = context.catalog.engine();
        let (oldest, before) = (table.oldest, table.before);
        let detail = format!(
            "engine {engine} {version} is not in the catalog: install {oldest} or later, before {before}"
        );
        return Err(("ENGINE", detail));
    }
    Place::of(key, context).ok_or_else(|| {
        (
            "GPU-TYPE",
            format!(
                "the catalog does not know the GPU type {}",
                key.environment.gpu_type
            ),
        )
    })
}

/// Whether the catalog's flag table describes an engine version.
#[must_use]
pub fn is_known_version(version: &str, context: &PlanningContext<'_>) -> bool {
    let table = context.catalog.engine();
    version
        .parse::<EngineVersion>()
        .is_ok_and(|v| table.oldest <= v && v < table.before)
}
