//! From snapshot to draft: bids, the joint choice, slots, one action per visible job. Spec §10.

use std::collections::BTreeMap;

use super::bid::{Bid, Taken};
use super::commit::recommit;
use super::context::PlanningContext;
use super::enumerate::LadderOption;
use super::explain;
use super::exploration::Exploration;
use super::forecast::JobView;
use super::learning_money::explorations;
use super::pools::Pools;
use super::probing::{Probing, probes};
use super::saturation::{Settled, settle};
use super::scoring::{Change, Scorer, current_beliefs};
use super::select::{Problem, Selection, select};
use super::slots::{Want, assign};
use super::standing::{MustMove, is_braked};
use crate::ids::JobId;
use crate::ladder::Ladder;
use crate::plan::{ActionKind, PlanAction, PlanDraft, Slot, SwapReason};
use crate::plan_check::leave_alone;
use crate::score::eig::{Eig, Masks, count};
use crate::slow_loop::PlannedProbe;
use crate::snapshot::Snapshot;
use crate::store::JobState;
use crate::variables::Outcome;

/// The chosen offer of every bid, and what the choice proved.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    /// The offer taken, by bid; `None` leaves the job alone.
    pub(super) picks: Vec<Option<Taken>>,
    /// The selection behind it; absent when the problem had no answer.
    pub(super) selection: Option<Selection>,
}

/// Plans a whole cluster. Equal snapshots give equal drafts.
///
/// # Formula
/// max Σ_i gain_i over one option per job, within GPUs per host and the swap budget; the gains are
/// those of spec §7.
///
/// # Source
/// White paper V1, The Agentic Planner and The Cluster Objective; spec §10.
#[must_use]
pub fn plan(snapshot: &Snapshot, context: &PlanningContext<'_>) -> PlanDraft {
    let pools = Pools::of(snapshot);
    let beliefs = current_beliefs(snapshot, context);
    let exploration = Exploration::of(snapshot, context, &beliefs);
    let scorer = Scorer {
        context,
        snapshot,
        beliefs: &beliefs,
        exploration: exploration.as_ref(),
    };
    let frozen = is_braked(snapshot).then_some("many hosts fell silent together");
    let mut bids: Vec<Bid<'_>> = snapshot
        .visible_jobs()
        .map(|record| Bid::of(record, snapshot, &pools, &scorer, frozen))
        .collect();
    let probes = probes(&bids, snapshot, &scorer);
    let Settled { mut chosen, order } = settle(&mut bids, &probes, &scorer, |bids| {
        choose(bids, &pools, snapshot, &probes)
    });
    let probes_usd = taken_probes(&bids, &chosen, &probes).map(|p| p.usd).sum();
    let ground = (snapshot, &scorer);
    let mut explored = explorations(&bids, &mut chosen.picks, probes_usd, ground);
    let slots = place(&bids, &mut chosen, &pools, snapshot);
    let mut taken_up = taken_up(&bids, &chosen, &order, (&probes, &scorer));
    let mut actions = Vec::with_capacity(bids.len());
    for (at, (bid, pick)) in bids.iter().zip(&chosen.picks).enumerate() {
        let slots = slots.get(&bid.record.id).cloned().unwrap_or_default();
        actions.push(match pick.zip(taken_up.remove(&at)) {
            Some((taken, option)) => {
                let lesson = explored.iter().find(|p| p.job == bid.record.id);
                ladder_action(bid, &option, (slots, taken, lesson), &scorer)
            }
            None => {
                let rationale = explain::left_alone(bid, &pools);
                leave_alone(bid.record.id, &bid.record.state, rationale)
            }
        });
    }
    let objective = objective(&bids, &chosen.picks);
    let is_changed = |p: &PlannedProbe| {
        let of_job = actions.iter().filter(|a| a.job == p.job);
        of_job.map(|a| a.kind).any(|kind| kind == ActionKind::Swap)
    };
    explored.retain(is_changed);
    PlanDraft {
        rationale: explain::plan_rationale(&actions, &chosen, objective, &pools),
        considered: explain::considered(&bids, &chosen, &pools, snapshot.state.slow.swap_budget),
        bound: chosen.selection.as_ref().map(|s| s.bound),
        objective,
        probes: taken_probes(&bids, &chosen, &probes).cloned().collect(),
        explorations: explored,
        actions,
    }
}

