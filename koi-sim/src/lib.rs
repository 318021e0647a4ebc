//! The simulated world: engines with a hidden performance truth, and the workloads put on them.
//!
//! Pure: no files, sockets, threads or clock; `now` comes in and the dice are seeded. It is not a
//! predictor: nothing here may use `koi_core::surrogate`, and no planner code may use this crate,
//! so that no score can see the truth it is graded against.

pub mod blocks;
pub mod engine;
pub mod histogram;
pub mod mem_store;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod prompt;
pub mod rng;
pub mod truth;
pub mod vocabulary;
pub mod workload;
pub mod world;
