//! The per-host process: engines under shims, GPUs, telemetry; it converges and decides nothing.

pub mod config;
pub mod engine;
pub mod facts;
pub mod gpu;
pub mod host;
pub mod launcher;
pub mod logs;
pub mod models;
pub mod observability;
pub mod ports;
pub mod probe;
pub mod run;
pub mod scrape;
pub mod session;
pub mod spool;
pub mod state_lock;
pub mod supervise;
pub mod telemetry;
pub mod worker;

#[cfg(test)]
mod test_folder;
