//! The shipped mechanisms: every seeded edge is part of a story, and every story can be tested.

use std::collections::{BTreeMap, BTreeSet};

use super::inside::deployment;
use crate::causal::scope::Comparison;
use crate::causal::testing::model;
use crate::causal::{
    Applicable, CausalModel, Edge, EdgeEnds, FeatureValues, Mechanism, ScopeMatch, Sign,
    applicable, fan_out,
};
use crate::ids::{Generation, JobId, TickId};
use crate::params::Params;
use crate::planner::test_world::{World, chat};
use crate::validation::{
    Calibration, EvidenceRow, RankValidationInput, UpdateTable, validate_rank,
};
use crate::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};

fn edges_of<'a>(model: &'a CausalModel, mechanism: &'a Mechanism) -> Vec<&'a Edge> {
    let edges = mechanism.edges.iter().map(|id| model.edge(id));
    edges.map(Option::unwrap).collect()
}

fn causes<'a>(model: &'a CausalModel, mechanism: &'a Mechanism) -> Vec<&'a str> {
    let causes = edges_of(model, mechanism).into_iter();
    causes
        .filter_map(|e| match &e.ends {
            EdgeEnds::FeatureToMediator(feature, _) => Some(feature.as_str()),
            EdgeEnds::MediatorToMediator(..) | EdgeEnds::MediatorToOutcome(..) => None,
        })
        .collect()
}

#[test]
fn every_seeded_edge_is_named_by_a_mechanism_of_three_to_twelve() {
    let model = model();
    let named: BTreeSet<&String> = model.mechanisms().flat_map(|m| &m.edges).collect();
    let waiting: Vec<&str> = model
        .seeded_edges()
        .map(|e| e.id.as_str())
        .filter(|id| !named.contains(&(*id).to_owned()))
        .collect();
    assert_eq!(waiting, [""; 0], "no evidence would ever reach these");
    assert!(model.mechanisms().count() >= 32);
    for m in model.mechanisms() {
        assert!(
            (3..=12).contains(&m.edges.len()),
            "{}: {}",
            m.id,
            m.edges.len()
        );
    }
}

#[test]
fn a_narrative_is_one_sentence_and_no_story_is_told_twice() {
    let model = model();
    let mut told = BTreeMap::new();
    for m in model.mechanisms() {
        let body = m.narrative.strip_suffix('.').unwrap_or_default();
        let is_sentence = body.starts_with(|c: char| c.is_ascii_uppercase())
            && !body.contains(['.', '\n', '!', '?'])
            && (20..=200).contains(&body.len());
        assert!(is_sentence, "{}: {}", m.id, m.narrative);
        assert_eq!(told.insert(&m.edges, &m.id), None, "{} has a twin", m.id);
    }
    let narratives: BTreeSet<&String> = model.mechanisms().map(|m| &m.narrative).collect();
    assert_eq!(narratives.len(), told.len());
}

/// The directions that a mechanism claims for the effect of each cause on each outcome, over the
/// paths on which every edge has one.
fn claims(edges: &[&Edge]) -> BTreeMap<(String, Outcome), BTreeSet<bool>> {
    let mut claims: BTreeMap<(String, Outcome), BTreeSet<bool>> = BTreeMap::new();
    let signed = |e: &&&Edge| e.sign != Sign::NonMonotone;
    for first in edges.iter().filter(signed) {
        for second in edges.iter().filter(signed) {
            let (Some(v), Some(y)) = (first.ends.destination_mediator(), second.ends.outcome())
            else {
                continue;
            };
            if second.ends.source_mediator() == Some(v) {
                let cause = (first.ends.source().to_owned(), y);
                claims
                    .entry(cause)
                    .or_default()
                    .insert(first.sign == second.sign);
            }
        }
    }
    claims
}

#[test]
fn a_mechanism_claims_one_direction_for_each_cause_and_outcome() {
    let model = model();
    let mut n_claims = 0;
    for m in model.mechanisms() {
        let claims = claims(&edges_of(&model, m));
        n_claims += claims.len();
        for ((cause, outcome), directions) in claims {
            assert_eq!(directions.len(), 1, "{}: {cause} on {outcome}", m.id);
        }
    }
    assert!(n_claims >= 100, "{n_claims}");
    // The check itself: the two sides of a trade-off told as one story.
    let both = [
        "max_num_seqs->queue_depth",
        "queue_depth->p99_ttft_ms",
        "max_num_seqs->kv_pressure_score",
        "kv_pressure_score->p99_ttft_ms",
    ];
    let edges: Vec<&Edge> = both.iter().map(|id| model.edge(id).unwrap()).collect();
    let directions = &claims(&edges)[&("max_num_seqs".to_owned(), Outcome::P99TtftMs)];
    assert_eq!(directions.len(), 2);
}

#[test]
fn a_scope_leaves_every_cause_room_to_differ() {
    let model = model();
    for m in model.mechanisms() {
        for cause in causes(&model, m) {
            let fixed =
                |c: &&crate::causal::Condition| c.feature == cause && c.op == Comparison::Equal;
            let fixing = m.scope.conditions.iter().find(fixed);
            assert_eq!(fixing, None, "{}: nothing to compare {cause} with", m.id);
        }
    }
}

