//! The per-host process: engines under shims, GPUs, telemetry; it converges and decides nothing.

pub mod engine;
pub mod facts;
pub mod gpu;
pub mod logs;
pub mod ports;
pub mod probe;
pub mod scrape;
pub mod spool;
pub mod supervise;

#[cfg(test)]
mod test_folder;
