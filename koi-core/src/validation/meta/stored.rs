//! The detector's calibration as it is written down: whole, by the tick that set it, under a version.
//!
//! Stores keep the document as they are given it and never look inside, so that what a calibration is
//! keyed by may change without a migration. Written by S3, like all that is learned. Spec §8, §9.

use serde::{Deserialize, Serialize};

use super::calibration::Calibration;
use crate::ids::TickId;

/// Form of the document. One of another form is left out at start, and the detector finds its
/// thresholds anew; raise it whenever an older document would be read as something else.
pub const CALIBRATION_VERSION: u32 = 1;

/// A calibration that a tick set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrationRecord {
    /// The tick.
    pub tick: TickId,
    /// What it set.
    pub calibration: Calibration,
}
