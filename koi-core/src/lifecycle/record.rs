//! What is stored of mechanisms beside the catalog's seeds: proposals, and the status of those that
//! were archived. A catalog with these records gives the model that decisions are made with.
//!
//! Spec §5: persist.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Origin, admit};
use crate::causal::edge::KindOf;
use crate::causal::mechanism::{MechanismDraft, MechanismStatus};
use crate::causal::{CausalModel, Mechanism};
use crate::time::UtcMicros;
use crate::violation::FieldViolation;

/// Most proposals that are kept.
pub const PROPOSALS_MAX: usize = 500;

/// One stored mechanism.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MechanismRecord {
    /// Identity.
    pub id: String,
    /// What was proposed; absent for a seed of the catalog, of which only the status is kept.
    pub draft: Option<MechanismDraft>,
    /// Where it is in its life.
    pub status: MechanismStatus,
    /// Who proposed it; absent for a seed.
    pub proposed_by: Option<String>,
    /// When it was proposed or last changed.
    pub at: UtcMicros,
}

impl MechanismRecord {
    /// An admitted proposal.
    #[must_use]
    pub fn proposal(mechanism: &Mechanism, by: &str, at: UtcMicros) -> Self {
        Self {
            id: mechanism.id.clone(),
            draft: Some(MechanismDraft {
                id: None,
                edges: mechanism.edges.iter().cloned().collect(),
                scope: mechanism.scope.clone(),
                narrative: mechanism.narrative.clone(),
                prior: None,
            }),
            status: mechanism.status,
            proposed_by: Some(by.to_owned()),
            at,
        }
    }

    /// The same, archived; a seed without a record gets one.
    #[must_use]
    pub fn archived(id: &str, stored: Option<&Self>, at: UtcMicros) -> Self {
        Self {
            id: id.to_owned(),
            draft: stored.and_then(|r| r.draft.clone()),
            status: MechanismStatus::Archived,
            proposed_by: stored.and_then(|r| r.proposed_by.clone()),
            at,
        }
    }
}

/// A catalog's model with stored mechanisms, and those that the catalog does not admit any more.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredModel {
    /// Edges and mechanisms.
    pub model: CausalModel,
    /// Records that take no part, with the reason: kept, for a catalog that knows their edges.
    pub left_out: Vec<(String, Vec<FieldViolation>)>,
}

/// Puts stored mechanisms over a catalog's seeds. Proposals pass the gate again: the catalog may
/// have changed since. A proposal that has become a seed keeps its seed.
#[must_use]
pub fn with_records(
    seeds: &CausalModel,
    records: &BTreeMap<String, MechanismRecord>,
    kind_of: KindOf<'_>,
) -> StoredModel {
    let mut model = seeds.clone();
    let mut left_out = Vec::new();
    for record in records.values() {
        if let Some(draft) = record
            .draft
            .clone()
            .filter(|_| model.mechanism(&record.id).is_none())
        {
            match admit(draft, Origin::Proposal, &model, kind_of) {
                Ok(mechanism) if mechanism.id == record.id => model.insert(mechanism),
                Ok(mechanism) => left_out.push((record.id.clone(), other_content(&mechanism.id))),
                Err(problems) => left_out.push((record.id.clone(), problems)),
            }
        }
        model.set_status(&record.id, record.status);
    }
    StoredModel { model, left_out }
}

fn other_content(id: &str) -> Vec<FieldViolation> {
    vec![FieldViolation {
        field: "id".to_owned(),
        message: format!("its content is that of {id}"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::testing::{kind_of, model};
    use crate::causal::{FeatureValues, applicable};
    use crate::job::JobClass;

    fn proposal() -> Mechanism {
        let draft = MechanismDraft {
            id: None,
            edges: vec![
                "request_arrival_rate->queue_depth".to_owned(),
                "queue_depth->p99_ttft_ms".to_owned(),
            ],
            scope: crate::causal::Scope::default(),
            narrative: "Requests wait.".to_owned(),
            prior: None,
        };
        admit(draft, Origin::Proposal, &model(), &kind_of).unwrap()
    }

    fn records(all: &[MechanismRecord]) -> BTreeMap<String, MechanismRecord> {
        all.iter().map(|r| (r.id.clone(), r.clone())).collect()
    }

    fn speaking(model: &CausalModel) -> Vec<String> {
        let features = FeatureValues::of_class(JobClass::Online);
        applicable(model, &features, None)
            .into_iter()
            .map(|a| a.id)
            .collect()
    }

    #[test]
    fn a_stored_proposal_is_the_one_that_was_admitted() {
        let mechanism = proposal();
        let record = MechanismRecord::proposal(&mechanism, "ann", UtcMicros(5));
        let text = serde_json::to_string(&record).unwrap();
        let read: MechanismRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, record);
        let stored = with_records(&model(), &records(&[read]), &kind_of);
        assert_eq!(stored.left_out, []);
        assert_eq!(stored.model.mechanism(&mechanism.id), Some(&mechanism));
        assert!(speaking(&stored.model).contains(&mechanism.id));
    }

    #[test]
    fn archived_ones_are_kept_and_do_not_speak() {
        let mechanism = proposal();
        let record = MechanismRecord::proposal(&mechanism, "ann", UtcMicros(5));
        let seed = model().mechanisms().next().unwrap().id.clone();
        let gone = [
            MechanismRecord::archived(&record.id, Some(&record), UtcMicros(6)),
            MechanismRecord::archived(&seed, None, UtcMicros(6)),
        ];
        let stored = with_records(&model(), &records(&gone), &kind_of).model;
        assert_eq!(
            stored.mechanisms().count(),
            model().mechanisms().count() + 1
        );
        for id in [&record.id, &seed] {
            assert_eq!(
                stored.mechanism(id).unwrap().status,
                MechanismStatus::Archived
            );
            assert!(!speaking(&stored).contains(id));
        }
    }

    #[test]
    fn what_the_catalog_does_not_know_any_more_is_left_out() {
        let mut record = MechanismRecord::proposal(&proposal(), "ann", UtcMicros(5));
        record.draft.as_mut().unwrap().edges[0] = "gone->queue_depth".to_owned();
        let stored = with_records(&model(), &records(&[record.clone()]), &kind_of);
        assert_eq!(stored.model, model());
        assert_eq!(stored.left_out[0].0, record.id);
        let mut forged = MechanismRecord::proposal(&proposal(), "ann", UtcMicros(5));
        forged.id = "M_00000000".to_owned();
        let stored = with_records(&model(), &records(&[forged]), &kind_of);
        assert_eq!(stored.left_out.len(), 1);
    }
}
