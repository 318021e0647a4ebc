//! The wall clock of the shells.

use std::time::{SystemTime, UNIX_EPOCH};

use koi_core::time::UtcMicros;

/// Now; the epoch itself when the clock is set before it.
pub(crate) fn wall_clock() -> UtcMicros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
