//! The stored rows say everything: folded from the beginning, they give the same sums and beliefs.

use super::super::*;
use super::world::World;
use crate::causal::{fan_out, replay};
use crate::ids::Epoch;
use crate::params::Params;
use crate::store::{Change, ServerState, StoreTx, TxKind};
use crate::time::UtcMicros;
use crate::validation::UpdateTable;
use crate::validation::evidence::EvidenceRow;

fn bytes(book: &ContrastBook) -> Vec<u8> {
    let records: Vec<_> = book.deployments().collect();
    let sums: Vec<_> = book.sums().collect();
    serde_json::to_vec(&(records, sums)).unwrap()
}

#[test]
fn stored_rows_replay_to_the_same_bytes() {
    let mut world = World::new(5, true);
    world.run(50);
    let stored: Vec<String> = world
        .rows
        .iter()
        .map(|rows| serde_json::to_string(rows).unwrap())
        .collect();
    let mut book = ContrastBook::default();
    let mut events = Vec::new();
    for text in &stored {
        let rows: Vec<EvidenceRow> = serde_json::from_str(text).unwrap();
        assert_eq!(&serde_json::to_string(&rows).unwrap(), text);
        let table = UpdateTable::embedded().unwrap();
        events.extend(fan_out(&rows, &world.model, &table, &Params::default()));
        book = fold_tick(&book, rows[0].tick, &rows).0;
    }
    assert_eq!(bytes(&book), bytes(&world.book));
    let seeds = world.model.seed_beliefs();
    assert_eq!(replay(&seeds, &events), replay(&seeds, &world.events));
}

#[test]
fn the_state_that_writes_updates_down_has_the_same_book() {
    let mut world = World::new(6, true);
    world.run(20);
    let mut state = ServerState::default();
    for rows in &world.rows {
        let (_, update) = fold_tick(&state.contrasts, rows[0].tick, rows);
        let tx = StoreTx {
            kind: TxKind::LearningApplied,
            epoch: Epoch(0),
            at: UtcMicros(0),
            expects: Vec::new(),
            changes: vec![Change::Contrasts(Box::new(update))],
        };
        state.apply(&tx).unwrap();
        // Written twice it changes nothing.
        let before = state.contrasts.clone();
        state.apply(&tx).unwrap();
        assert_eq!(state.contrasts, before);
    }
    assert_eq!(bytes(&state.contrasts), bytes(&world.book));
}

/// Rows of ticks whose S3 failed are folded later, all at once: the book is the one that would be
/// there, and what is written down gives it.
#[test]
fn failed_ticks_are_made_up_for_to_the_same_bytes() {
    let mut world = World::new(8, true);
    world.run(24);
    let (in_time, late) = world.rows.split_at(15);
    let mut book = ContrastBook::default();
    for rows in in_time {
        book = fold_tick(&book, rows[0].tick, rows).0;
    }
    let late: Vec<EvidenceRow> = late.concat();
    let span = (late[0].tick, late[late.len() - 1].tick);
    let (after, update) = fold_ticks(&book, span, &late);
    assert_eq!(bytes(&after), bytes(&world.book));
    book.write(&update).unwrap();
    assert_eq!(bytes(&book), bytes(&world.book));
}

#[test]
fn old_deployments_leave_the_book_and_make_no_second_contrast() {
    let mut world = World::new(7, true);
    world.run(12);
    let newest = world.rows.last().unwrap()[0].tick;
    let later = crate::ids::TickId(newest.0 + book::KEPT_TICKS + 1);
    let (after, update) = fold_tick(&world.book, later, &[]);
    assert_eq!(after.deployments().count(), 0);
    assert_eq!(update.forgotten.len(), world.book.deployments().count());
    let sums = |book: &ContrastBook| serde_json::to_vec(&book.sums().collect::<Vec<_>>()).unwrap();
    assert_eq!(sums(&after), sums(&world.book), "what was learned stays");
    for rows in &world.rows {
        let (again, _) = fold_tick(&after, later, rows);
        assert_eq!(sums(&again), sums(&world.book));
    }
}
