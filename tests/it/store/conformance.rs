//! One suite for both stores: the same transactions, the same answers, the same state.

use koi_core::ids::{Epoch, PlanSeq, TickId};
use koi_core::store::{BeliefMove, Change, Expect, ServerState, StoreTx, TxRefusal};
use koi_core::tick::Phase;

use super::records::*;
use super::{AnyStore, comparable, programs};

/// Offers a script to both stores and to the reference; all three must agree after every step.
pub(super) async fn agree(script: &[StoreTx]) -> (Vec<Result<(), TxRefusal>>, ServerState) {
    let mut stores = AnyStore::both().await;
    let mut reference = ServerState::default();
    let mut answers = Vec::new();
    for (i, tx) in script.iter().enumerate() {
        let expected = comparable(reference.apply(tx));
        for store in &mut stores {
            assert_eq!(
                comparable(store.commit(tx).await),
                expected,
                "step {i}: {tx:?}"
            );
            assert_eq!(store.load().await, reference, "after step {i}: {tx:?}");
        }
        answers.push(expected);
    }
    (answers, reference)
}

fn conflict() -> Result<(), TxRefusal> {
    Err(TxRefusal::Conflict(String::new()))
}

#[tokio::test]
async fn every_change_is_in_the_loaded_state() {
    let chat = job(1, "chat");
    let rolling = rolling_out(&chat, 1, 1.0 / 3.0);
    let script = [
        tx(vec![
            put_job(&chat),
            Change::Host(Box::new(host("h1", 1))),
            audit("submit"),
        ]),
        tx(vec![
            put_job(&rolling),
            put_replica(&replica(&chat, 0, &["GPU-1", "GPU-2"])),
        ]),
        tx(vec![put_tick(&tick(1, Phase::Plan { repair: true }))]),
        tx(vec![put_plan(&plan(1, 0, &[chat.id], 0.1 + 0.2))]),
        tx(vec![
            Change::Slow(Box::default()),
            Change::Mechanism(Box::new(super::mechanisms::proposal("M_0badcafe"))),
            Change::Host(Box::new(host("h1", 2))),
        ]),
        tx(vec![Change::Evidence(vec![evidence(1, chat.id, 0, 30)])]),
        tx(vec![Change::BeliefEvents(vec![belief_event(
            1,
            (chat.id, 0),
            &[("edge:e1", 7, -3)],
        )])]),
        tx(vec![
            Change::Prices(vec![priced("own", 9.0), priced("own", 0.1 + 0.2)]),
            Change::Prices(vec![priced("g5.xlarge", 1.0 / 3.0)]),
        ]),
    ];
    let (answers, state) = agree(&script).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(
        (state.jobs.len(), state.hosts.len(), state.replicas.len()),
        (1, 1, 1)
    );
    assert_eq!((state.plan_seq, state.epoch), (PlanSeq(1), EPOCH));
    let own = priced("own", 0.1 + 0.2);
    assert_eq!(state.prices.price(&own.key), Some(&own.price));
    assert_eq!(state.prices.len(), 2);
    assert_eq!(state.tick.unwrap().phase, Phase::Plan { repair: true });
}

#[tokio::test]
async fn an_older_epoch_is_fenced_off_and_a_newer_one_fences() {
    let with_epoch = |epoch, name, n| StoreTx {
        epoch: Epoch(epoch),
        ..tx(vec![put_job(&job(n, name))])
    };
    let script = [
        with_epoch(3, "a", 1),
        with_epoch(2, "b", 2),
        with_epoch(4, "c", 3),
    ];
    let (answers, state) = agree(&script).await;
    let fenced = TxRefusal::Fenced {
        offered: Epoch(2),
        stored: Epoch(3),
    };
    assert_eq!(answers, [Ok(()), Err(fenced), Ok(())]);
    assert_eq!(state.epoch, Epoch(4));
}

#[tokio::test]
async fn conditions_are_compared_before_anything_is_written() {
    let chat = job(1, "chat");
    let open = Phase::Freeze;
    let never = || vec![audit("never")];
    let script = [
        tx_if(
            vec![Expect::JobVersion(chat.id, 0), Expect::PlanSeq(PlanSeq(0))],
            vec![put_job(&chat)],
        ),
        tx_if(vec![Expect::JobVersion(chat.id, 0)], never()),
        tx_if(
            vec![Expect::JobVersion(chat.id, 1)],
            vec![put_tick(&tick(1, open))],
        ),
        tx_if(vec![Expect::TickPhase(TickId(1), Phase::Observe)], never()),
        tx_if(vec![Expect::TickPhase(TickId(2), open)], never()),
        tx_if(
            vec![
                Expect::TickPhase(TickId(1), open),
                Expect::TickOpen(TickId(1)),
            ],
            vec![put_tick(&tick(1, Phase::Exit { keep_all: true }))],
        ),
        tx_if(vec![Expect::TickOpen(TickId(1))], never()),
        tx_if(vec![Expect::PlanSeq(PlanSeq(7))], never()),
    ];
    let (answers, _) = agree(&script).await;
    let ok: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, false, false, true, false, false]);
}

