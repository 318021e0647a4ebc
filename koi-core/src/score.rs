//! Placeholder types of this series: scores.
use serde::{Deserialize, Serialize};
/// Terms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SigmaTerms {}
