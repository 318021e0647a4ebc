//! Agents' streams: who is connected, what they say, what they are told.

pub mod registry;
pub mod session;
pub mod stored;
pub mod telemetry;
