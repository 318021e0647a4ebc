//! `koi explain JOB`: what runs, why this and not the next best, and what would change it.
//! A print statement over what the plan stored; nothing is decided again here.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::causal::{Belief, BeliefKey, CausalModel};
use koi_core::store::PlanRecord;
use koi_core::validation::EvidenceRow;
use koi_proto::v1;

use super::encode;
use super::job_view::JobView;

/// Options shown.
const MAX_OPTIONS: usize = 12;
/// Verdicts shown per mechanism.
const MAX_VERDICTS: usize = 12;

pub(super) fn explain(
    view: &JobView,
    plan: Option<&PlanRecord>,
    evidence: &[EvidenceRow],
    beliefs: &BTreeMap<BeliefKey, Belief>,
    causal: &CausalModel,
) -> v1::ExplainJobReply {
    let job = view.record.id;
    let action = plan.and_then(|p| p.actions.iter().find(|a| a.job == job));
    let options: Vec<_> = plan
        .iter()
        .flat_map(|p| &p.considered)
        .filter(|c| c.job == job)
        .take(MAX_OPTIONS)
        .collect();
    v1::ExplainJobReply {
        job: Some(view.to_wire()),
        plan_seq: plan.map_or(0, |p| p.seq.0),
        tick_id: plan.map_or(0, |p| p.tick.0),
        action: action.map(|a| a.kind.name().to_owned()).unwrap_or_default(),
        rationale: rationale(view, action),
        not_chosen: options.iter().map(|c| encode::option(c)).collect(),
        mechanisms: mechanisms(view, evidence, beliefs, causal),
        would_change: would_change(view, &options),
    }
}

fn rationale(view: &JobView, action: Option<&koi_core::plan::PlanAction>) -> String {
    if let koi_core::store::JobState::Finished { reason } = &view.record.state {
        return format!("it is over: {reason}");
    }
    action.map_or_else(
        || "no plan has spoken about this job yet; the next tick will".to_owned(),
        |a| a.rationale.clone(),
    )
}

/// The mechanisms that the ladder commits or that judged it, with belief and newest verdicts.
fn mechanisms(
    view: &JobView,
    evidence: &[EvidenceRow],
    beliefs: &BTreeMap<BeliefKey, Belief>,
    causal: &CausalModel,
) -> Vec<v1::MechanismEvidence> {
    let committed = view
        .record
        .active
        .iter()
        .chain(view.record.rollout.iter().map(|r| &r.target));
    let mut ids: BTreeSet<String> = committed
        .flat_map(|l| &l.ladder.ranks)
        .filter_map(|r| r.mechanism_id.clone())
        .collect();
    ids.extend(
        evidence
            .iter()
            .flat_map(|r| &r.mechanisms)
            .map(|m| m.id.clone()),
    );
    let known = ids
        .into_iter()
        .filter_map(|id| causal.mechanism(&id).map(|m| (id, m)));
    known
        .map(|(id, mechanism)| {
            let belief = beliefs.get(&BeliefKey::Mechanism(id.clone()));
            v1::MechanismEvidence {
                narrative: mechanism.narrative.clone(),
                confidence: belief.map_or(0.5, |b| b.mean()),
                uncertainty: belief.map_or(1.0, |b| b.uncertainty()),
                recent_verdicts: verdicts(&id, evidence),
                mechanism_id: id,
            }
        })
        .collect()
}

fn verdicts(id: &str, evidence: &[EvidenceRow]) -> Vec<String> {
    evidence
        .iter()
        .flat_map(|row| &row.mechanisms)
        .filter(|m| m.id == id)
        .take(MAX_VERDICTS)
        .map(|m| {
            m.quadrant
                .map_or_else(|| "undecided".to_owned(), |q| format!("{q:?}"))
        })
        .collect()
}

/// Codes of the options that are what runs: they rule nothing out.
const WHAT_RUNS: [&str; 2] = ["CURRENT", "SAME"];

/// The nearest change per reason that ruled options out, best option first.
fn would_change(view: &JobView, options: &[&koi_core::plan::Considered]) -> Vec<String> {
    let mut codes = BTreeSet::new();
    let mut sentences: Vec<String> = options
        .iter()
        .filter(|c| !WHAT_RUNS.contains(&c.code.as_str()))
        .filter(|c| codes.insert(c.code.as_str()))
        .map(|c| format!("{}: {}", c.option, c.reason))
        .collect();
    if view.record.rollout.is_some() {
        sentences.insert(
            0,
            "a roll-out is under way: nothing else is tried before it is promoted or reverted"
                .to_owned(),
        );
    }
    sentences
}
