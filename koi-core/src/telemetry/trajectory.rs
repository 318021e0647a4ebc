//! Trajectories for S2: a rank's windows become points that carry enough observations to be judged.
//!
//! A point closes when its percentiles rest on enough observations or after 15 minutes; closed points
//! never reopen, so late windows are only counted. White paper V1, Closing the Loop; spec §3
//! (Trajectories); reliability.md C3, C5, C14.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::telemetry::histogram::EdgesTable;
use crate::telemetry::observe::{Observation, ObserveFacts, observe};
use crate::telemetry::percentile::MIN_OBSERVATIONS;
use crate::telemetry::pool::PooledWindow;
use crate::telemetry::series::HistogramSeries;
use crate::telemetry::window::{WINDOW_MICROS, Window, WindowFlag};
use crate::time::UtcMicros;

/// Longest stretch that one point may cover.
pub const MAX_POINT_SECONDS: f64 = 900.0;
/// How far behind the last closed point a window may end and still join the next one.
pub const LATE_SECONDS: f64 = 30.0;
/// Points that must have closed since the last verdict before a rank is judged.
pub const MIN_POINTS_FOR_VERDICT: usize = 3;

/// One point of a rank's trajectory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrajectoryPoint {
    /// Earliest start.
    pub start: UtcMicros,
    /// Latest end.
    pub end: UtcMicros,
    /// Replica-seconds behind it.
    pub replica_seconds: f64,
    /// Windows behind it.
    pub windows: u32,
    /// What was observed.
    pub observation: Observation,
    /// Reservations of any of the windows.
    pub flags: BTreeSet<WindowFlag>,
}

/// Collects one rank's windows into points; state that the server keeps between ticks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Trajectory {
    pending: Option<PooledWindow>,
    closed_until: Option<UtcMicros>,
    /// Windows that came after their time had been closed.
    pub late_windows: u64,
    /// Windows left out because their clock cannot be trusted.
    pub untrusted_windows: u64,
}

impl Trajectory {
    /// Takes windows of any of the rank's replicas, in any order, and returns the points they close.
    pub fn push(
        &mut self,
        windows: &[Window],
        edges: &EdgesTable,
        facts: &ObserveFacts,
    ) -> Vec<TrajectoryPoint> {
        let mut windows: Vec<&Window> = windows.iter().filter(|w| self.is_usable(w)).collect();
        windows.sort_by_cached_key(|w| (slot(w), w.start, w.replica.clone()));
        let mut points = Vec::new();
        for chunk in windows.chunk_by(|a, b| slot(a) == slot(b)) {
            for window in chunk {
                if self
                    .pending
                    .as_ref()
                    .is_some_and(|p| window.end.seconds_since(p.start) > MAX_POINT_SECONDS)
                {
                    points.extend(self.close(edges, facts));
                }
                self.take(window);
            }
            if self.pending.as_ref().is_some_and(is_complete) {
                points.extend(self.close(edges, facts));
            }
        }
        points
    }

    /// Closes what is pending, for example when the rank is replaced.
    pub fn flush(&mut self, edges: &EdgesTable, facts: &ObserveFacts) -> Option<TrajectoryPoint> {
        self.close(edges, facts)
    }

    /// A window that arrives a little late, because replicas are scraped at different moments, joins
    /// the next point; one that is older would tell a closed point something new.
    fn is_usable(&mut self, window: &Window) -> bool {
        if self
            .closed_until
            .is_some_and(|until| until.seconds_since(window.end) > LATE_SECONDS)
        {
            self.late_windows += 1;
            return false;
        }
        let trusted =
            !window.flags.contains(&WindowFlag::ClockStepped) && window.end > window.start;
        self.untrusted_windows += u64::from(!trusted);
        trusted
    }

    fn take(&mut self, window: &Window) {
        let window = PooledWindow::from(window);
        match &mut self.pending {
            Some(pending) => pending.add(&window),
            None => self.pending = Some(window),
        }
    }

    fn close(&mut self, edges: &EdgesTable, facts: &ObserveFacts) -> Option<TrajectoryPoint> {
        let pooled = self.pending.take()?;
        self.closed_until = self.closed_until.max(Some(pooled.end));
        Some(TrajectoryPoint {
            start: pooled.start,
            end: pooled.end,
            replica_seconds: pooled.replica_seconds,
            windows: pooled.windows,
            observation: observe(&pooled, edges, facts),
            flags: pooled.flags,
        })
    }
}

/// Windows of different replicas whose ends fall into the same ten seconds are pooled together.
const fn slot(window: &Window) -> i64 {
    window.end.0.div_euclid(WINDOW_MICROS as i64)
}

/// Enough observations for each percentile that the engine exports; an engine that exports none has
/// nothing to wait for.
fn is_complete(pooled: &PooledWindow) -> bool {
    [
        HistogramSeries::TimeToFirstToken,
        HistogramSeries::TimePerOutputToken,
    ]
    .into_iter()
    .filter_map(|series| pooled.histograms.get(&series))
    .all(|h| h.count >= MIN_OBSERVATIONS)
}

#[cfg(test)]
mod tests;
