//! The plan in words: why each action, what was not chosen and what would change that. The
//! sentences name numbers with units; those that repeat every tick keep still while nothing
//! changes, because a job's note is written whenever its sentence differs. Spec §16, `koi explain`.

use std::collections::BTreeMap;

use super::bid::{Admission, Bid, Offer, Taken, uses};
use super::enumerate::{LadderOption, label};
use super::learning_money::unpaid;
use super::plan::Chosen;
use super::pools::{CHAIN_SIZES, Pools};
use super::standing::MustMove;
use crate::plan::{ActionKind, Considered, PlanAction, SwapReason};
use crate::score::SigmaTerms;
use crate::slow_loop::PlannedProbe;
use crate::store::JobState;
use crate::variables::{Outcome, OutcomeValues};

/// Options shown per job besides the chosen one.
const SHOWN_MAX: usize = 6;
/// Capacity prices shown in the plan's own sentence.
const PRICES_MAX: usize = 5;

/// The limit that is most likely to break, in words.
fn riskiest(terms: &SigmaTerms, outcomes: &OutcomeValues) -> String {
    let worst = terms
        .slo_risk
        .by_limit
        .iter()
        .max_by(|a, b| a.1.total_cmp(&b.1));
    worst.map_or_else(String::new, |(limit, _)| {
        let (name, unit) = (limit.outcome.name(), limit.outcome.unit());
        let value = outcomes
            .get(limit.outcome)
            .map_or_else(|| "without bound".to_owned(), |y| format!("{y:.3}"));
        format!("{name} {value} against {:.3} {unit}", limit.limit)
    })
}

