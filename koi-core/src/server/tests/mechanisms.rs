//! A proposed mechanism through the machine: known by the next tick, by the next server, and
//! archived by learning.

use super::super::*;
use super::sim::Sim;
use crate::causal::testing::{kind_of, model};
use crate::causal::{BeliefKey, MechanismStatus};
use crate::lifecycle::{MechanismRecord, Origin, PROPOSALS_MAX, admit, with_records};
use crate::tick::Phase;

fn proposal() -> MechanismRecord {
    let draft = crate::causal::mechanism::MechanismDraft {
        id: None,
        edges: vec![
            "request_arrival_rate->queue_depth".to_owned(),
            "queue_depth->p99_ttft_ms".to_owned(),
        ],
        scope: crate::causal::Scope::default(),
        narrative: "Requests wait.".to_owned(),
        prior: None,
    };
    let mechanism = admit(draft, Origin::Proposal, &model(), &kind_of).unwrap();
    MechanismRecord::proposal(&mechanism, "ann", UtcMicros(3))
}

impl Sim {
    fn propose(&mut self, record: MechanismRecord) -> Result<Reply, Refusal> {
        let record = Box::new(record);
        let request = self.request();
        self.ask(Command::ProposeMechanism { record, request })
    }
}

#[test]
fn the_next_snapshot_knows_a_proposal_at_even_odds() {
    let mut sim = Sim::new(&[("a", 1)]);
    let record = proposal();
    assert_eq!(
        sim.propose(record.clone()),
        Ok(Reply::Object(record.id.clone()))
    );
    let snapshot = sim.open_tick().unwrap();
    let stored = with_records(&model(), &snapshot.state.mechanisms, &kind_of);
    let beliefs = snapshot.state.beliefs_from(&stored.model);
    let key = BeliefKey::Mechanism(record.id.clone());
    assert_eq!(beliefs[&key], crate::causal::Belief::of_counts(1, 1));
    // Proposed again it is the same one, whoever proposed it first.
    let again = MechanismRecord {
        proposed_by: Some("bob".to_owned()),
        ..record.clone()
    };
    assert_eq!(sim.propose(again), Ok(Reply::Object(record.id.clone())));
    assert_eq!(sim.server.state().mechanisms.get(&record.id), Some(&record));
}

#[test]
fn proposals_are_bounded() {
    let mut sim = Sim::new(&[("a", 1)]);
    for n in 0..PROPOSALS_MAX {
        let record = MechanismRecord {
            id: format!("M_{n:08x}"),
            ..proposal()
        };
        sim.propose(record).unwrap();
    }
    let refused = sim.propose(proposal()).unwrap_err();
    assert!(matches!(refused, Refusal::Conflict(_)), "{refused:?}");
    assert_eq!(sim.server.state().mechanisms.len(), PROPOSALS_MAX);
}

#[test]
fn learning_archives_proposals_and_seeds() {
    let mut sim = Sim::new(&[("a", 1)]);
    let record = proposal();
    sim.propose(record.clone()).unwrap();
    let seed = model().mechanisms().next().unwrap().id.clone();
    let opened = sim.ask(Command::OpenTick {
        cause: crate::tick::TickCause::Schedule,
        seed: 1,
        request: None,
    });
    let Ok(Reply::TickOpened(snapshot)) = opened else {
        panic!("{opened:?}");
    };
    let learned = Box::new(Learned {
        archived: vec![record.id.clone(), seed.clone()],
        ..Learned::default()
    });
    sim.ask(Command::AdvanceTick {
        tick: snapshot.tick,
        from: Phase::Freeze,
        to: Phase::Plan { repair: false },
        learned,
    })
    .unwrap();
    let records = &sim.server.state().mechanisms;
    let stored = with_records(&model(), records, &kind_of).model;
    for id in [&record.id, &seed] {
        assert_eq!(
            stored.mechanism(id).unwrap().status,
            MechanismStatus::Archived,
            "{id}"
        );
    }
    assert_eq!(records[&record.id].draft, record.draft);
}
