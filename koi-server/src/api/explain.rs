//! `koi explain JOB`: what runs, why this and not the next best, and what would change it.
//! A print statement over what the plan stored; nothing is decided again here.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use koi_core::causal::{Belief, BeliefKey, CausalModel};
use koi_core::store::PlanRecord;
use koi_core::validation::{EvidenceRow, Quadrant};
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
        members: members(view),
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

/// What each member of the surrogate said of what runs, else of what is on its way in.
fn members(view: &JobView) -> Vec<String> {
    let target = view.record.rollout.as_ref().map(|r| &r.target);
    let ladder = view.record.active.as_ref().or(target);
    ladder.map_or_else(Vec::new, |l| l.promise.member_lines())
}

/// The mechanisms that the ladder commits or that judged it, with belief and newest verdicts; those
/// that say most first.
fn mechanisms(
    view: &JobView,
    evidence: &[EvidenceRow],
    beliefs: &BTreeMap<BeliefKey, Belief>,
    causal: &CausalModel,
) -> Vec<v1::MechanismEvidence> {
    let ladders = view
        .record
        .active
        .iter()
        .chain(view.record.rollout.iter().map(|r| &r.target));
    let committed: BTreeSet<String> = ladders
        .flat_map(|l| &l.ladder.ranks)
        .filter_map(|r| r.mechanism_id.clone())
        .collect();
    let known = by_relevance(&committed, evidence)
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

/// Every mechanism of the job: the committed ones, then those that failed most, then those that
/// decided most.
fn by_relevance(committed: &BTreeSet<String>, evidence: &[EvidenceRow]) -> Vec<String> {
    let mut counts: BTreeMap<&str, (u32, u32)> =
        committed.iter().map(|id| (id.as_str(), (0, 0))).collect();
    for verdict in evidence.iter().flat_map(|row| &row.mechanisms) {
        let (failed, decided) = counts.entry(&verdict.id).or_default();
        *failed += u32::from(verdict.quadrant.is_some_and(|q| q != Quadrant::Q1));
        *decided += u32::from(verdict.quadrant.is_some());
    }
    let mut ids: Vec<&str> = counts.keys().copied().collect();
    ids.sort_by_key(|id| (!committed.contains(*id), Reverse(counts[id]), *id));
    ids.into_iter().map(str::to_owned).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(verdicts: &[(&str, Option<&str>)]) -> EvidenceRow {
        let mechanisms: Vec<_> = verdicts
            .iter()
            .map(|(id, quadrant)| {
                serde_json::json!({
                    "id": id, "v_verdicts": {}, "y_verdicts": {}, "quadrant": quadrant,
                    "exercise": "not_computed",
                })
            })
            .collect();
        let row = serde_json::json!({
            "tick": 1, "job": uuid::Uuid::nil(), "rank": 0, "generation": 1,
            "environment": ["reserved", "aws", "us-east-1", "a", "H100"], "points": 3, "observed": {},
            "promise_residuals": {}, "inside_band": {}, "variables": {}, "mechanisms": mechanisms,
        });
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn what_is_committed_comes_first_then_what_failed_then_what_decided() {
        let rows = [
            row(&[("M_a", None), ("M_b", Some("Q1")), ("M_c", Some("Q3"))]),
            row(&[("M_a", None), ("M_b", Some("Q1")), ("M_c", Some("Q1"))]),
        ];
        let committed = BTreeSet::from(["M_z".to_owned()]);
        assert_eq!(
            by_relevance(&committed, &rows),
            ["M_z", "M_c", "M_b", "M_a"]
        );
        assert_eq!(by_relevance(&BTreeSet::new(), &[]), [""; 0]);
    }
}
