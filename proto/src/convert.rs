//! Wire and domain, one file per noun. Senders convert with `…_to_wire` or `From`, receivers with a
//! fallible `…_from_wire` that names the field.

pub mod agents;
pub mod environment;
pub mod job;
pub mod performance;
pub mod prices;
pub mod telemetry;
mod text;