fn key_figures(option: &LadderOption) -> String {
    let y = &option.forecast.summary.outcomes;
    let show = |outcome: Outcome, digits: usize| {
        y.get(outcome)
            .map(|v| format!("{} {v:.digits$} {}", outcome.name(), outcome.unit()))
    };
    let usd = option
        .forecast
        .summary
        .usd_per_hour
        .map(|usd| format!("{usd:.2} USD/h"));
    let risk = format!("breach probability {:.3}", option.terms.slo_risk.any);
    let parts = [
        usd,
        show(Outcome::P99TtftMs, 0),
        show(Outcome::P99TpotMs, 1),
        show(Outcome::ThroughputTokensPerSec, 0),
        show(Outcome::SloMargin, 2),
        Some(risk),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The sentence of an action that brings a ladder; `at risk:` leads when tau is not met.
pub(super) fn ladder_rationale(
    bid: &Bid<'_>,
    option: &LadderOption,
    kind: ActionKind,
    (reason, lesson): (Option<SwapReason>, Option<&PlannedProbe>),
) -> String {
    let sentence = format!(
        "{} {}{}: {}",
        kind.name(),
        label(&option.ladder),
        purpose(bid, option, (reason, lesson)),
        key_figures(option)
    );
    if option.meets {
        return sentence;
    }
    let tau = bid.record.spec.preference.tau;
    let limit = riskiest(&option.terms, &option.forecast.summary.outcomes);
    format!("at risk: no ladder within reach meets tau {tau:.2}; limited by {limit}; {sentence}")
}

/// Why a ladder is brought in; a swap that only its lesson justifies says what the lesson is worth.
fn purpose(
    bid: &Bid<'_>,
    option: &LadderOption,
    (reason, lesson): (Option<SwapReason>, Option<&PlannedProbe>),
) -> String {
    if let Some(lesson) = lesson {
        let worth = option.terms.weights.explore_weight * lesson.information_gain;
        return format!(
            " for what it teaches (EIG {:.3}, {worth:.3} of its gain; {:.2} USD of \
             learning.probe_usd_per_day)",
            lesson.information_gain, lesson.usd
        );
    }
    let why = match (reason, bid.must_move()) {
        (Some(_), Some(MustMove::Lost)) => " because replicas were lost",
        (Some(_), Some(MustMove::Draining)) => " because their host drains",
        (Some(SwapReason::ScaleUp), None) => " to carry more",
        (Some(SwapReason::ScaleDown), None) => " because fewer suffice",
        (Some(SwapReason::Migrate), None) => " because this place serves it better",
        (Some(SwapReason::Probe), None) => " as a probe: for what it teaches",
        (Some(SwapReason::Retune | SwapReason::Replace), None) => {
            " because these settings are better"
        }
        (None, _) => "",
    };
    why.to_owned()
}

/// The sentence of a job that is left as it is.
pub(super) fn left_alone(bid: &Bid<'_>, pools: &Pools) -> String {
    if let Some(held) = &bid.held {
        return held.clone();
    }
    match &bid.record.state {
        JobState::Running => kept(bid),
        JobState::Waiting
        | JobState::Paused
        | JobState::LaunchFailed { .. }
        | JobState::Finished { .. } => infeasibility(bid, pools),
    }
}

fn kept(bid: &Bid<'_>) -> String {
    let tau = bid.record.spec.preference.tau;
    let is_risky = bid
        .current
        .as_ref()
        .is_some_and(|c| c.terms.slo_risk.any > tau);
    if is_risky {
        return format!(
            "at risk: the breach probability of what runs, as predicted now, is above tau {tau:.2}, \
             and no ladder within reach is better by enough"
        );
    }
    "keep: no other ladder is better by enough to be worth a change".to_owned()
}

/// Why a job waits, typed by its first word: no hosts, no fit, no capacity, outbid.
fn infeasibility(bid: &Bid<'_>, pools: &Pools) -> String {
    if pools.pools.is_empty() {
        return "no hosts: no host is connected and takes work".to_owned();
    }
    let Some(best) = bid.offers.first() else {
        let refusal = bid.refused.first();
        return refusal.map_or_else(
            || "no place: no pool was tried".to_owned(),
            |r| {
                format!(
                    "no place: nothing can run it; {}: {} ({})",
                    r.option, r.reason, r.code
                )
            },
        );
    };
    let admitted = bid
        .offers
        .iter()
        .find(|o| o.admission == Admission::Admitted);
    match admitted {
        None => format!("no capacity: {}", shortage(&best.option, pools)),
        Some(offer) if offer.gain <= 0.0 => format!(
            "not worth it: {} would serve it worse than waiting does",
            label(&offer.option.ladder)
        ),
        Some(offer) => format!(
            "outbid: {} needs {} GPUs that are worth more to other jobs",
            label(&offer.option.ladder),
            offer.option.ladder.n_gpus()
        ),
    }
}

/// What a pool lacks for an option.
fn shortage(option: &LadderOption, pools: &Pools) -> String {
    let size = option.chain_size();
    let free = pools
        .pools
        .get(option.pool)
        .map_or(0, |p| p.free_pieces(size));
    let wanted = u64::from(option.ladder.n_replicas());
    format!(
        "{} needs {wanted} × {size} GPUs, each {size} on one host; {free} × {size} are free, {} \
         GPUs are lacking",
        label(&option.ladder),
        wanted.saturating_sub(free) * u64::from(size)
    )
}

/// The sentence of the whole plan.
pub(super) fn plan_rationale(
    actions: &[PlanAction],
    chosen: &Chosen,
    objective: f64,
    pools: &Pools,
) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for action in actions {
        *counts.entry(action.kind.name()).or_default() += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|(name, n)| format!("{n} {name}"))
        .collect();
    let proof = match &chosen.selection {
        Some(s) if s.is_optimal => "proven best".to_owned(),
        Some(s) => format!("at most {:.3} possible", s.bound),
        None => "no choice was possible".to_owned(),
    };
    let mut text = format!("{}; Σ gain {objective:.3}, {proof}", counts.join(", "));
    for price in prices(chosen, pools) {
        text.push_str("; ");
        text.push_str(&price);
    }
    text
}

/// What one more free piece of capacity would add to Σ, dearest first.
fn prices(chosen: &Chosen, pools: &Pools) -> Vec<String> {
    let Some(selection) = &chosen.selection else {
        return Vec::new();
    };
    let mut rows: Vec<(f64, usize)> = selection
        .prices
        .iter()
        .copied()
        .zip(0..)
        .filter(|(p, _)| *p > 1e-3)
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let line = |(price, row): &(f64, usize)| {
        let pool = pools.pools.get(row / CHAIN_SIZES.len())?;
        let size = CHAIN_SIZES[row % CHAIN_SIZES.len()];
        let place = &pool.key.environment;
        Some(format!(
            "{size} more GPU(s) on one host of {place} would be worth {price:.3}"
        ))
    };
    rows.iter().take(PRICES_MAX).filter_map(line).collect()
}

/// What was not chosen, job by job: what runs, the next best, the refused.
pub(super) fn considered(
    bids: &[Bid<'_>],
    chosen: &Chosen,
    pools: &Pools,
    swap_budget: u32,
) -> Vec<Considered> {
    let left = left_over(bids, chosen, pools);
    let swaps = |bid: &Bid<'_>, pick: &Option<Taken>| {
        pick.is_some_and(|taken| !taken.is_probe) && bid.is_voluntary()
    };
    let n_swaps = bids
        .iter()
        .zip(&chosen.picks)
        .filter(|(b, p)| swaps(b, p))
        .count();
    let budget_is_spent = n_swaps >= swap_budget as usize;
    let mut lines = Vec::new();
    for (bid, pick) in bids.iter().zip(&chosen.picks) {
        lines.extend(current_line(bid));
        let picked = pick.and_then(|p| bid.offers.get(p.offer));
        let others = bid
            .offers
            .iter()
            .enumerate()
            .filter(|(i, _)| Some(*i) != pick.map(|p| p.offer));
        for (_, offer) in others.take(SHOWN_MAX) {
            lines.push(offer_line(
                bid,
                offer,
                picked,
                &Rest {
                    left: &left,
                    pools,
                    budget_is_spent,
                },
            ));
        }
    }
    lines.extend(bids.iter().flat_map(|b| b.refused.iter().cloned()));
    lines
}

struct Rest<'a> {
    left: &'a [u64],
    pools: &'a Pools,
    budget_is_spent: bool,
}

