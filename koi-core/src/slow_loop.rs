//! Placeholder types of this series: slow loop.
use serde::{Deserialize, Serialize};
/// State.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SlowState {}
