//! Time as values: the clock comes in from outside as `now`.

use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch, UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UtcMicros(pub i64);

/// A span in microseconds.
pub const MICROS_PER_SECOND: i64 = 1_000_000;

impl UtcMicros {
    /// This moment plus a number of seconds.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(
            self.0
                .saturating_add(seconds.saturating_mul(MICROS_PER_SECOND)),
        )
    }

    /// Seconds from `earlier` to this moment; negative if the order is the other way.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / MICROS_PER_SECOND as f64
    }
}
