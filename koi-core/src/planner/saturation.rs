//! The joint choice with information counted once: a link that two jobs put to the test teaches less
//! than twice, so each ladder is credited with what it adds to those counted before it.
//!
//! Choosing and crediting alternate until the choice stays; of what was chosen on the way the plan of
//! the largest Σ is taken. How the gain of one ladder comes about is [`super::exploration`]'s
//! business. Spec §7, EIG, and §10.3.

use std::collections::BTreeMap;

use super::bid::{Admission, Bid, Offer, Taken};
use super::exploration::Exploration;
use super::plan::{Chosen, objective};
use super::probing::Probing;
use super::scoring::Scorer;
use crate::ids::JobId;
use crate::score::eig::{Eig, Masks, count};
use crate::score::sigma::justifies_swap;

#[cfg(test)]
mod tests;

/// Choices made anew at most; two jobs that make way for each other may never settle.
const ROUNDS_MAX: usize = 6;
/// Information by which a credit must fall short to count as shared.
const SHARED: f64 = 1e-12;

/// A choice with the order in which its ladders are counted, by position of the bid.
#[derive(Debug, Clone)]
pub(super) struct Settled {
    /// What was chosen.
    pub(super) chosen: Chosen,
    /// All bids; the one that brings most is counted first.
    pub(super) order: Vec<usize>,
}

/// An offer as it was before anything was credited.
#[derive(Clone, Copy)]
struct Plain {
    gain: f64,
    admission: Admission,
    eig: f64,
}

struct Crediting<'a> {
    exploration: &'a Exploration<'a>,
    scorer: &'a Scorer<'a>,
    probes: &'a BTreeMap<JobId, Probing>,
    plain: Vec<Vec<Plain>>,
    /// Masks by bid and offer, once they were asked for.
    masks: BTreeMap<(usize, usize), Masks>,
}

