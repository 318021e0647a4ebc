//! A fleet's hidden truth in steady state: what a chain would show, without running it event by event.
//!
//! For studies of many jobs over hundreds of ticks. Step times are those of [`crate::truth`]; the live
//! batch follows from a fixed point, waiting from a queue formula of its own; [`Weather`] adds load that
//! wanders and drifts, and [`window`] draws the requests of ten seconds into the histograms that an
//! agent would send. It is not the surrogate's formula, and nothing here is visible to planner code.
//! Spec §8 (the learning study).

mod chain;
mod levers;
mod reading;
mod steady;
mod weather;
mod window;

#[cfg(test)]
mod tests;

pub use chain::{Chain, ChainError, ChainInput};
pub use levers::Levers;
pub use reading::ReadingFacts;
pub use steady::{Demand, Steady};
pub use weather::{Drift, Weather, WindowWeather};
pub use window::{WindowInput, edges_table, window};
