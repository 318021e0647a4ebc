//! The shim: one small process per replica that keeps an engine alive without its agent.
//!
//! It starts the engine in a session of its own, owns its output file, its exit status and a
//! control socket, and ends only when nothing of the engine's tree is left. It decides nothing:
//! no restarts, no health, no network. The agent uses this library for the file formats, the
//! protocol and the rules of ownership, so that both sides cannot drift apart (spec §14, §18.4).

pub mod adopt;
pub mod control;
mod daemon;
pub mod engine;
pub mod error;
pub mod files;
pub mod log_ring;
pub mod process;
pub mod record;
pub mod run;
pub mod spec;
mod supervise;
pub mod tree;

pub use error::ShimError;
