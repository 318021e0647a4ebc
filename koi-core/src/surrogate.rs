//! Placeholder types of this series: predictions.
use serde::{Deserialize, Serialize};
/// Prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Requests per second.
    pub capacity_rps: f64,
}
