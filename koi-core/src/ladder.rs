//! Chains, ranks and ladders: what a job runs as. White paper V1, Problem Formulation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::configuration::Configuration;
use crate::environment::Environment;
use crate::ids::Generation;
use crate::score::SigmaTerms;
use crate::score::dro::Band;
use crate::surrogate::Prediction;
use crate::surrogate::members::Members;
use crate::time::UtcMicros;
use crate::variables::Outcome;

/// A rung: chain spec c = (e, x) with replica count n.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// Where.
    pub environment: Environment,
    /// On which instance type.
    pub instance_type: String,
    /// How: one point of X, checked.
    pub configuration: Configuration,
    /// How many copies.
    pub n_replicas: u32,
    /// Hypothesis that the plan commits for this rank.
    pub mechanism_id: Option<String>,
}

impl Rank {
    /// GPUs of one chain: tp × pp.
    #[must_use]
    pub fn gpus_per_replica(&self) -> u32 {
        let shape = self.configuration.shape();
        shape.tp * shape.pp
    }

    /// GPUs of the whole rank.
    #[must_use]
    pub fn n_gpus(&self) -> u32 {
        self.gpus_per_replica() * self.n_replicas
    }
}

/// Ordered ranks of one job, possibly heterogeneous.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ladder {
    /// Rungs in order.
    pub ranks: Vec<Rank>,
}

impl Ladder {
    /// Data-parallel width Σ n.
    #[must_use]
    pub fn n_replicas(&self) -> u32 {
        self.ranks.iter().map(|r| r.n_replicas).sum()
    }

    /// GPUs of the whole ladder.
    #[must_use]
    pub fn n_gpus(&self) -> u32 {
        self.ranks.iter().map(Rank::n_gpus).sum()
    }
}

/// What the plan promised for a ladder: kept as deployed, never recomputed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// One prediction per rank, at the mean rate of the plan.
    pub ranks: Vec<Prediction>,
    /// What each member of the surrogate said of each rank: verdicts are against the same members,
    /// whatever they have learned since. Empty for ladders of first principles alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Members>,
    /// The band around each predicted outcome of each rank, from the residuals of that moment
    /// ([`crate::experience::Experience::residuals`]); coverage is counted against it.
    pub bands: Vec<BTreeMap<Outcome, Band>>,
    /// Roll-up over the ranks.
    pub outcomes: crate::variables::OutcomeValues,
    /// Every term of the score at decision time.
    pub sigma: SigmaTerms,
    /// Gain over doing nothing at decision time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// Price of the whole ladder; absent when a host has no price.
    pub usd_per_hour: Option<f64>,
}

impl Promise {
    /// What each member of the surrogate said, one sentence per rank and quantity.
    #[must_use]
    pub fn member_lines(&self) -> Vec<String> {
        let is_long = self.ranks.len() > 1;
        let ranks = self.ranks.iter().zip(&self.members).enumerate();
        ranks
            .flat_map(|(rank, (prediction, members))| {
                let lines = members.lines(prediction).into_iter();
                lines.map(move |line| {
                    if is_long {
                        format!("rank {rank}: {line}")
                    } else {
                        line
                    }
                })
            })
            .collect()
    }
}

/// A ladder that was committed by a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommittedLadder {
    /// Its generation.
    pub generation: Generation,
    /// The ladder.
    pub ladder: Ladder,
    /// What it was promised to do.
    pub promise: Promise,
    /// When the plan was committed.
    pub committed_at: UtcMicros,
}
