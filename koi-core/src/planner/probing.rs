//! Which swaps of this tick are probes, from bids that are scored. Spec §9.

use std::collections::{BTreeMap, BTreeSet};

use super::bid::{Admission, Bid, Offer};
use super::exploration::{Exploration, Teaching};
use super::learning_money::swap_usd;
use super::scoring::Scorer;
use crate::ids::JobId;
use crate::score::eig::{Masks, count};
use crate::slow_loop::PlannedProbe;
use crate::slow_loop::probe::{ProbeLimits, ProbeOption, pick_by};
use crate::snapshot::Snapshot;

/// What a probe is worth to the joint choice at least: less than any need, more than nothing.
const PROBE_GAIN: f64 = 1e-3;

/// An offer that a job may take as a probe.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Probing {
    /// Position among the job's offers.
    pub(super) offer: usize,
    /// Gain in the joint choice.
    pub(super) gain: f64,
    /// Mechanism that it commits.
    pub(super) mechanism: String,
    /// What it puts to the test.
    pub(super) masks: Masks,
    /// What is recorded when it is chosen.
    pub(super) planned: PlannedProbe,
}

/// The probes of the tick by job; empty while nothing says how much edges know.
pub(super) fn probes(
    bids: &[Bid<'_>],
    snapshot: &Snapshot,
    scorer: &Scorer<'_>,
) -> BTreeMap<JobId, Probing> {
    let Some(exploration) = scorer.exploration else {
        return BTreeMap::new();
    };
    let unpowered = exploration.unpowered(snapshot);
    if unpowered.is_empty() {
        return BTreeMap::new();
    }
    let mut options = Vec::new();
    let mut found_by: BTreeMap<(JobId, usize), (Teaching, f64)> = BTreeMap::new();
    for bid in bids
        .iter()
        .filter(|b| b.is_voluntary() && !b.at_risk && b.held.is_none())
    {
        for (position, offer) in bid.offers.iter().enumerate() {
            let found = option_of((bid, offer), scorer, (exploration, &unpowered));
            let Some((mut option, teaching)) = found else {
                continue;
            };
            option.option = position;
            found_by.insert((bid.record.id, position), (teaching, offer.gain));
            options.push(option);
        }
    }
    let limits = ProbeLimits {
        tick: snapshot.tick,
        now: snapshot.now,
        active_jobs: snapshot.active_jobs(),
        ledger: &snapshot.state.slow.probes,
    };
    // What an earlier probe of the tick tests, a later one tests less.
    let mut counted = Masks::new();
    let adds = |option: &ProbeOption, before: Option<&ProbeOption>| {
        let masks = |o: &ProbeOption| Some(&found_by.get(&(o.job, o.option))?.0.masks);
        if let Some(own) = before.and_then(masks) {
            count(&mut counted, own);
        }
        masks(option).map_or(0.0, |own| exploration.adds(&counted, own))
    };
    let picked = pick_by(&options, &limits, scorer.context.params, adds);
    picked
        .into_iter()
        .filter_map(|p| {
            let (teaching, gain) = found_by.remove(&(p.job, p.option))?;
            let planned = PlannedProbe {
                job: p.job,
                usd: p.usd,
                information_gain: p.information_gain,
            };
            let probing = Probing {
                offer: p.option,
                // A probe that is a good swap as well shall not cost the budget.
                gain: gain.max(PROBE_GAIN),
                mechanism: teaching.mechanism,
                masks: teaching.masks,
                planned,
            };
            Some((p.job, probing))
        })
        .collect()
}

/// An offer as a probe, and what it would teach.
fn option_of(
    (bid, offer): (&Bid<'_>, &Offer),
    scorer: &Scorer<'_>,
    (exploration, unpowered): (&Exploration<'_>, &BTreeSet<String>),
) -> Option<(ProbeOption, Teaching)> {
    if !matches!(
        offer.admission,
        Admission::Admitted | Admission::TooLittleGain
    ) {
        return None;
    }
    let current = bid.current.as_ref()?;
    let rank = offer.option.ladder.ranks.first()?;
    let taught = exploration.most_taught(bid.record, rank, Some(unpowered))?;
    let terms = &offer.option.terms;
    let cost = terms.switch_cost.as_ref()?;
    let usd = swap_usd(bid, offer, scorer.context.params)?;
    let learned = terms
        .eig
        .value()
        .map_or(0.0, |eig| terms.weights.explore_weight * eig);
    let churn = terms.weights.churn_price * cost.hours_of_cost;
    let option = ProbeOption {
        job: bid.record.id,
        option: 0,
        information_gain: taught.gain,
        gain: terms.sigma - learned + churn - current.terms.sigma,
        sigma_current: current.terms.sigma,
        breach_probability: terms.slo_risk.any,
        tau: bid.record.spec.preference.tau,
        usd,
        tests_unpowered_edge: true,
    };
    Some((option, taught))
}
