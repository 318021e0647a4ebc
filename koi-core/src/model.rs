//! What is known of a model from its config.json.

use serde::{Deserialize, Serialize};

/// Facts of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {}