/// Chooses with `choose` until no information is counted twice; the offers keep the gains that they
/// are credited with.
pub(super) fn settle<'a>(
    bids: &mut [Bid<'a>],
    probes: &BTreeMap<JobId, Probing>,
    scorer: &Scorer<'_>,
    choose: impl Fn(&[Bid<'a>]) -> Chosen,
) -> Settled {
    let chosen = choose(bids);
    let order = counted_first(bids, &chosen);
    let Some(exploration) = scorer.exploration else {
        return Settled { chosen, order };
    };
    let mut crediting = Crediting {
        exploration,
        scorer,
        probes,
        plain: bids.iter().map(|b| plain(&b.offers)).collect(),
        masks: BTreeMap::new(),
    };
    if !crediting.is_shared(bids, &chosen, &order) {
        return Settled { chosen, order };
    }
    // With every gain in full nothing is worth more: this bound holds for every later choice.
    let bound = chosen.selection.as_ref().map(|s| s.bound);
    let mut seen = vec![chosen.picks.clone()];
    let mut now = crediting.credit(bids, Settled { chosen, order });
    let (mut most, mut best) = (objective(bids, &now.chosen.picks), now.clone());
    for _ in 1..ROUNDS_MAX {
        let chosen = choose(bids);
        if seen.contains(&chosen.picks) {
            break;
        }
        seen.push(chosen.picks.clone());
        let order = kept(&now.order, &counted_first(bids, &chosen), &chosen);
        now = crediting.credit(bids, Settled { chosen, order });
        let value = objective(bids, &now.chosen.picks);
        if value > most {
            (most, best) = (value, now.clone());
        }
    }
    let mut best = crediting.credit(bids, best);
    if let (Some(selection), Some(bound)) = (&mut best.chosen.selection, bound) {
        (selection.bound, selection.is_optimal) = (bound, false);
    }
    best
}

fn plain(offers: &[Offer]) -> Vec<Plain> {
    let of = |offer: &Offer| Plain {
        gain: offer.gain,
        admission: offer.admission,
        eig: offer.option.terms.eig.value().unwrap_or(0.0),
    };
    offers.iter().map(of).collect()
}

/// Bids by the information of their picks, the largest first, then by position.
fn counted_first(bids: &[Bid<'_>], chosen: &Chosen) -> Vec<usize> {
    let gain = |at: usize| {
        let pick = chosen.picks.get(at).copied().flatten();
        let offer = pick.and_then(|p| bids.get(at)?.offers.get(p.offer));
        offer
            .and_then(|o| o.option.terms.eig.value())
            .unwrap_or(0.0)
    };
    let mut order: Vec<usize> = (0..bids.len()).collect();
    order.sort_by(|a, b| gain(*b).total_cmp(&gain(*a)).then(a.cmp(b)));
    order
}

/// An order in which bids that still have a pick keep their places before the others, so that the
/// first is never asked to make way for those that made way for it.
fn kept(before: &[usize], wanted: &[usize], chosen: &Chosen) -> Vec<usize> {
    let has_pick = |at: &usize| chosen.picks.get(*at).is_some_and(Option::is_some);
    let mut order: Vec<usize> = before.iter().copied().filter(has_pick).collect();
    order.extend(wanted.iter().filter(|at| !has_pick(at)));
    order
}

impl Crediting<'_> {
    /// What the pick of a bid puts to the test.
    fn tested(&mut self, bids: &[Bid<'_>], at: usize, taken: Taken) -> Masks {
        let Some(bid) = bids.get(at) else {
            return Masks::default();
        };
        let probing = self.probes.get(&bid.record.id).filter(|_| taken.is_probe);
        match probing {
            Some(probing) => probing.masks.clone(),
            None => self.masks_of(bid, (at, taken.offer)).clone(),
        }
    }

    fn masks_of(&mut self, bid: &Bid<'_>, key: (usize, usize)) -> &Masks {
        let exploration = self.exploration;
        self.masks.entry(key).or_insert_with(|| {
            let offer = bid.offers.get(key.1);
            offer.map_or_else(Masks::default, |o| {
                exploration.masks(bid.record, &o.option.ladder)
            })
        })
    }

    /// Whether a pick tests what one before it tests.
    fn is_shared(&mut self, bids: &[Bid<'_>], chosen: &Chosen, order: &[usize]) -> bool {
        let mut counted = Masks::new();
        for at in order {
            let Some(taken) = chosen.picks.get(*at).copied().flatten() else {
                continue;
            };
            let own = self.tested(bids, *at, taken);
            let alone = self.exploration.adds(&Masks::new(), &own);
            if self.exploration.adds(&counted, &own) < alone - SHARED {
                return true;
            }
            count(&mut counted, &own);
        }
        false
    }

    /// Credits every offer with what it adds to the picks counted before its bid. A pick that is not
    /// worth a change any more is given up, and counts nothing.
    fn credit(&mut self, bids: &mut [Bid<'_>], mut settled: Settled) -> Settled {
        let mut counted = Masks::new();
        for at in settled.order.clone() {
            self.credit_bid(bids, at, &counted);
            let Some(taken) = settled.chosen.picks.get(at).copied().flatten() else {
                continue;
            };
            let offer = bids.get(at).and_then(|b| b.offers.get(taken.offer));
            let is_worth_it =
                taken.is_probe || offer.is_some_and(|o| o.admission == Admission::Admitted);
            if is_worth_it {
                count(&mut counted, &self.tested(bids, at, taken));
            } else if let Some(pick) = settled.chosen.picks.get_mut(at) {
                *pick = None;
            }
        }
        settled
    }

    fn credit_bid(&mut self, bids: &mut [Bid<'_>], at: usize, counted: &Masks) {
        let n_offers = bids.get(at).map_or(0, |b| b.offers.len());
        for position in 0..n_offers {
            let plain = self.plain.get(at).and_then(|p| p.get(position)).copied();
            let Some(plain) = plain.filter(|p| p.eig > 0.0) else {
                continue;
            };
            let credit = match bids.get(at) {
                Some(bid) if !counted.is_empty() => {
                    let exploration = self.exploration;
                    let own = self.masks_of(bid, (at, position));
                    exploration.adds(counted, own).min(plain.eig)
                }
                _ => plain.eig,
            };
            if let Some(bid) = bids.get_mut(at) {
                self.put(bid, position, (plain, credit));
            }
        }
    }

    fn put(&self, bid: &mut Bid<'_>, position: usize, (plain, credit): (Plain, f64)) {
        let runs = bid.current.is_some();
        let Some(offer) = bid.offers.get_mut(position) else {
            return;
        };
        let terms = &mut offer.option.terms;
        terms.set_eig(Eig::Computed(credit));
        offer.gain = plain.gain + terms.weights.explore_weight * (credit - plain.eig);
        let params = self.scorer.context.params;
        let too_little = runs && !justifies_swap(offer.gain, params);
        offer.admission = match plain.admission {
            Admission::Admitted if too_little => Admission::TooLittleGain,
            other => other,
        };
    }
}
