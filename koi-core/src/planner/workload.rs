//! What a job demands now: what its owner stated, corrected by what was measured.
//!
//! The stated rate is a floor, so that a quiet hour does not take away what was promised for the
//! next one; lengths follow the measurement only when they are clearly elsewhere, so that noise
//! does not move ladders. Spec §10.2.

use crate::job::{JobClass, JobSpec, LengthStats, Slo, Workload};
use crate::snapshot::MeasuredJob;
use crate::store::JobRecord;
use crate::surrogate::BatchProgress;
use crate::time::UtcMicros;

/// Measured over stated mean lengths inside this interval count as noise.
const LENGTH_NOISE: std::ops::RangeInclusive<f64> = 0.8..=1.25;
/// Factor by which one correction may move lengths.
const LENGTH_CORRECTION_MAX: f64 = 8.0;

/// The workload to plan for.
#[must_use]
pub fn planned_workload(spec: &JobSpec, measured: Option<&MeasuredJob>) -> Workload {
    let mut workload = spec.workload.clone();
    let Some(measured) = measured else {
        return workload;
    };
    if spec.class == JobClass::Online && measured.rate_rps.is_finite() {
        workload.arrival_rate_rps = workload.arrival_rate_rps.max(measured.rate_rps);
    }
    if let Some((isl, osl)) = measured.lengths {
        correct(&mut workload.isl, isl);
        correct(&mut workload.osl, osl);
    }
    workload
}

fn correct(stats: &mut LengthStats, measured_mean: f64) {
    let ratio = measured_mean / stats.mean;
    if !ratio.is_finite() || ratio <= 0.0 || LENGTH_NOISE.contains(&ratio) {
        return;
    }
    let ratio = ratio.clamp(1.0 / LENGTH_CORRECTION_MAX, LENGTH_CORRECTION_MAX);
    for value in [
        &mut stats.mean,
        &mut stats.p50,
        &mut stats.p95,
        &mut stats.p99,
    ] {
        *value *= ratio;
    }
}

/// What is left of a job's batch now; `None` for online jobs.
#[must_use]
pub fn batch_progress(
    job: &JobRecord,
    measured: Option<&MeasuredJob>,
    now: UtcMicros,
) -> Option<BatchProgress> {
    let Slo::Batch {
        total_token_budget,
        deadline,
    } = job.spec.slo
    else {
        return None;
    };
    let done = measured.map_or(0, |m| m.tokens_done).max(job.tokens_done);
    Some(BatchProgress {
        tokens_left: total_token_budget.saturating_sub(done) as f64,
        seconds_left: deadline.seconds_since(now),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_measurement_only_when_clearly_elsewhere() {
        let stats = LengthStats {
            mean: 100.0,
            p50: 90.0,
            p95: 200.0,
            p99: 300.0,
        };
        let corrected = |mean| {
            let mut s = stats;
            correct(&mut s, mean);
            s.p99
        };
        assert!((corrected(110.0) - 300.0).abs() < 1e-12);
        assert!((corrected(200.0) - 600.0).abs() < 1e-12);
        assert!((corrected(f64::NAN) - 300.0).abs() < 1e-12);
        assert!((corrected(1e9) - 2_400.0).abs() < 1e-9);
    }
}
