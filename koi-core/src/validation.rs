//! Placeholder types of this series: evidence.
use serde::{Deserialize, Serialize};
/// Row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvidenceRow {}
