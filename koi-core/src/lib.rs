//! The Koi white paper as pure functions: no I/O, no clock, no dice, no async.
//!
//! The map from the paper's sections to modules is `docs/paper-map.md`; a tidy test keeps it true.
//! Shells (`koi-server`, `koi-agent`, `koi`) decode input, call this crate, and perform the effects
//! it returns as values.

pub mod agent;
pub mod build;
pub mod catalog;
pub mod causal;
pub mod configuration;
pub mod document;
pub mod environment;
pub mod experience;
pub mod gpu;
pub mod host;
pub mod ids;
pub mod job;
pub mod ladder;
pub mod lifecycle;
pub mod model;
pub mod params;
pub mod performance;
pub mod placement;
pub mod plan;
pub mod plan_check;
pub mod planner;
pub mod printable;
pub mod rng;
pub mod rollout;
pub mod score;
pub mod server;
pub mod settings;
pub mod slow_loop;
pub mod snapshot;
pub mod store;
pub mod surrogate;
pub mod telemetry;
pub mod tick;
pub mod time;
pub mod url;
pub mod validation;
pub mod variables;
pub mod violation;
