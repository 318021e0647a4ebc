//! Evidence rows for tests of what reads them.

use std::collections::{BTreeMap, BTreeSet};

use super::{EvidenceRow, Exercise, MechanismVerdict};
use crate::ids::{Generation, JobId, TickId};
use crate::validation::Quadrant;
use crate::variables::OutcomeValues;

/// The verdict of one mechanism.
pub(crate) fn verdict(
    id: &str,
    quadrant: Option<Quadrant>,
    exercise: Exercise,
) -> MechanismVerdict {
    MechanismVerdict {
        id: id.to_owned(),
        committed: false,
        v_verdicts: BTreeMap::new(),
        y_verdicts: BTreeMap::new(),
        quadrant,
        icp: BTreeMap::new(),
        exercise,
        uncalibrated: false,
        contradicted: BTreeSet::new(),
    }
}

/// An undecided verdict of the mechanism that the plan committed.
pub(crate) fn committed(id: &str) -> MechanismVerdict {
    MechanismVerdict {
        committed: true,
        ..verdict(id, None, Exercise::NotComputed)
    }
}

/// A row with these verdicts and nothing else.
pub(crate) fn row(tick: i64, mechanisms: Vec<MechanismVerdict>) -> EvidenceRow {
    EvidenceRow {
        tick: TickId(tick),
        job: JobId(uuid::Uuid::nil()),
        rank: 0,
        generation: Generation(1),
        environment: "reserved/aws/us-east-1/a/H100".parse().unwrap(),
        points: 3,
        observed: OutcomeValues::absent(),
        promise_residuals: OutcomeValues::absent(),
        inside_band: BTreeMap::new(),
        variables: BTreeMap::new(),
        mechanisms,
        deployment: None,
        contrasts: Vec::new(),
        stood: None,
        basis: None,
    }
}
