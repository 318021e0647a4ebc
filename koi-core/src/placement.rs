//! Node placement: which host inside an environment takes a replica that must be placed anyway.
//!
//! The planner chose environment and configuration. Signals order candidates and never start a move:
//! nothing here looks at running replicas. Thresholds and domains live here, reporters send raw
//! values. ADR-0007 D1–D5; spec §15.

pub mod candidate;
pub mod hysteresis;
pub mod order;