/// The probes that the choice took.
fn taken_probes<'a>(
    bids: &'a [Bid<'_>],
    chosen: &'a Chosen,
    probes: &'a BTreeMap<JobId, Probing>,
) -> impl Iterator<Item = &'a PlannedProbe> {
    let pairs = bids.iter().zip(&chosen.picks);
    let probed = pairs.filter(|(_, pick)| pick.is_some_and(|p| p.is_probe));
    probed.filter_map(|(bid, _)| Some(&probes.get(&bid.record.id)?.planned))
}

/// The options as they are committed, each credited with the information that it adds to those
/// counted before it: what the plan says of them sums to what it teaches.
fn taken_up(
    bids: &[Bid<'_>],
    chosen: &Chosen,
    order: &[usize],
    (probes, scorer): (&BTreeMap<JobId, Probing>, &Scorer<'_>),
) -> BTreeMap<usize, LadderOption> {
    let (mut counted, mut options) = (Masks::new(), BTreeMap::new());
    for at in order {
        let pick = chosen.picks.get(*at).copied().flatten();
        let Some((bid, taken)) = bids.get(*at).zip(pick) else {
            continue;
        };
        let probing = probes.get(&bid.record.id).filter(|_| taken.is_probe);
        let mut option = as_taken(bid, taken, probing, scorer);
        if let Some(exploration) = scorer.exploration {
            let own = exploration.masks(bid.record, &option.ladder);
            let credit = exploration.adds(&counted, &own);
            option.terms.set_eig(Eig::Computed(credit));
            count(&mut counted, &own);
        }
        options.insert(*at, option);
    }
    options
}

pub(super) fn objective(bids: &[Bid<'_>], picks: &[Option<Taken>]) -> f64 {
    let gain = |(bid, pick): (&Bid<'_>, &Option<Taken>)| {
        pick.and_then(|p| bid.offers.get(p.offer))
            .map_or(0.0, |o| o.gain)
    };
    bids.iter().zip(picks).map(gain).sum()
}

fn choose(
    bids: &[Bid<'_>],
    pools: &Pools,
    snapshot: &Snapshot,
    probes: &BTreeMap<JobId, Probing>,
) -> Chosen {
    let choices = |bid: &Bid<'_>| bid.choices(probes.get(&bid.record.id));
    let (jobs, offers): (Vec<_>, Vec<_>) = bids.iter().map(choices).unzip();
    let problem = Problem {
        capacity: pools.capacity_rows(),
        swap_budget: snapshot.state.slow.swap_budget,
        jobs,
    };
    match select(&problem, snapshot.seed) {
        Ok(selection) => {
            // Choice 0 is doing nothing, choice k the k-th admitted offer.
            let offer = |(pick, offers): (&usize, &Vec<Taken>)| {
                pick.checked_sub(1).and_then(|k| offers.get(k).copied())
            };
            let picks = selection.picks.iter().zip(&offers).map(offer).collect();
            Chosen {
                picks,
                selection: Some(selection),
            }
        }
        // Doing nothing is always feasible, so this is a malformed gain: nothing is changed.
        Err(_) => Chosen {
            picks: vec![None; bids.len()],
            selection: None,
        },
    }
}

/// Hosts and devices of what was chosen. The capacity rows are exact, so a job without a slot is a
/// defect; it is left alone rather than planned halfway.
fn place(
    bids: &[Bid<'_>],
    chosen: &mut Chosen,
    pools: &Pools,
    snapshot: &Snapshot,
) -> BTreeMap<JobId, Vec<Slot>> {
    for _ in 0..=bids.len() {
        let wants: Vec<Want> = bids
            .iter()
            .zip(&chosen.picks)
            .filter_map(|(bid, pick)| Some(want(bid, &bid.offers.get((*pick)?.offer)?.option)))
            .collect();
        match assign(&wants, pools, snapshot) {
            Ok(slots) => return slots,
            Err(no_slot) => {
                for (bid, pick) in bids.iter().zip(&mut chosen.picks) {
                    if bid.record.id == no_slot.job {
                        *pick = None;
                    }
                }
            }
        }
    }
    BTreeMap::new()
}

fn want(bid: &Bid<'_>, option: &LadderOption) -> Want {
    Want {
        job: bid.record.id,
        model: bid.record.spec.model.id.clone(),
        rank: 0,
        pool: option.pool,
        chain_size: option.chain_size(),
        n_chains: option.ladder.n_replicas(),
    }
}

/// The option as it is committed: one that is taken for what it teaches commits what it tests.
fn as_taken(
    bid: &Bid<'_>,
    taken: Taken,
    probing: Option<&Probing>,
    scorer: &Scorer<'_>,
) -> LadderOption {
    let offer = &bid.offers[taken.offer];
    let mut option = offer.option.clone();
    let rank = option.ladder.ranks.first();
    let most_taught = || {
        let exploration = scorer
            .exploration
            .filter(|_| bid.is_decided_by_learning(offer, scorer))?;
        Some(exploration.most_taught(bid.record, rank?, None)?.mechanism)
    };
    let mechanism = probing.map(|p| p.mechanism.clone()).or_else(most_taught);
    if let Some(mechanism) = mechanism {
        let view = JobView::of(bid.record, scorer.snapshot, scorer.context);
        let running = bid.running();
        let change = running.as_ref().map_or(Change::Place, Change::Replace);
        recommit(&mut option, &mechanism, &view, scorer, change);
    }
    option
}

fn ladder_action(
    bid: &Bid<'_>,
    option: &LadderOption,
    (slots, taken, lesson): (Vec<Slot>, Taken, Option<&PlannedProbe>),
    scorer: &Scorer<'_>,
) -> PlanAction {
    let kind = match bid.record.state {
        JobState::Running => ActionKind::Swap,
        JobState::Paused => ActionKind::Resume,
        JobState::LaunchFailed { .. } => ActionKind::Retry,
        JobState::Waiting | JobState::Finished { .. } => ActionKind::Place,
    };
    let swap_reason = (kind == ActionKind::Swap).then(|| match taken.is_probe {
        true => SwapReason::Probe,
        false => swap_reason(bid, &option.ladder),
    });
    let mut promise = scorer.promise(&option.ladder, &option.forecast, &option.terms);
    // What it commits may differ from the offer, and its terms with it.
    promise.gain = bid
        .offers
        .get(taken.offer)
        .map(|o| o.gain + option.terms.sigma - o.option.terms.sigma);
    PlanAction {
        job: bid.record.id,
        kind,
        promise: Some(promise),
        target_tps: option
            .forecast
            .summary
            .outcomes
            .get(Outcome::ThroughputTokensPerSec),
        mechanism_id: option
            .ladder
            .ranks
            .first()
            .and_then(|r| r.mechanism_id.clone()),
        rationale: explain::ladder_rationale(bid, option, kind, (swap_reason, lesson)),
        ladder: Some(option.ladder.clone()),
        slots,
        swap_reason,
        budget_ref: None,
    }
}

/// Why the live ladder is replaced, by what differs most.
fn swap_reason(bid: &Bid<'_>, new: &Ladder) -> SwapReason {
    match bid.must_move() {
        Some(MustMove::Lost) => return SwapReason::Replace,
        Some(MustMove::Draining) => return SwapReason::Migrate,
        None => {}
    }
    let Some(old) = bid.record.active.as_ref().map(|a| &a.ladder) else {
        return SwapReason::Replace;
    };
    let places = |l: &Ladder| -> Vec<_> {
        l.ranks
            .iter()
            .map(|r| (r.environment.clone(), r.instance_type.clone()))
            .collect()
    };
    if places(old) != places(new) {
        return SwapReason::Migrate;
    }
    let settings =
        |l: &Ladder| -> Vec<_> { l.ranks.iter().map(|r| r.configuration.clone()).collect() };
    if settings(old) != settings(new) {
        return SwapReason::Retune;
    }
    if new.n_replicas() > old.n_replicas() {
        SwapReason::ScaleUp
    } else {
        SwapReason::ScaleDown
    }
}