#[test]
fn every_cause_can_be_set_in_a_legal_deployment_inside_the_scope() {
    let model = model();
    for m in model.mechanisms() {
        for cause in causes(&model, m) {
            let values = deployment(m, cause).unwrap_or_else(|p| panic!("{} {cause}: {p}", m.id));
            assert_eq!(m.scope.matches(&values), ScopeMatch::Exact, "{}", m.id);
        }
    }
}

type Point = (MediatorValues, OutcomeValues);

fn point(value: f64) -> Point {
    let (mut v, mut y) = (MediatorValues::absent(), OutcomeValues::absent());
    Mediator::ALL
        .into_iter()
        .for_each(|m| v.set(m, Some(value)));
    Outcome::ALL.into_iter().for_each(|o| y.set(o, Some(value)));
    (v, y)
}

fn judged(
    model: &CausalModel,
    ids: Vec<Applicable>,
    observed: &Point,
    predicted: &Point,
) -> EvidenceRow {
    let environment = "reserved/aws/us-east-1/a/H100".parse().unwrap();
    let input = RankValidationInput {
        tick: TickId(4),
        job: JobId(uuid::Uuid::nil()),
        rank: 0,
        generation: Generation(2),
        environment: &environment,
        observed: &[*observed; 12],
        predicted: &[*predicted; 12],
        promised: None,
        applicable: &ids,
        model_class: crate::model::ModelClass::DenseSmall,
        own_bias: &crate::validation::OwnBias::default(),
        calibration: &Calibration::default(),
    };
    validate_rank(&input, model, &Params::default())
}

fn alone(m: &Mechanism) -> Vec<Applicable> {
    vec![Applicable {
        id: m.id.clone(),
        scope_match: ScopeMatch::Exact,
        committed: true,
    }]
}

/// What a host does not show is undecided, however wrong everything else is.
#[test]
fn a_mechanism_with_anything_unseen_is_undecided_and_moves_no_belief() {
    let model = model();
    let table = UpdateTable::embedded().unwrap();
    let events = |row: EvidenceRow| fan_out(&[row], &model, &table, &Params::default());
    let (seen, predicted) = (point(0.9), point(0.1));
    for m in model.mechanisms() {
        let whole = judged(&model, alone(m), &seen, &predicted);
        assert!(whole.mechanisms[0].quadrant.is_some(), "{}", m.id);
        assert_eq!(events(whole).len(), 1, "{}", m.id);
        let unseen_mediators = m.mediators.iter().map(|v| {
            let mut unseen = seen;
            unseen.0.set(*v, None);
            unseen
        });
        let unseen_outcomes = m.outcomes.iter().map(|y| {
            let mut unseen = seen;
            unseen.1.set(*y, None);
            unseen
        });
        for unseen in unseen_mediators.chain(unseen_outcomes) {
            let row = judged(&model, alone(m), &unseen, &predicted);
            assert_eq!(row.mechanisms[0].quadrant, None, "{}", m.id);
            assert_eq!(events(row), [], "{}", m.id);
        }
    }
}

fn plain_values() -> FeatureValues {
    let mut world = World::fleet();
    let id = world.job(1, chat("plain"));
    world.tick();
    let record = world.job_mut(id).clone();
    let rank = &record.active.as_ref().unwrap().ladder.ranks[0];
    crate::tick::judge::features(&record, rank)
}

/// Evidence is stored per rank and tick for good, so only what speaks about a rank may be in it.
#[test]
fn the_evidence_of_a_plain_rank_stays_small() {
    let model = model();
    let speaking = applicable(&model, &plain_values(), None);
    let n = speaking.len();
    assert!(
        (10..=32).contains(&n),
        "{n} of {} speak",
        model.mechanisms().count()
    );
    let row = judged(&model, speaking, &point(0.9), &point(0.9));
    let bytes = serde_json::to_vec(&row).unwrap().len();
    assert!(bytes <= 16 * 1024, "{bytes} bytes");
    let back: EvidenceRow = serde_json::from_slice(&serde_json::to_vec(&row).unwrap()).unwrap();
    assert_eq!(back, row);
}

/// Before any evidence a plan commits what every host shows, so that its first verdicts decide.
#[test]
fn a_plain_rank_commits_a_mechanism_that_needs_no_device_counters() {
    let model = model();
    let beliefs = model.seed_beliefs();
    let values = plain_values();
    let mean = |id: &str| {
        let key = crate::causal::BeliefKey::Mechanism(id.to_owned());
        beliefs[&key].mean()
    };
    let speaking = applicable(&model, &values, None);
    let best = speaking.iter().map(|a| mean(&a.id)).fold(0.0, f64::max);
    for a in speaking.iter().filter(|a| mean(&a.id) >= best) {
        let needs: Vec<&Mediator> = model
            .mechanism(&a.id)
            .unwrap()
            .mediators
            .iter()
            .filter(|v| NOT_ON_EVERY_HOST.contains(v))
            .collect();
        assert_eq!(needs, [&Mediator::QueueDepth; 0], "{}", a.id);
    }
}

const NOT_ON_EVERY_HOST: [Mediator; 9] = [
    Mediator::SmUtilization,
    Mediator::MemBandwidthUtilization,
    Mediator::NvlinkBytesPerSec,
    Mediator::PcieBytesPerSec,
    Mediator::PerTokCommBytes,
    Mediator::CommOverheadPct,
    Mediator::ActivationMemPressure,
    Mediator::ExpertImbalance,
    Mediator::DispatchOverheadMs,
];
