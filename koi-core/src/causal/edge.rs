//! One causal edge: a feature that moves a mediator, or a mediator that moves an outcome.
//!
//! An edge from a feature straight to an outcome cannot be written down. White paper V1, Edges;
//! spec §5.

use serde::{Deserialize, Serialize};

use super::belief::PriorBin;
use crate::validation::contrast::scale::is_by_ratio;
use crate::validation::residual::Variable;
use crate::variables::{Mediator, Outcome, VariableKind};
use crate::violation::Violations;

/// Resolves a name of the closed world to its layer; `None` for a name that does not exist.
pub type KindOf<'a> = &'a dyn Fn(&str) -> Option<VariableKind>;

/// Direction in which the destination moves when the source grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Sign {
    /// Grows.
    #[serde(rename = "+")]
    Positive,
    /// Falls.
    #[serde(rename = "-")]
    Negative,
    /// Either, depending on where it stands.
    #[serde(rename = "non-monotone")]
    NonMonotone,
}

/// The two ends; X→Y has no variant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeEnds {
    /// A feature moves a mediator.
    FeatureToMediator(String, Mediator),
    /// A mediator moves another one; only where a row declares it.
    MediatorToMediator(Mediator, Mediator),
    /// A mediator moves an outcome.
    MediatorToOutcome(Mediator, Outcome),
}

impl EdgeEnds {
    /// Name of the source.
    #[must_use]
    pub fn source(&self) -> &str {
        match self {
            Self::FeatureToMediator(feature, _) => feature,
            Self::MediatorToMediator(v, _) | Self::MediatorToOutcome(v, _) => v.name(),
        }
    }

    /// Name of the destination.
    #[must_use]
    pub const fn destination(&self) -> &'static str {
        match self {
            Self::FeatureToMediator(_, v) | Self::MediatorToMediator(_, v) => v.name(),
            Self::MediatorToOutcome(_, y) => y.name(),
        }
    }

    /// The mediator that the edge leaves, if it leaves one.
    #[must_use]
    pub const fn source_mediator(&self) -> Option<Mediator> {
        match self {
            Self::FeatureToMediator(..) => None,
            Self::MediatorToMediator(v, _) | Self::MediatorToOutcome(v, _) => Some(*v),
        }
    }

    /// The mediator that the edge enters, if it enters one.
    #[must_use]
    pub const fn destination_mediator(&self) -> Option<Mediator> {
        match self {
            Self::FeatureToMediator(_, v) | Self::MediatorToMediator(_, v) => Some(*v),
            Self::MediatorToOutcome(..) => None,
        }
    }

    /// The outcome that the edge enters, if it enters one.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::MediatorToOutcome(_, y) => Some(*y),
            Self::FeatureToMediator(..) | Self::MediatorToMediator(..) => None,
        }
    }
}

/// A checked edge.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// `source->destination`.
    pub id: String,
    /// What it joins.
    pub ends: EdgeEnds,
    /// Claimed direction.
    pub sign: Sign,
    /// Belief before any evidence.
    pub prior: PriorBin,
    /// Smallest effect that matters, per unit of the source on the destination's natural scale.
    pub smallest_effect: f64,
    /// Whether seed mechanisms may carry it. The rest belongs to the closed world too, so that a
    /// proposal may use it, but the surrogate does not follow its source.
    pub seeded: bool,
    /// Why finite differences of the surrogate do not show the sign of a seeded edge; absent where
    /// they do, which a test holds every edge to.
    pub exception: Option<String>,
    /// The physics in one sentence.
    pub doc: String,
}

/// Smallest effect that matters on destinations that contrasts compare by ratio.
pub const SMALLEST_LOG_EFFECT: f64 = 0.05;
/// Smallest effect that matters on destinations that they compare in plain units.
pub const SMALLEST_PLAIN_EFFECT: f64 = 0.02;

