//! What the sums of one edge say: slope, error, verdict, and invariance across environments.
//!
//! The arithmetic is in [`super::sums`], [`super::mediated`] and [`super::levels`]; here is which of
//! them an edge takes. Spec §8.

use super::book::{ContrastBook, EdgeSums};
use super::errors::ChangeErrors;
use super::levels::level_invariance;
use super::mediated::{mediated_effect, mediated_invariance, mediated_verdict};
use super::sums::{EdgeEffect, edge_effect};
use super::verdict::{EdgeVerdict, EffectClaim, edge_verdict, effect_invariance, is_proven};
use crate::causal::Edge;
use crate::validation::icp::Icp;

/// One edge in one scope and environment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EdgeJudgement {
    /// Slope and its error; absent for categories and below two contrasts.
    pub effect: Option<EdgeEffect>,
    /// Contrasts of all kinds.
    pub n: u32,
    /// What they say of the claim.
    pub verdict: EdgeVerdict,
    /// Whether they show an effect in the claimed direction.
    pub is_proven: bool,
}

/// Judges an edge by its sums; `None` for an edge whose destination is no variable.
#[must_use]
pub fn edge_judgement(
    edge: &Edge,
    sums: &EdgeSums,
    errors: &ChangeErrors,
) -> Option<EdgeJudgement> {
    let claim = errors.claim(edge, sums)?;
    let (effect, of_steps) = if edge.ends.source_mediator().is_some() {
        let error = sums.mean_z_variance();
        (
            mediated_effect(&sums.steps, claim.surrogate_error, error),
            mediated_verdict(&sums.steps, &claim, error),
        )
    } else {
        (
            edge_effect(&sums.steps, claim.surrogate_error),
            edge_verdict(&sums.steps, &claim),
        )
    };
    Some(EdgeJudgement {
        effect,
        n: sums.n(),
        is_proven: is_proven(&sums.steps, effect, &claim) || sums.levels.is_proven(&claim),
        // A source is a number or a category, so one of the two has contrasts.
        verdict: of_steps.max(sums.levels.verdict(&claim)),
    })
}

/// Leg (b) of the invariance verdict: the effect of an edge in every environment of a scope.
#[must_use]
pub fn effect_leg(edge: &Edge, scope: &str, book: &ContrastBook, errors: &ChangeErrors) -> Icp {
    let with_claim = || {
        book.sums_by_environment(&edge.id, scope)
            .filter_map(|(_, sums)| Some((sums, errors.claim(edge, sums)?)))
    };
    let levels: Vec<_> = with_claim()
        .filter(|(sums, _)| sums.levels.pairs().next().is_some())
        .map(|(sums, claim)| (sums.levels.clone(), claim))
        .collect();
    if !levels.is_empty() {
        return level_invariance(&levels);
    }
    if edge.ends.source_mediator().is_some() {
        let all: Vec<_> = with_claim()
            .map(|(sums, claim)| (sums.steps, claim, sums.mean_z_variance()))
            .collect();
        return mediated_invariance(&all);
    }
    let all: Vec<(_, EffectClaim)> = with_claim()
        .map(|(sums, claim)| (sums.steps, claim))
        .collect();
    effect_invariance(&all)
}
