//! Mechanisms, their counts and the slow loop's history outlive a server.

use koi_core::causal::MechanismStatus;
use koi_core::causal::mechanism::MechanismDraft;
use koi_core::ids::TickId;
use koi_core::lifecycle::MechanismRecord;
use koi_core::slow_loop::{Convergence, SlowState, SlowTick, TickSignals};
use koi_core::store::Change;
use koi_core::time::UtcMicros;
use koi_server::store::SLOW_HISTORY_TICKS;

use super::records::{deciding, job_id, tx};
use crate::support::TestDatabase;

pub(crate) fn proposal(id: &str) -> MechanismRecord {
    MechanismRecord {
        id: id.to_owned(),
        draft: Some(MechanismDraft {
            id: None,
            edges: vec!["a->b".to_owned(), "b->c".to_owned()],
            scope: koi_core::causal::Scope::default(),
            narrative: "Because of 'quotes'.".to_owned(),
            prior: None,
        }),
        status: MechanismStatus::Active,
        proposed_by: Some("ann".to_owned()),
        at: UtcMicros(7),
    }
}

fn slow_tick(tick: i64) -> SlowTick {
    SlowTick {
        tick: TickId(tick),
        signals: TickSignals {
            q1_rate: Some(1.0 / 3.0),
            ..TickSignals::default()
        },
        state: SlowState::default(),
        convergence: Convergence::default(),
    }
}

#[tokio::test]
async fn a_proposal_is_loaded_by_the_next_server_and_an_archived_one_stays() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let record = proposal("M_0badcafe");
    let put = |r: &MechanismRecord| Change::Mechanism(Box::new(r.clone()));
    store.commit(&tx(vec![put(&record)])).await.unwrap();
    let loaded = store.load_state().await.unwrap().state.mechanisms;
    assert_eq!(loaded.get(&record.id), Some(&record));
    let archived = MechanismRecord::archived(&record.id, Some(&record), UtcMicros(9));
    store.commit(&tx(vec![put(&archived)])).await.unwrap();
    let loaded = store.load_state().await.unwrap().state.mechanisms;
    assert_eq!(loaded.len(), 1);
    assert_eq!(loaded.get(&record.id), Some(&archived));
}

#[tokio::test]
async fn rows_deployments_environments_and_ticks_are_counted_once() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let mut elsewhere = deciding(9, job_id(2), 0, &["M_a"]);
    elsewhere.environment = "spot/aws/us-east-1/b/L40S".parse().unwrap();
    let rows = vec![
        deciding(4, job_id(1), 0, &["M_a", "M_b"]),
        deciding(5, job_id(1), 0, &["M_a"]),
        deciding(5, job_id(1), 0, &["M_a"]),
        elsewhere,
    ];
    for _ in 0..2 {
        store
            .commit(&tx(vec![Change::Evidence(rows.clone())]))
            .await
            .unwrap();
    }
    let tracks = store.mechanism_tracks().await.unwrap();
    let a = tracks["M_a"];
    assert_eq!((a.n_decided, a.n_deployments, a.n_environments), (3, 2, 2));
    assert_eq!(
        (a.first_tick, a.last_tick),
        (Some(TickId(4)), Some(TickId(9)))
    );
    assert_eq!(a.ticks_spanned(), 6);
    assert_eq!((tracks["M_b"].n_decided, tracks.len()), (1, 2));
}

#[tokio::test]
async fn the_slow_history_is_ordered_and_bounded() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let put = |n| Change::SlowTick(Box::new(slow_tick(n)));
    store.commit(&tx((1..=5).map(put).collect())).await.unwrap();
    let ids = |ticks: Vec<SlowTick>| ticks.iter().map(|t| t.tick.0).collect::<Vec<_>>();
    assert_eq!(ids(store.slow_history(None, 3).await.unwrap()), [3, 4, 5]);
    assert_eq!(
        ids(store.slow_history(Some(TickId(4)), 20).await.unwrap()),
        [1, 2, 3]
    );
    let newest = store.slow_history(None, 1).await.unwrap();
    assert_eq!(
        newest,
        [slow_tick(5)],
        "a float comes back as the same float"
    );
    store
        .commit(&tx(vec![put(SLOW_HISTORY_TICKS + 4)]))
        .await
        .unwrap();
    assert_eq!(
        ids(store.slow_history(None, 9).await.unwrap()),
        [5, SLOW_HISTORY_TICKS + 4]
    );
}
