//! Telemetry, pure half: an engine's metrics page and GPU readings in, windows, observed mediators
//! and outcomes, and trajectories for S2 out. White paper V1, Closing the Loop; ADR-0007 D2.
//!
//! Not here: scraping, the spool and the wire (agent, proto), storage (server). Everything is plain
//! data and bounded; a value that was not observed is absent, never zero.

pub mod engine_metrics;
pub mod histogram;
pub mod metrics_text;
pub mod node_signals;
pub mod observe;
pub mod percentile;
pub mod pool;
pub mod sample;
pub mod series;
pub mod trajectory;
pub mod window;

#[cfg(test)]
pub(crate) mod test_data;
#[cfg(test)]
pub(crate) mod test_engine;
