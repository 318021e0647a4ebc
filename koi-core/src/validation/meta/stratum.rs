//! What is calibrated apart: a variable, for a class of models, of deployments that are fresh or settled.
//!
//! A fresh deployment shows the surrogate's error and noise, a settled one is held against its own
//! earlier rows ([`super::super::own_bias`]) and shows noise alone. One σ for both would be the wider
//! one, and a change within a deployment would drown in it. Spec §8.

use serde::{Deserialize, Serialize};

use crate::model::ModelClass;
use crate::validation::residual::Variable;

/// How well a deployment is known when a row of it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// By the surrogate alone.
    #[default]
    Fresh,
    /// By its own earlier rows too.
    Settled,
}

impl Phase {
    /// Fresh while no bias of its own is known.
    #[must_use]
    pub const fn of(own_bias: Option<f64>) -> Self {
        match own_bias {
            Some(_) => Self::Settled,
            None => Self::Fresh,
        }
    }

    /// The name in seeds and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Settled => "settled",
        }
    }
}

/// The key of residual blocks and of calibration rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stratum {
    /// The variable.
    pub variable: Variable,
    /// Class of the job's model.
    pub model_class: ModelClass,
    /// Fresh or settled.
    pub phase: Phase,
}

impl From<(Variable, ModelClass)> for Stratum {
    fn from((variable, model_class): (Variable, ModelClass)) -> Self {
        Self::from((variable, model_class, Phase::Fresh))
    }
}

impl From<(Variable, ModelClass, Phase)> for Stratum {
    fn from((variable, model_class, phase): (Variable, ModelClass, Phase)) -> Self {
        Self {
            variable,
            model_class,
            phase,
        }
    }
}
