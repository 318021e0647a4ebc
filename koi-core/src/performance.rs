//! Measured serving performance as rows: what ran where, under which load, and what was measured.
//!
//! Rows come from published tables and from benchmark files ([`import`]); the neighbours member of the
//! surrogate reads them. Not what this fleet's own telemetry says: that is [`crate::telemetry`].
//! Spec §4, member 2.

pub mod import;
mod row;

pub use row::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
