//! Placeholder types of this series: one point of X.
use serde::{Deserialize, Serialize};
/// One point of X.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration(std::collections::BTreeMap<String, serde_json::Value>);
/// View.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineShape {
    /// tp
    pub tp: u32,
    /// pp
    pub pp: u32,
}
impl Configuration {
    /// View.
    #[must_use]
    pub fn shape(&self) -> EngineShape {
        EngineShape { tp: 1, pp: 1 }
    }
}
