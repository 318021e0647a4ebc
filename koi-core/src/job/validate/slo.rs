//! The promise of a job, fitting its class.

use super::super::draft::SloDraft;
use super::super::{JobClass, Slo};
use super::in_range;
use crate::time::UtcMicros;
use crate::violation::Violations;

/// Longest latency target: a day.
const MAX_LATENCY_MS: f64 = 86_400_000.0;
/// Largest token budget.
const MAX_TOKEN_BUDGET: u64 = 1_000_000_000_000_000;
/// Furthest deadline: a year.
const MAX_DEADLINE_HOURS: f64 = 8784.0;
const MICROS_PER_HOUR: f64 = 3.6e9;

pub(super) fn validate(
    draft: &SloDraft,
    class: Option<JobClass>,
    now: UtcMicros,
    bad: &mut Violations,
) -> Option<Slo> {
    match class {
        Some(JobClass::Online) => online(draft, bad),
        Some(JobClass::Batch) => batch(draft, now, bad),
        // Without a class only the numbers can be judged.
        None => {
            latency("slo.p99_ttft_ms", draft.p99_ttft_ms, bad);
            latency("slo.p99_tpot_ms", draft.p99_tpot_ms, bad);
            None
        }
    }
}

/// `Some(None)` when absent, `None` when wrong.
fn latency(field: &str, value: Option<f64>, bad: &mut Violations) -> Option<Option<f64>> {
    let Some(value) = value else {
        return Some(None);
    };
    if value.is_finite() && value <= 0.0 {
        bad.add(field, format!("must be above 0 milliseconds, got {value}"));
        return None;
    }
    in_range(field, value, 0.01..=MAX_LATENCY_MS, "milliseconds", bad).map(Some)
}

fn refuse(field: &str, present: bool, class: &str, bad: &mut Violations) -> bool {
    if present {
        bad.add(
            format!("slo.{field}"),
            format!("does not belong to a job of class {class}"),
        );
    }
    present
}

fn online(draft: &SloDraft, bad: &mut Violations) -> Option<Slo> {
    let ttft = latency("slo.p99_ttft_ms", draft.p99_ttft_ms, bad);
    let tpot = latency("slo.p99_tpot_ms", draft.p99_tpot_ms, bad);
    let foreign = [
        refuse(
            "total_token_budget",
            draft.total_token_budget.is_some(),
            "online",
            bad,
        ),
        refuse(
            "deadline_hours",
            draft.deadline_hours.is_some(),
            "online",
            bad,
        ),
        refuse(
            "deadline_at_us",
            draft.deadline_at_us.is_some(),
            "online",
            bad,
        ),
    ];
    let (p99_ttft_ms, p99_tpot_ms) = (ttft?, tpot?);
    if p99_ttft_ms.is_none() && p99_tpot_ms.is_none() {
        bad.add(
            "slo",
            "an online job needs p99_ttft_ms, p99_tpot_ms or both",
        );
        return None;
    }
    (!foreign.contains(&true)).then_some(Slo::Online {
        p99_ttft_ms,
        p99_tpot_ms,
    })
}

fn batch(draft: &SloDraft, now: UtcMicros, bad: &mut Violations) -> Option<Slo> {
    let foreign = [
        refuse("p99_ttft_ms", draft.p99_ttft_ms.is_some(), "batch", bad),
        refuse("p99_tpot_ms", draft.p99_tpot_ms.is_some(), "batch", bad),
    ];
    let budget = budget(draft.total_token_budget, bad);
    let deadline = deadline(draft, now, bad);
    let slo = Slo::Batch {
        total_token_budget: budget?,
        deadline: deadline?,
    };
    (!foreign.contains(&true)).then_some(slo)
}

fn budget(value: Option<u64>, bad: &mut Violations) -> Option<u64> {
    const FIELD: &str = "slo.total_token_budget";
    match value {
        Some(n) if (1..=MAX_TOKEN_BUDGET).contains(&n) => return Some(n),
        Some(n) => bad.add(
            FIELD,
            format!("must be from 1 to {MAX_TOKEN_BUDGET} tokens, got {n}"),
        ),
        None => bad.add(
            FIELD,
            "is required for a batch job: output tokens to generate",
        ),
    }
    None
}

fn deadline(draft: &SloDraft, now: UtcMicros, bad: &mut Violations) -> Option<UtcMicros> {
    match (draft.deadline_hours, draft.deadline_at_us) {
        (Some(_), Some(_)) => {
            bad.add(
                "slo.deadline_hours",
                "and deadline_at_us exclude each other; keep one",
            );
            None
        }
        (None, None) => {
            bad.add(
                "slo.deadline_hours",
                "is required for a batch job (or deadline_at_us)",
            );
            None
        }
        (Some(hours), None) if hours.is_finite() && hours <= 0.0 => {
            bad.add(
                "slo.deadline_hours",
                format!("must lie in the future, got {hours} hours"),
            );
            None
        }
        (Some(hours), None) => {
            let hours = in_range(
                "slo.deadline_hours",
                hours,
                0.001..=MAX_DEADLINE_HOURS,
                "hours",
                bad,
            )?;
            Some(UtcMicros(
                now.0.saturating_add((hours * MICROS_PER_HOUR) as i64),
            ))
        }
        (None, Some(at)) => {
            let hours = at.saturating_sub(now.0) as f64 / MICROS_PER_HOUR;
            if hours <= 0.0 {
                bad.add("slo.deadline_at_us", "must lie in the future");
                return None;
            }
            in_range(
                "slo.deadline_at_us",
                hours,
                0.0..=MAX_DEADLINE_HOURS,
                "hours from now",
                bad,
            )
            .map(|_| UtcMicros(at))
        }
    }
}