/// One `[[edge]]` row as written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeRow {
    from: String,
    to: String,
    sign: Sign,
    prior: PriorBin,
    smallest_effect: Option<f64>,
    #[serde(default)]
    mediator_to_mediator: bool,
    #[serde(default = "yes")]
    seeded: bool,
    exception: Option<String>,
    doc: String,
}

const fn yes() -> bool {
    true
}

impl EdgeRow {
    /// Resolves the ends; every problem is added to `violations` under the edge's id.
    pub(crate) fn resolve(self, kind_of: KindOf<'_>, violations: &mut Violations) -> Option<Edge> {
        let id = format!("{}->{}", self.from, self.to);
        let ends = match self.ends(kind_of) {
            Ok(ends) => Some(ends),
            Err(message) => {
                violations.add(id.clone(), message);
                None
            }
        };
        if !self.doc.trim_end().ends_with('.') {
            violations.add(
                format!("{id}.doc"),
                "write one sentence that names the physics",
            );
        }
        if self
            .smallest_effect
            .is_some_and(|e| !(e > 0.0 && e.is_finite()))
        {
            violations.add(
                format!("{id}.smallest_effect"),
                "must be a positive finite number",
            );
        }
        self.check_exception(&id, violations);
        let ends = ends?;
        let destination = match ends {
            EdgeEnds::FeatureToMediator(_, v) | EdgeEnds::MediatorToMediator(_, v) => {
                Variable::V(v)
            }
            EdgeEnds::MediatorToOutcome(_, y) => Variable::Y(y),
        };
        let default_effect = if is_by_ratio(destination) {
            SMALLEST_LOG_EFFECT
        } else {
            SMALLEST_PLAIN_EFFECT
        };
        Some(Edge {
            id,
            ends,
            sign: self.sign,
            prior: self.prior,
            smallest_effect: self.smallest_effect.unwrap_or(default_effect),
            seeded: self.seeded,
            exception: self.exception,
            doc: self.doc,
        })
    }

    fn check_exception(&self, id: &str, violations: &mut Violations) {
        let Some(reason) = &self.exception else {
            return;
        };
        if !reason.trim_end().ends_with('.') {
            violations.add(
                format!("{id}.exception"),
                "write in one sentence why the surrogate does not show the sign",
            );
        }
        if !self.seeded {
            violations.add(
                format!("{id}.exception"),
                "an edge that is not seeded needs no exception",
            );
        }
    }

    fn ends(&self, kind_of: KindOf<'_>) -> Result<EdgeEnds, String> {
        let kind =
            |name: &str| kind_of(name).ok_or_else(|| format!("{name:?} is the id of no variable"));
        let mediator = |name: &str| {
            Mediator::from_name(name)
                .ok_or_else(|| format!("write {name:?} by its id, not an alias"))
        };
        let outcome = |name: &str| {
            Outcome::from_name(name)
                .ok_or_else(|| format!("write {name:?} by its id, not an alias"))
        };
        match (kind(&self.from)?, kind(&self.to)?) {
            (VariableKind::Feature, VariableKind::Mediator) => Ok(EdgeEnds::FeatureToMediator(
                self.from.clone(),
                mediator(&self.to)?,
            )),
            (VariableKind::Mediator, VariableKind::Mediator) if self.mediator_to_mediator => Ok(
                EdgeEnds::MediatorToMediator(mediator(&self.from)?, mediator(&self.to)?),
            ),
            (VariableKind::Mediator, VariableKind::Outcome) => Ok(EdgeEnds::MediatorToOutcome(
                mediator(&self.from)?,
                outcome(&self.to)?,
            )),
            (VariableKind::Mediator, VariableKind::Mediator) => {
                Err("a mediator moves a mediator only with mediator_to_mediator = true".to_owned())
            }
            (from, to) => Err(format!(
                "{from:?} to {to:?} is no edge: every effect passes a mediator"
            )),
        }
    }
}