#[tokio::test]
async fn a_device_is_reserved_once_until_it_is_released() {
    let chat = job(1, "chat");
    let (first, second) = (
        replica(&chat, 0, &["G1", "G2"]),
        replica(&chat, 1, &["G3", "G2"]),
    );
    let moved = replica(&chat, 0, &["G1", "G4"]);
    let script = [
        tx(vec![put_job(&chat), put_replica(&first)]),
        tx(vec![put_replica(&second)]),
        tx(vec![put_replica(&moved), put_replica(&second)]),
        tx(vec![put_replica(&replica(&chat, 2, &["G4"]))]),
        tx(vec![
            Change::ReplicaReleased(first.id.clone()),
            put_replica(&replica(&chat, 2, &["G4"])),
        ]),
        tx(vec![Change::ReplicaReleased(first.id.clone())]),
        tx(vec![put_replica(&replica(&chat, 3, &["G9", "G9"]))]),
        tx(vec![put_replica(&replica(&job(2, "unknown"), 0, &["G9"]))]),
    ];
    let (answers, state) = agree(&script).await;
    let taken = |uuid: &str, wanted: &str| {
        Err(TxRefusal::DeviceTaken {
            uuid: uuid.to_owned(),
            holder: first.id.clone(),
            wanted: wanted.parse().unwrap(),
        })
    };
    assert_eq!(answers[1], taken("G2", "chat.g1.r0.1"));
    assert_eq!(answers[3], taken("G4", "chat.g1.r0.2"));
    assert_eq!([&answers[6], &answers[7]], [&conflict(), &conflict()]);
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 4);
    assert_eq!(state.replicas.len(), 2);
}

/// A run of replicas is written set by set; the answers are those of one after the other.
#[tokio::test]
async fn devices_change_hands_within_one_transaction() {
    let chat = job(1, "chat");
    let at = |index, devices: &[&str]| put_replica(&replica(&chat, index, devices));
    let script = [
        tx(vec![put_job(&chat), at(0, &["G1", "G2"]), at(1, &["G3"])]),
        // 0 lets go of G2 before 1 wants it; the other way round it is taken.
        tx(vec![at(0, &["G1"]), at(1, &["G3", "G2"]), at(2, &["G4"])]),
        tx(vec![at(3, &["G4"]), at(2, &["G5"])]),
        // The same replica twice in one transaction.
        tx(vec![
            at(2, &["G5"]),
            at(3, &["G4"]),
            at(3, &["G6"]),
            at(4, &["G4"]),
        ]),
        tx(vec![at(5, &["G7"]), at(6, &["G7"])]),
    ];
    let (answers, state) = agree(&script).await;
    let ok: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, true, false, true, false]);
    assert_eq!(state.replicas.len(), 5);
}

#[tokio::test]
async fn a_failed_change_takes_all_the_others_with_it() {
    let chat = job(1, "chat");
    let events = Change::BeliefEvents(vec![belief_event(1, (chat.id, 0), &[("edge:e1", 5, 5)])]);
    let whole = |last: Change| {
        tx(vec![
            put_job(&chat),
            Change::Host(Box::new(host("h1", 1))),
            put_replica(&replica(&chat, 0, &["G1"])),
            put_tick(&tick(3, Phase::Deploy)),
            put_plan(&plan(1, 0, &[chat.id], 1.0)),
            events.clone(),
            Change::Slow(Box::default()),
            Change::Prices(vec![priced("own", 9.0)]),
            request("k", "p", "o"),
            audit("all"),
            last,
        ])
    };
    let script = [
        whole(put_job(&chat)),
        whole(put_replica(&replica(&chat, 1, &["G1"]))),
        whole(put_plan(&plan(3, 2, &[], 1.0))),
        whole(put_tick(&tick(2, Phase::Freeze))),
    ];
    let (answers, state) = agree(&script).await;
    assert!(answers.iter().all(Result::is_err));
    assert_eq!(state, ServerState::default());
}

#[tokio::test]
async fn jobs_move_by_one_version_and_live_names_are_unique() {
    let chat = job(1, "chat");
    let twin = job(2, "chat");
    let skips = next_version(&next_version(&chat));
    let script = [
        tx(vec![put_job(&chat)]),
        tx(vec![put_job(&chat)]),
        tx(vec![put_job(&skips)]),
        tx(vec![put_job(&twin)]),
        tx(vec![put_job(&finished(&chat))]),
        tx(vec![put_job(&twin)]),
    ];
    let (answers, state) = agree(&script).await;
    let ok: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, false, false, true, true]);
    assert_eq!(state.jobs.keys().copied().collect::<Vec<_>>(), [twin.id]);
}

