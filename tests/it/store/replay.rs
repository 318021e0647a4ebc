//! The belief log read as a stream: exact, and fast enough to be asked for.

use std::time::Instant;

use koi_core::causal::BeliefKey;
use koi_core::ids::TickId;
use koi_core::store::BeliefMove;

use super::records::{belief_event, job_id, tx};
use crate::support::TestDatabase;
use koi_core::store::Change;

/// Changes of single beliefs in the log of the test; the figure in docs/speed.md used 1000000.
fn n_changes() -> i64 {
    let asked = std::env::var("KOI_REPLAY_CHANGES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(40_000)
}

/// Changes of one event, as one evidence row makes them.
const PER_EVENT: i64 = 40;

#[tokio::test]
async fn a_long_log_is_replayed_exactly() {
    let database = TestDatabase::new().await;
    let n_events = n_changes() / PER_EVENT;
    let sql = "INSERT INTO belief_event (tick_id, source, job_id, rank, generation, subjects,
                                         alpha_micro, beta_micro)
               SELECT e, 'evidence', '00000000-0000-0000-0000-000000000001', 0, 1,
                      array_agg('edge:source_' || k || '->destination_' || k ORDER BY k),
                      array_agg(e % 1000 + k ORDER BY k), array_agg(-(e % 7) ORDER BY k)
               FROM generate_series(1, $1) AS e, generate_series(1, $2) AS k GROUP BY e";
    let mut raw = database.raw().await;
    sqlx::query(sql)
        .bind(n_events)
        .bind(PER_EVENT)
        .execute(&mut raw)
        .await
        .unwrap();
    let sums = "INSERT INTO belief (subject, alpha_micro, beta_micro, last_event_seq, n_events)
                SELECT subject, sum(alpha)::bigint, sum(beta)::bigint, max(event_seq), count(*)
                FROM belief_event, unnest(subjects, alpha_micro, beta_micro) AS t (subject, alpha, beta)
                GROUP BY subject";
    sqlx::query(sums).execute(&mut raw).await.unwrap();
    let begun = Instant::now();
    let verified = database.store.beliefs_replay().await.unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    println!("{} changes in {seconds:.2} s", verified.n_changes);
    assert_eq!(verified.mismatches, []);
    assert_eq!(
        (verified.n_events, verified.n_changes),
        (n_events as u64, (n_events * PER_EVENT) as u64)
    );
    assert_eq!(verified.sums.len(), PER_EVENT as usize);
    let first = verified.sums["edge:source_1->destination_1"];
    let alpha: i64 = (1..=n_events).map(|e| e % 1000 + 1).sum();
    let beta: i64 = (1..=n_events).map(|e| -(e % 7)).sum();
    assert_eq!(
        first,
        BeliefMove {
            alpha_micro: alpha,
            beta_micro: beta
        }
    );
}

#[tokio::test]
async fn one_micro_unit_and_one_event_are_found() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let event = |tick| {
        belief_event(
            tick,
            (job_id(1), 0),
            &[("edge:a->b", 7, -3), ("mechanism:M_x", 5, 0)],
        )
    };
    for tick in 1..=3 {
        store
            .commit(&tx(vec![Change::BeliefEvents(vec![event(tick)])]))
            .await
            .unwrap();
    }
    assert_eq!(store.beliefs_verify().await.unwrap(), []);
    let key: BeliefKey = "edge:a->b".parse().unwrap();
    let steps = store.belief_history(&key, None, 2).await.unwrap();
    assert_eq!(
        steps.iter().map(|s| s.tick).collect::<Vec<_>>(),
        [TickId(3), TickId(2)]
    );
    assert_eq!(
        steps[0].moved,
        BeliefMove {
            alpha_micro: 7,
            beta_micro: -3
        }
    );
    let before = steps.last().map(|s| s.event_seq);
    let rest = store.belief_history(&key, before, 2).await.unwrap();
    assert_eq!(rest.len(), 1);
    let never: BeliefKey = "edge:never->moved".parse().unwrap();
    assert_eq!(store.belief_history(&never, None, 2).await.unwrap(), []);
    let mut raw = database.raw().await;
    let broken = [
        "UPDATE belief SET alpha_micro = alpha_micro + 1 WHERE subject = 'edge:a->b'",
        "UPDATE belief SET n_events = 9 WHERE subject = 'mechanism:M_x'",
        "INSERT INTO belief VALUES ('edge:from->nowhere', 1, 0, 1, 1)",
    ];
    for (found, sql) in (1..).zip(broken) {
        sqlx::query(sql).execute(&mut raw).await.unwrap();
        assert_eq!(store.beliefs_verify().await.unwrap().len(), found, "{sql}");
    }
}
