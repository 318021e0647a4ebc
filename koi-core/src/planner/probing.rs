//! Which swaps of this tick are probes, from bids that are scored. Spec §9.

use std::collections::{BTreeMap, BTreeSet};

use super::bid::{Admission, Bid, Offer};
use super::exploration::Exploration;
use super::learning_money::swap_usd;
use super::scoring::Scorer;
use crate::ids::JobId;
use crate::slow_loop::PlannedProbe;
use crate::slow_loop::probe::{ProbeLimits, ProbeOption, pick};
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
    let mut found_by: BTreeMap<(JobId, usize), (String, f64)> = BTreeMap::new();
    for bid in bids
        .iter()
        .filter(|b| b.is_voluntary() && !b.at_risk && b.held.is_none())
    {
        for (position, offer) in bid.offers.iter().enumerate() {
            let found = option_of((bid, offer), scorer, (exploration, &unpowered));
            let Some((mut option, mechanism)) = found else {
                continue;
            };
            option.option = position;
            found_by.insert((bid.record.id, position), (mechanism, offer.gain));
            options.push(option);
        }
    }
    let limits = ProbeLimits {
        tick: snapshot.tick,
        now: snapshot.now,
        active_jobs: snapshot.active_jobs(),
        ledger: &snapshot.state.slow.probes,
    };
    let picked = pick(&options, &limits, scorer.context.params);
    picked
        .into_iter()
        .filter_map(|p| {
            let (mechanism, gain) = found_by.remove(&(p.job, p.option))?;
            let planned = PlannedProbe {
                job: p.job,
                usd: p.usd,
                information_gain: p.information_gain,
            };
            let probing = Probing {
                offer: p.option,
                // A probe that is a good swap as well shall not cost the budget.
                gain: gain.max(PROBE_GAIN),
                mechanism,
                planned,
            };
            Some((p.job, probing))
        })
        .collect()
}

/// An offer as a probe, and the mechanism that it would commit.
fn option_of(
    (bid, offer): (&Bid<'_>, &Offer),
    scorer: &Scorer<'_>,
    (exploration, unpowered): (&Exploration<'_>, &BTreeSet<String>),
) -> Option<(ProbeOption, String)> {
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
    Some((option, taught.mechanism))
}