#[tokio::test]
async fn a_finished_job_stays_until_its_last_replica_is_gone() {
    let chat = job(1, "chat");
    let own = replica(&chat, 0, &["G1"]);
    let successor = job(2, "chat");
    let script = [
        tx(vec![put_job(&chat), put_replica(&own)]),
        tx(vec![put_job(&finished(&chat))]),
        tx(vec![put_job(&successor)]),
        tx(vec![put_replica(&replica(&successor, 0, &["G2"]))]),
        tx(vec![Change::ReplicaReleased(own.id.clone())]),
        tx(vec![put_replica(&replica(&successor, 0, &["G1"]))]),
    ];
    let (answers, state) = agree(&script).await;
    // The same natural key under another owner would silently free the old one's devices.
    assert_eq!(answers[3], conflict());
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 5);
    assert_eq!(
        state.jobs.keys().copied().collect::<Vec<_>>(),
        [successor.id]
    );
}

#[tokio::test]
async fn belief_sums_are_exact() {
    let chat = job(1, "chat");
    let script: Vec<StoreTx> = (1..=20)
        .map(|t| {
            let rows = [0, 1].map(|rank| {
                let moves = [
                    ("edge:e1", 333_333 * t, -1),
                    ("mechanism:m", 1, t),
                    ("edge:e1", 1, 0),
                ];
                belief_event(t, (chat.id, rank), &moves)
            });
            tx(vec![Change::BeliefEvents(rows.to_vec())])
        })
        .collect();
    let (_, state) = agree(&script).await;
    let sum = |key: &str| state.beliefs[&key.parse().unwrap()];
    let edge = BeliefMove {
        alpha_micro: 2 * (333_333 * 210 + 20),
        beta_micro: -40,
    };
    assert_eq!(sum("edge:e1"), edge);
    assert_eq!(
        sum("mechanism:m"),
        BeliefMove {
            alpha_micro: 40,
            beta_micro: 420
        }
    );
}

/// What only the history can refuse; the reference state knows no history.
#[tokio::test]
async fn history_is_not_rewritten() {
    let chat = job(1, "chat");
    let moves =
        |rank| Change::BeliefEvents(vec![belief_event(1, (chat.id, rank), &[("edge:e", 1, 0)])]);
    for mut store in AnyStore::both().await {
        let over = tx(vec![put_job(&chat), put_job(&finished(&chat))]);
        assert_eq!(store.commit(&over).await, Ok(()));
        let again = tx(vec![put_job(&chat)]);
        assert_eq!(
            comparable(store.commit(&again).await),
            conflict(),
            "a job that is over"
        );
        assert_eq!(store.commit(&tx(vec![moves(0), moves(1)])).await, Ok(()));
        let before = store.load().await;
        for twice in [vec![moves(1)], vec![moves(2), moves(2)]] {
            assert_eq!(
                comparable(store.commit(&tx(twice)).await),
                conflict(),
                "one row, one move"
            );
        }
        assert_eq!(store.load().await, before);
    }
}

#[tokio::test]
async fn hazard_b10_a_reused_request_key_is_the_same_request_or_a_conflict() {
    for mut store in AnyStore::both().await {
        assert_eq!(
            store
                .commit(&tx(vec![request("k", "hash-a", "job-1")]))
                .await,
            Ok(())
        );
        assert_eq!(
            store
                .commit(&tx(vec![request("k", "hash-a", "job-1")]))
                .await,
            Ok(())
        );
        let other = tx(vec![request("k", "hash-b", "job-2")]);
        assert_eq!(comparable(store.commit(&other).await), conflict());
        let both = tx(vec![request("m", "x", "1"), request("m", "y", "2")]);
        assert_eq!(comparable(store.commit(&both).await), conflict());
    }
}

#[tokio::test]
async fn random_programs_give_the_same_answers_and_states() {
    let mut n_ok = 0;
    let mut n_refused = 0;
    for seed in 1..=3 {
        let mut stores = AnyStore::both().await;
        let mut program = programs::Program::new(seed);
        for step in 0..90 {
            let tx = program.next_tx();
            let expected = comparable(program.reference.apply(&tx));
            match &expected {
                Ok(()) => n_ok += 1,
                Err(_) => n_refused += 1,
            }
            for store in &mut stores {
                let got = comparable(store.commit(&tx).await);
                assert_eq!(got, expected, "seed {seed} step {step}: {tx:?}");
                let loaded = store.load().await;
                assert_eq!(
                    loaded, program.reference,
                    "seed {seed} after step {step}: {tx:?}"
                );
            }
        }
        super::history::agree(&stores, &program).await;
    }
    // A program that only succeeds or only fails tests half of the store.
    assert!(
        n_ok > 100 && n_refused > 30,
        "{n_ok} succeeded, {n_refused} were refused"
    );
}
