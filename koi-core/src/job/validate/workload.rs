//! The workload of a job: rates, and lengths with their quantiles.

use super::super::draft::{LengthDraft, WorkloadDraft};
use super::super::{ArrivalPattern, JobClass, JobModel, LengthStats, Workload};
use super::{choice, in_range, short};
use crate::violation::Violations;

/// Coefficient of variation of the log-normal that fills in quantiles nobody stated.
const DEFAULT_LENGTH_CV: f64 = 0.6;

/// One request in twelve days: no service is rarer, and costs per token stay numbers.
const MIN_RATE_RPS: f64 = 1e-6;
const MAX_RATE_RPS: f64 = 1e6;
const MAX_TOKENS: f64 = 1e7;
/// Standard normal quantiles at .5, .95 and .99.
const Z: [f64; 3] = [0.0, 1.644_853_626_951_472_7, 2.326_347_874_040_840_8];

impl ArrivalPattern {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::Bursty => "bursty",
            Self::Trace => "trace",
        }
    }
}

pub(super) fn validate(
    draft: &WorkloadDraft,
    class: Option<JobClass>,
    bad: &mut Violations,
) -> Option<Workload> {
    let rate = rate(draft.arrival_rate_rps, class, bad);
    let patterns = [
        ArrivalPattern::Poisson,
        ArrivalPattern::Bursty,
        ArrivalPattern::Trace,
    ];
    let arrival_pattern = choice(
        "workload.arrival_pattern",
        draft.arrival_pattern.as_deref().unwrap_or("poisson"),
        &patterns.map(|p| (p.name(), p)),
        bad,
    );
    let mut number = |field, value: Option<f64>, default, range, unit| {
        in_range(field, value.unwrap_or(default), range, unit, bad)
    };
    let peak = number(
        "workload.peak_to_mean",
        draft.peak_to_mean,
        1.0,
        1.0..=1000.0,
        "",
    );
    let shared = number(
        "workload.shared_prefix_tokens",
        draft.shared_prefix_tokens,
        0.0,
        0.0..=MAX_TOKENS,
        "tokens",
    );
    let concentration = number(
        "workload.prefix_concentration",
        draft.prefix_concentration,
        0.0,
        0.0..=1.0,
        "(a fraction)",
    );
    let multi_turn = number(
        "workload.multi_turn_ratio",
        draft.multi_turn_ratio,
        0.0,
        0.0..=1.0,
        "(a fraction)",
    );
    let isl = lengths("workload.isl", &draft.isl, bad);
    let osl = lengths("workload.osl", &draft.osl, bad);
    prefix_within_prompts(shared, isl, bad);
    Some(Workload {
        arrival_rate_rps: rate?,
        arrival_pattern: arrival_pattern?,
        peak_to_mean: peak?,
        isl: isl?,
        osl: osl?,
        shared_prefix_tokens: shared?,
        prefix_concentration: concentration?,
        multi_turn_ratio: multi_turn?,
        session_affinity: draft.session_affinity.unwrap_or(false),
    })
}

fn prefix_within_prompts(shared: Option<f64>, isl: Option<LengthStats>, bad: &mut Violations) {
    if let (Some(shared), Some(isl)) = (shared, isl)
        && shared > isl.p99
    {
        let message = format!(
            "is {shared}, longer than the longest prompts (isl.p99 {:.0})",
            isl.p99
        );
        bad.add("workload.shared_prefix_tokens", message);
    }
}

fn rate(value: Option<f64>, class: Option<JobClass>, bad: &mut Violations) -> Option<f64> {
    const FIELD: &str = "workload.arrival_rate_rps";
    match (value, class) {
        (None, Some(JobClass::Batch)) => Some(0.0),
        (None, _) => {
            bad.add(FIELD, "is required: mean requests per second");
            None
        }
        (Some(rate), Some(JobClass::Online)) if rate.is_finite() && rate < MIN_RATE_RPS => {
            bad.add(
                FIELD,
                format!(
                    "must be above 0 requests per second for an online job, at least \
                     {MIN_RATE_RPS}, got {}",
                    short(rate)
                ),
            );
            None
        }
        (Some(rate), _) => in_range(FIELD, rate, 0.0..=MAX_RATE_RPS, "requests per second", bad),
    }
}

/// A quantile of the log-normal with this mean and [`DEFAULT_LENGTH_CV`].
///
/// # Formula   s² = ln(1 + CV²); x(z) = mean / √(1 + CV²) · exp(z·s)
/// # Units     tokens; `z` is the standard normal quantile
#[must_use]
fn length_quantile(mean: f64, z: f64) -> f64 {
    let spread = 1.0 + DEFAULT_LENGTH_CV * DEFAULT_LENGTH_CV;
    mean / spread.sqrt() * (z * spread.ln().sqrt()).exp()
}

/// Quantiles that were not stated come from [`length_quantile`], held between their stated
/// neighbours.
fn lengths(field: &str, draft: &LengthDraft, bad: &mut Violations) -> Option<LengthStats> {
    let Some(mean) = draft.mean else {
        bad.add(format!("{field}.mean"), "is required: mean tokens");
        return None;
    };
    let mean = in_range(
        &format!("{field}.mean"),
        mean,
        1.0..=MAX_TOKENS,
        "tokens",
        bad,
    );
    let stated = [("p50", draft.p50), ("p95", draft.p95), ("p99", draft.p99)];
    let mut checked = [None; 3];
    let mut fine = true;
    for (slot, (name, value)) in checked.iter_mut().zip(stated) {
        let Some(value) = value else { continue };
        *slot = in_range(
            &format!("{field}.{name}"),
            value,
            1.0..=MAX_TOKENS,
            "tokens",
            bad,
        );
        fine &= slot.is_some();
    }
    let known: Vec<f64> = checked.iter().flatten().copied().collect();
    if !known.is_sorted() {
        bad.add(
            field,
            format!("quantiles must rise: p50 ≤ p95 ≤ p99, got {known:?}"),
        );
        fine = false;
    }
    let mean = mean.filter(|_| fine)?;
    let [p50, p95, p99] = filled(mean, checked);
    if mean > p99 {
        bad.add(field, format!("mean {mean} is above p99 {p99}"));
        return None;
    }
    Some(LengthStats {
        mean,
        p50,
        p95,
        p99,
    })
}

fn filled(mean: f64, stated: [Option<f64>; 3]) -> [f64; 3] {
    let mut low = 1.0_f64;
    std::array::from_fn(|i| {
        let high = stated[i..]
            .iter()
            .flatten()
            .copied()
            .next()
            .unwrap_or(f64::MAX);
        // Low never exceeds high: stated quantiles rise, and what was filled in stayed below them.
        let value = stated[i].unwrap_or_else(|| length_quantile(mean, Z[i]).max(low).min(high));
        low = value;
        value
    })
}

/// Prompt and answer must fit the model's context.
pub(super) fn check_context(workload: &Workload, model: &JobModel, bad: &mut Violations) {
    let max = f64::from(model.facts.max_position);
    let typical = workload.isl.mean + workload.osl.mean;
    if typical > max {
        bad.add(
            "workload",
            format!("a mean prompt and answer of {typical:.0} tokens do not fit the model's context of {max:.0}"),
        );
    }
}