/// Capacity rows after the plan.
fn left_over(bids: &[Bid<'_>], chosen: &Chosen, pools: &Pools) -> Vec<u64> {
    let mut left = pools.capacity_rows();
    for (bid, pick) in bids.iter().zip(&chosen.picks) {
        let Some(offer) = pick.and_then(|p| bid.offers.get(p.offer)) else {
            continue;
        };
        for (row, n) in uses(&offer.option) {
            left[row] = left[row].saturating_sub(n);
        }
    }
    left
}

fn current_line(bid: &Bid<'_>) -> Option<Considered> {
    let current = bid.current.as_ref()?;
    Some(Considered {
        job: bid.record.id,
        option: label(&current.ladder),
        sigma: Some(current.terms.clone()),
        gain: Some(0.0),
        outcomes: Some(current.forecast.summary.outcomes),
        usd_per_hour: current.forecast.summary.stated_usd_per_hour,
        code: "CURRENT".to_owned(),
        reason: "what runs, as predicted now: the measure of every gain".to_owned(),
    })
}

fn offer_line(bid: &Bid<'_>, offer: &Offer, picked: Option<&Offer>, rest: &Rest<'_>) -> Considered {
    let (code, reason) = verdict(bid, offer, picked, rest);
    Considered {
        job: bid.record.id,
        option: label(&offer.option.ladder),
        sigma: Some(offer.option.terms.clone()),
        gain: Some(offer.gain),
        outcomes: Some(offer.option.forecast.summary.outcomes),
        usd_per_hour: offer.option.forecast.summary.stated_usd_per_hour,
        code: code.to_owned(),
        reason,
    }
}

/// Code and sentence of an option that was not chosen.
fn verdict(
    bid: &Bid<'_>,
    offer: &Offer,
    picked: Option<&Offer>,
    rest: &Rest<'_>,
) -> (&'static str, String) {
    let option = &offer.option;
    match offer.admission {
        Admission::Same => return ("SAME", "is what runs".to_owned()),
        Admission::NoCapacity => return ("CAPACITY", shortage(option, rest.pools)),
        Admission::TooRisky => {
            let risk = option.terms.slo_risk.any;
            let limit = riskiest(&option.terms, &option.forecast.summary.outcomes);
            let tau = bid.record.spec.preference.tau;
            let text = format!("breach probability {risk:.3} is above tau {tau:.2}: {limit}");
            return ("SLO", text);
        }
        Admission::TooLittleGain => {
            let text = format!(
                "gain {:.4} over what runs is too little for a change; limited by {}",
                offer.gain,
                option.terms.exploit.limiting.name()
            );
            return ("SCORE", text);
        }
        Admission::UnpaidLearning => return ("LEARNING", unpaid(bid, offer)),
        Admission::Admitted => {}
    }
    let rival = picked.map_or(0.0, |p| p.gain);
    if offer.gain <= rival {
        let text = format!(
            "gain {:.4} against {rival:.4} of what was chosen: {}; limited by {}",
            offer.gain,
            lacking(rival - offer.gain),
            option.terms.exploit.limiting.name()
        );
        return ("SCORE", text);
    }
    let lacks = uses(option).iter().any(|(row, n)| rest.left[*row] < *n);
    if !lacks && picked.is_none() && bid.is_voluntary() && rest.budget_is_spent {
        let text = "the swap budget of this tick is spent on larger gains".to_owned();
        return ("SWAP-BUDGET", text);
    }
    let text = format!(
        "its {} GPUs are worth more to other jobs; more of {} would change that",
        option.ladder.n_gpus(),
        option
            .ladder
            .ranks
            .first()
            .map_or_else(String::new, |r| r.environment.to_string())
    );
    ("CAPACITY", text)
}

/// What a gain lacks, in words where four digits show nothing of it.
fn lacking(gain: f64) -> String {
    if gain < 0.5e-4 {
        "as good as a tie, which the first in order wins".to_owned()
    } else {
        format!("{gain:.4} more is needed")
    }
}
