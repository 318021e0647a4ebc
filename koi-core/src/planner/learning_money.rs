//! What a change costs that only its lesson justifies, and which such changes are paid for.
//!
//! The swap budget says how many swaps a tick may make, not what they may cost, and β·EIG of a fresh
//! fleet outweighs every other term of σ. A swap that its job would not be worth without the lesson is
//! therefore paid from the day's learning money and made no oftener than a probe; a first placement
//! teaches for nothing or not at all. Which swaps are probes is [`super::probing`]. Spec §9, probe
//! allowance.

use super::bid::{Admission, Bid, Offer, Taken};
use super::scoring::Scorer;
use crate::params::Params;
use crate::score::sigma::justifies_swap;
use crate::slow_loop::PlannedProbe;
use crate::snapshot::Snapshot;

#[cfg(test)]
mod tests;

/// Price differences below this are rounding, USD an hour.
const SAME_PRICE_USD_PER_HOUR: f64 = 1e-9;

/// Gain of an offer without what it teaches.
pub(super) fn bare_gain(offer: &Offer) -> f64 {
    let terms = &offer.option.terms;
    offer.gain - terms.weights.explore_weight * terms.eig.value().unwrap_or(0.0)
}

/// Cost of a swap in USD: the change, and what the new ladder costs more until the next probe may
/// follow. `None` without prices.
pub(super) fn swap_usd(bid: &Bid<'_>, offer: &Offer, params: &Params) -> Option<f64> {
    let current = bid.current.as_ref()?;
    let change = offer.option.terms.switch_cost.as_ref()?.total_usd;
    let new = offer.option.forecast.summary.usd_per_hour?;
    let old = current.forecast.summary.usd_per_hour?;
    let hours = f64::from(params.probe_period_ticks * params.tick_interval_seconds) / 3600.0;
    Some(change + (new - old).max(0.0) * hours)
}

/// The admitted offer that is worth most without its lesson.
fn best_bare<'a>(bid: &'a Bid<'_>) -> Option<&'a Offer> {
    let admitted = bid
        .offers
        .iter()
        .filter(|o| o.admission == Admission::Admitted);
    admitted.max_by(|a, b| bare_gain(a).total_cmp(&bare_gain(b)))
}

/// True when an offer would not be taken but for its lesson: the change is not worth it, or another
/// one is worth more by as much as justifies a swap.
fn is_for_learning(bid: &Bid<'_>, offer: &Offer, best: Option<f64>, params: &Params) -> bool {
    let own = bare_gain(offer);
    let teaches = offer.gain > own;
    let is_unjustified = bid.current.is_some() && !justifies_swap(own, params);
    teaches && (is_unjustified || best.is_some_and(|best| justifies_swap(best - own, params)))
}

/// Rules out the offers that are for learning and not paid for.
pub(super) fn restrain(bid: &mut Bid<'_>, snapshot: &Snapshot, scorer: &Scorer<'_>) {
    if scorer.exploration.is_none() || !(bid.current.is_none() || bid.is_voluntary()) {
        return;
    }
    let params = scorer.context.params;
    let ledger = &snapshot.state.slow.probes;
    let left = ledger.usd_left(snapshot.now, params);
    let may_swap = ledger.is_free(bid.record.id, snapshot.tick, params);
    let best = best_bare(bid);
    let (best_gain, best_usd) = (best.map(bare_gain), best.and_then(usd_per_hour));
    let is_paid = |offer: &Offer| match &bid.current {
        Some(_) => may_swap && swap_usd(bid, offer, params).is_some_and(|usd| usd <= left),
        None => match (usd_per_hour(offer), best_usd) {
            (Some(usd), Some(best)) => usd <= best + SAME_PRICE_USD_PER_HOUR,
            _ => true,
        },
    };
    let unpaid: Vec<usize> = (0..bid.offers.len())
        .filter(|&i| {
            let offer = &bid.offers[i];
            offer.admission == Admission::Admitted
                && is_for_learning(bid, offer, best_gain, params)
                && !is_paid(offer)
        })
        .collect();
    for i in unpaid {
        bid.offers[i].admission = Admission::UnpaidLearning;
    }
}

fn usd_per_hour(offer: &Offer) -> Option<f64> {
    offer.option.forecast.summary.usd_per_hour
}

/// The chosen swaps that are for learning, with what they cost; those that the day's money does not
/// reach for, after the probes, are taken out of the choice.
pub(super) fn explorations(
    bids: &[Bid<'_>],
    picks: &mut [Option<Taken>],
    probes_usd: f64,
    (snapshot, scorer): (&Snapshot, &Scorer<'_>),
) -> Vec<PlannedProbe> {
    let params = scorer.context.params;
    let mut left = snapshot.state.slow.probes.usd_left(snapshot.now, params) - probes_usd;
    let mut made = Vec::new();
    for (bid, pick) in bids.iter().zip(picks) {
        let chosen = pick.filter(|p| !p.is_probe && bid.is_voluntary());
        let Some(offer) = chosen.and_then(|p| bid.offers.get(p.offer)) else {
            continue;
        };
        let best = best_bare(bid).map(bare_gain);
        if !is_for_learning(bid, offer, best, params) {
            continue;
        }
        match swap_usd(bid, offer, params).filter(|usd| *usd <= left) {
            Some(usd) => {
                left -= usd.max(0.0);
                made.push(PlannedProbe {
                    job: bid.record.id,
                    usd,
                    information_gain: offer.option.terms.eig.value().unwrap_or(0.0),
                });
            }
            None => *pick = None,
        }
    }
    made
}

/// Why an option that would be taken for what it teaches is not.
pub(super) fn unpaid(bid: &Bid<'_>, offer: &Offer) -> String {
    let eig = offer.option.terms.eig.value().unwrap_or(0.0);
    let own = bare_gain(offer);
    let rule = match bid.current {
        Some(_) => {
            "such a swap is made at most as often as a probe and paid from \
             learning.probe_usd_per_day"
        }
        None => "a first placement costs nothing more for what it teaches",
    };
    format!("only what it teaches speaks for it (EIG {eig:.3}; gain without it {own:.4}): {rule}")
}
