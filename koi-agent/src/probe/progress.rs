//! Hung or only busy? Work waits, no step is made, and a probe fails: all three, or it lives.
//!
//! `/health` is 200 during hangs and times out under load, so it is not asked (reliability E2, E3).

use std::time::Duration;

/// One look at an engine's own counters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgressSample {
    /// Time of the look on the agent's monotonic clock.
    pub at: Duration,
    /// Requests waiting and running; absent when the scrape failed.
    pub n_requests: Option<f64>,
    /// A counter that grows with every engine step, e.g. the count of `iteration_tokens_total`.
    pub n_steps: Option<f64>,
}

/// The last probe for a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeResult {
    /// When it ended.
    pub at: Duration,
    /// Whether a token came back.
    pub ok: bool,
}

/// How an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It makes steps, or nothing waits.
    Healthy,
    /// Work has waited without a step for the whole span; a probe should be sent.
    Suspect,
    /// Suspect, and a probe sent within the span failed.
    Hung,
    /// Too little is known to say anything.
    Unknown,
}

/// Judges the newest span of `stall_after`.
///
/// # Formula
/// Stalled: the samples reach back at least `stall_after`, each of them from the newest one before
/// that moment on has `n_requests > 0`, and `n_steps` is the same in all. Hung: stalled, and the
/// last probe ended within the span and failed.
/// # Shapes
/// `samples` ascending in time. A sample without values says nothing either way and is left out:
/// an engine under load may fail a scrape while it makes steps.
/// # Source
/// reliability.md E2, E3.
#[must_use]
pub fn judge(
    samples: &[ProgressSample],
    probe: Option<ProbeResult>,
    now: Duration,
    stall_after: Duration,
) -> Progress {
    let known: Vec<(Duration, f64, f64)> = samples
        .iter()
        .filter_map(|s| Some((s.at, s.n_requests?, s.n_steps?)))
        .filter(|(at, requests, steps)| *at <= now && requests.is_finite() && steps.is_finite())
        .collect();
    let Some(&(newest, ..)) = known.last() else {
        return Progress::Unknown;
    };
    if now.saturating_sub(newest) > stall_after {
        return Progress::Unknown;
    }
    let begin = now.saturating_sub(stall_after);
    let first = known.iter().rposition(|(at, ..)| *at <= begin);
    let span = &known[first.unwrap_or(0)..];
    let waits = span.iter().all(|(_, requests, _)| *requests > 0.0);
    let stands = span
        .windows(2)
        .all(|pair| pair[0].2.total_cmp(&pair[1].2).is_eq());
    if !waits || !stands {
        return Progress::Healthy;
    }
    if first.is_none() || span.len() < 2 {
        return Progress::Unknown;
    }
    match probe.filter(|p| p.at > begin && p.at <= now) {
        Some(ProbeResult { ok: false, .. }) => Progress::Hung,
        Some(ProbeResult { ok: true, .. }) => Progress::Healthy,
        None => Progress::Suspect,
    }
}

/// Probes in a row that must fail before an engine without metrics counts as hung: one may have waited
/// behind a long queue.
const FAILED_PROBES: u32 = 2;

/// An engine that shows no metrics at all: neither work nor steps can be seen, only tokens asked for.
///
/// # Formula
/// Hung: no page for `stall_after`, then two probes in a row fail without a page between them. With 60 s,
/// a probe of at most 30 s and looks every 5 s that is after about 130 s.
/// # Source
/// reliability.md E2 (within 150 s) and E3 (a page or a token shows that it is only busy).
#[derive(Debug, Clone, Copy, Default)]
pub struct Silence {
    since: Option<Duration>,
    n_failed: u32,
}

impl Silence {
    /// A page came.
    pub fn broken(&mut self) {
        *self = Self::default();
    }

    /// No page came; true when a token should be asked for.
    pub fn goes_on(&mut self, now: Duration, stall_after: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        now.saturating_sub(since) >= stall_after
    }

    /// A token came or did not; true when the engine hangs.
    pub fn probed(&mut self, ok: bool) -> bool {
        if ok {
            self.broken();
            return false;
        }
        self.n_failed += 1;
        self.n_failed >= FAILED_PROBES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    fn s(at: u64, requests: f64, steps: f64) -> ProgressSample {
        let (n_requests, n_steps) = (Some(requests), Some(steps));
        ProgressSample {
            at: Duration::from_secs(at),
            n_requests,
            n_steps,
        }
    }

    fn check(samples: &[ProgressSample], probe: Option<(u64, bool)>, expected: Progress) {
        let probe = probe.map(|(at, ok)| ProbeResult {
            at: Duration::from_secs(at),
            ok,
        });
        assert_eq!(
            judge(samples, probe, Duration::from_secs(100), STALL),
            expected
        );
    }

    fn stalled() -> Vec<ProgressSample> {
        (13..=20).map(|i| s(i * 5, 3.0, 77.0)).collect()
    }

    #[test]
    fn hazard_e2_work_without_steps_and_a_failed_probe_is_a_hang() {
        check(&stalled(), None, Progress::Suspect);
        check(&stalled(), Some((95, false)), Progress::Hung);
        check(&stalled(), Some((60, false)), Progress::Suspect);
        check(&stalled(), Some((95, true)), Progress::Healthy);
    }

    #[test]
    fn hazard_e3_a_saturated_engine_that_makes_steps_is_never_hung() {
        let busy: Vec<_> = (13..=20u32)
            .map(|i| s(u64::from(i) * 5, 900.0, f64::from(i)))
            .collect();
        check(&busy, Some((95, false)), Progress::Healthy);
    }

    #[test]
    fn an_idle_engine_makes_no_steps_and_is_healthy() {
        let idle: Vec<_> = (13..=20).map(|i| s(i * 5, 0.0, 77.0)).collect();
        check(&idle, Some((95, false)), Progress::Healthy);
    }

    #[test]
    fn too_little_is_unknown_and_failed_scrapes_say_nothing() {
        check(&[], Some((95, false)), Progress::Unknown);
        check(&stalled()[4..], Some((95, false)), Progress::Unknown);
        check(&[s(10, 3.0, 7.0)], Some((95, false)), Progress::Unknown);
        let mut holes = stalled();
        holes[3].n_steps = None;
        holes[5] = s(90, f64::NAN, 77.0);
        check(&holes, Some((95, false)), Progress::Hung);
    }

    #[test]
    fn without_metrics_two_failed_probes_mean_hung() {
        let stall = Duration::from_secs(60);
        let at = Duration::from_secs;
        let mut silence = Silence::default();
        assert!(!silence.goes_on(at(10), stall) && !silence.goes_on(at(69), stall));
        assert!(silence.goes_on(at(70), stall));
        assert!(!silence.probed(false), "one may have waited in a queue");
        assert!(silence.goes_on(at(105), stall) && silence.probed(false));
        // Any sign of life starts the count anew.
        silence.broken();
        assert!(!silence.goes_on(at(110), stall));
        assert!(silence.goes_on(at(170), stall) && !silence.probed(false));
        assert!(!silence.probed(true), "a token came: it is only busy");
        assert!(!silence.goes_on(at(205), stall));
    }
}
