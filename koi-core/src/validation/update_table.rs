//! The two Beta update tables, as data: `configs/catalog/beta_updates.toml`.
//!
//! White paper V1, Appendix B; spec §6.

use serde::Deserialize;

use super::icp::Icp;
use super::quadrant::Quadrant;
use crate::causal::belief::MICROS_PER_COUNT;
use crate::violation::{FieldViolation, Violations};

#[cfg(test)]
mod tests;

const EMBEDDED: &str = include_str!("../../../configs/catalog/beta_updates.toml");
/// Largest delta of one verdict in counts: no single row may outweigh a strong prior.
const MAX_DELTA: f64 = 10.0;

/// Change of the two counts, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delta {
    /// Change of α.
    pub alpha_micro: i64,
    /// Change of β.
    pub beta_micro: i64,
}

/// Deltas by verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateTable {
    accept: [Delta; 4],
    reject: [Delta; 4],
    undecided: [Delta; 4],
    mechanism: [Delta; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "UPPERCASE")]
struct Row {
    q1: [f64; 2],
    q2: [f64; 2],
    q3: [f64; 2],
    q4: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeTable {
    accept: Row,
    reject: Row,
    undecided: Row,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    edge: EdgeTable,
    mechanism: Row,
}

impl UpdateTable {
    /// The tables that ship with the program.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn embedded() -> Result<Self, Vec<FieldViolation>> {
        Self::parse(EMBEDDED)
    }

    /// Reads the tables.
    ///
    /// # Errors
    /// A document of another shape, or deltas that are not between 0 and 10 counts.
    pub fn parse(text: &str) -> Result<Self, Vec<FieldViolation>> {
        let mut violations = Violations::default();
        let file: File = match toml::from_str(text) {
            Ok(file) => file,
            Err(e) => {
                violations.add("beta_updates.toml", e.to_string());
                return Err(violations.into_vec());
            }
        };
        let mut row = |name: &str, row: &Row| {
            [
                ("Q1", row.q1),
                ("Q2", row.q2),
                ("Q3", row.q3),
                ("Q4", row.q4),
            ]
            .map(|(quadrant, [alpha, beta])| {
                if ![alpha, beta].iter().all(|d| (0.0..=MAX_DELTA).contains(d)) {
                    violations.add(format!("{name}.{quadrant}"), "deltas lie between 0 and 10");
                }
                Delta {
                    alpha_micro: micro(alpha),
                    beta_micro: micro(beta),
                }
            })
        };
        let table = Self {
            accept: row("edge.accept", &file.edge.accept),
            reject: row("edge.reject", &file.edge.reject),
            undecided: row("edge.undecided", &file.edge.undecided),
            mechanism: row("mechanism", &file.mechanism),
        };
        violations.finish(table)
    }

    /// How an edge moves.
    #[must_use]
    pub const fn edge(&self, icp: Icp, quadrant: Quadrant) -> Delta {
        match icp {
            Icp::Accept => self.accept[quadrant as usize],
            Icp::Reject => self.reject[quadrant as usize],
            Icp::Undecided => self.undecided[quadrant as usize],
        }
    }

    /// How a mechanism moves.
    #[must_use]
    pub const fn mechanism(&self, quadrant: Quadrant) -> Delta {
        self.mechanism[quadrant as usize]
    }
}

fn micro(count: f64) -> i64 {
    (count * MICROS_PER_COUNT as f64).round_ties_even() as i64
}
