//! Tests of the admission gate: one broken proposal per refusal.

use super::*;
use crate::causal::mechanism::MechanismDraft;
use crate::causal::scope::{Comparison, Condition, FeatureValue, Scope};
use crate::causal::testing::{kind_of, model};
use crate::causal::{Mechanism, PriorBin};
use crate::violation::FieldViolation;

const QUEUE: [&str; 2] = [
    "request_arrival_rate->queue_depth",
    "queue_depth->p99_ttft_ms",
];

fn draft(edges: &[&str]) -> MechanismDraft {
    MechanismDraft {
        id: None,
        edges: edges.iter().map(|e| (*e).to_owned()).collect(),
        scope: Scope::default(),
        narrative: "Requests wait.".to_owned(),
        prior: Some(PriorBin::Certain),
    }
}

fn propose(draft: MechanismDraft) -> Result<Mechanism, Vec<FieldViolation>> {
    admit(draft, Origin::Proposal, &model(), &kind_of)
}

fn messages(draft: MechanismDraft) -> String {
    let problems = propose(draft).unwrap_err();
    problems
        .into_iter()
        .map(|v| format!("{}: {}\n", v.field, v.message))
        .collect()
}

#[test]
fn a_proposal_is_named_by_its_content_and_does_not_grade_itself() {
    let admitted = propose(draft(&QUEUE)).unwrap();
    let reversed: Vec<&str> = QUEUE.into_iter().rev().collect();
    assert_eq!(propose(draft(&reversed)).unwrap().id, admitted.id);
    assert_eq!(admitted.prior, PriorBin::Even);
    let hex = admitted.id.strip_prefix("M_").unwrap();
    assert!(
        hex.len() == 8 && hex.bytes().all(|c| c.is_ascii_hexdigit()),
        "{hex}"
    );
    let mut narrower = draft(&QUEUE);
    narrower.scope.conditions.push(Condition {
        feature: "tp".to_owned(),
        op: Comparison::Greater,
        value: FeatureValue::Number(1.0),
    });
    assert_ne!(propose(narrower).unwrap().id, admitted.id);
}

#[test]
fn a_proposal_may_not_enter_twice() {
    let mut model = model();
    let first = admit(draft(&QUEUE), Origin::Proposal, &model, &kind_of).unwrap();
    model.insert(first);
    assert!(admit(draft(&QUEUE), Origin::Proposal, &model, &kind_of).is_err());
}

#[test]
fn each_kind_of_broken_topology_is_named() {
    let cases: [(&[&str], &str); 5] = [
        (&[], "name 1 to 32 edges"),
        (
            &["request_arrival_rate->queue_depht", QUEUE[1]],
            "did you mean \"request_arrival_rate->queue_depth\"",
        ),
        (&[QUEUE[0], QUEUE[0], QUEUE[1]], "is repeated"),
        (&[QUEUE[0]], "queue_depth dangles"),
        (
            &[
                QUEUE[0],
                QUEUE[1],
                "pp->pipeline_bubble_fraction",
                "pipeline_bubble_fraction->throughput_tokens_per_sec",
            ],
            "falls into parts",
        ),
    ];
    for (edges, expected) in cases {
        let got = messages(draft(edges));
        assert!(got.contains(expected), "{edges:?}: {got}");
    }
}

#[test]
fn a_scope_must_be_well_typed_and_all_problems_come_at_once() {
    let mut bad = draft(&[QUEUE[0]]);
    bad.narrative = " ".to_owned();
    for (feature, op, value) in [
        (
            "queue_depth",
            Comparison::Greater,
            FeatureValue::Number(1.0),
        ),
        ("tp", Comparison::Greater, FeatureValue::Flag(true)),
        ("tp", Comparison::Equal, FeatureValue::Number(f64::INFINITY)),
    ] {
        bad.scope.conditions.push(Condition {
            feature: feature.to_owned(),
            op,
            value,
        });
    }
    let fields: Vec<String> = propose(bad)
        .unwrap_err()
        .into_iter()
        .map(|v| v.field)
        .collect();
    assert_eq!(
        fields,
        [
            "edges",
            "edges",
            "scope.conditions[0].feature",
            "scope.conditions[1].op",
            "scope.conditions[2].value",
            "narrative",
        ]
    );
}

#[test]
fn a_seed_keeps_its_name_and_prior() {
    let mut seed = draft(&QUEUE);
    seed.id = Some("M_queue".to_owned());
    let admitted = admit(seed.clone(), Origin::Seed, &model(), &kind_of).unwrap();
    assert_eq!(
        (admitted.id.as_str(), admitted.prior),
        ("M_queue", PriorBin::Certain)
    );
    for taken_or_bad in ["M_kv_pressure", "queue", "M_", "M_a b"] {
        seed.id = Some(taken_or_bad.to_owned());
        assert!(
            admit(seed.clone(), Origin::Seed, &model(), &kind_of).is_err(),
            "{taken_or_bad}"
        );
    }
}
