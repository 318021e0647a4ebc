//! What people ask for: finished jobs, plans, ticks, evidence, requests, the audit trail, tokens.

use koi_core::ids::{PlanSeq, TickId};
use koi_core::store::Change;
use koi_core::tick::Phase;
use koi_core::time::UtcMicros;
use koi_server::store::{NewToken, PageRequest, Store, StoreError, TokenRecord};
use koi_sim::mem_store::MemStore;

use super::AnyStore;
use super::programs::Program;
use super::records::*;
use crate::support::TestDatabase;

/// After the same transactions both stores tell the same history.
pub(crate) async fn agree(stores: &[AnyStore; 2], program: &Program) {
    let [AnyStore::Memory(memory), AnyStore::Postgres(database)] = stores else {
        panic!("memory first");
    };
    let store = &database.store;
    lists_agree(memory, store).await;
    for n in 1..=60 {
        let id = job_id(n);
        let text = id.to_string();
        assert_eq!(
            store.job_by_name_or_id(&text).await.unwrap().as_ref(),
            memory.job_by_name_or_id(&text)
        );
        assert_eq!(
            store.plan_for_job(id).await.unwrap().as_ref(),
            memory.plan_for_job(id)
        );
        let rows = store.evidence_of_job(id, 5).await.unwrap();
        assert_eq!(
            rows.iter().collect::<Vec<_>>(),
            memory.evidence_of_job(id, 5)
        );
        let rows = store.evidence_of_tick(TickId(i64::from(n))).await.unwrap();
        let expected: Vec<_> = memory
            .evidence_of_tick(TickId(i64::from(n)))
            .cloned()
            .collect();
        assert_eq!(rows, expected);
        let key = format!("key-{n}");
        assert_eq!(
            store.request("ann", &key).await.unwrap().as_ref(),
            memory.request("ann", &key)
        );
    }
    assert_eq!(store.plan(None).await.unwrap().as_ref(), memory.plan(None));
    assert_eq!(store.tick(None).await.unwrap().as_ref(), memory.tick(None));
    assert_eq!(
        store.belief_event_counts().await.unwrap(),
        memory.belief_event_counts()
    );
    assert_eq!(store.beliefs_verify().await.unwrap(), []);
    assert_eq!(
        store.mechanism_tracks().await.unwrap(),
        memory.mechanism_tracks()
    );
    assert!(!program.reference.jobs.is_empty() || !memory.jobs_finished().is_empty());
}

async fn lists_agree(memory: &MemStore, store: &Store) {
    let all = PageRequest::first(1_000);
    let finished = store.jobs_finished(&all).await.unwrap().items;
    let finished: Vec<_> = finished
        .into_iter()
        .map(|j| (j.finished_at, j.record))
        .collect();
    assert_eq!(finished, memory.jobs_finished());
    let plans = store.plans(&all).await.unwrap().items;
    assert_eq!(plans, memory.plans().cloned().collect::<Vec<_>>());
    let ticks = store.ticks(&all).await.unwrap().items;
    assert_eq!(ticks, memory.ticks().cloned().collect::<Vec<_>>());
    let audit = store.audit(&all).await.unwrap().items;
    let audit: Vec<_> = audit
        .into_iter()
        .map(|line| (line.at, line.record))
        .collect();
    assert_eq!(audit, memory.audit().cloned().collect::<Vec<_>>());
}

async fn seven_of_everything(store: &Store) {
    for n in 1..=7_u32 {
        let new = job(n, "same-name");
        let seq = i64::from(n);
        store
            .commit(&tx(vec![
                put_job(&new),
                put_job(&finished(&new)),
                put_plan(&plan(seq, seq - 1, &[new.id], 0.0)),
                put_tick(&tick(seq, Phase::Exit { keep_all: false })),
                audit("made"),
            ]))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn listings_are_paged_without_loss_or_repetition() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    seven_of_everything(store).await;
    let mut page = PageRequest::first(3);
    let (mut jobs, mut sizes) = (Vec::new(), Vec::new());
    loop {
        let got = store.jobs_finished(&page).await.unwrap();
        sizes.push(got.items.len());
        jobs.extend(got.items.into_iter().map(|j| j.record.id));
        match got.next {
            Some(token) => page.token = Some(token),
            None => break,
        }
    }
    assert_eq!(sizes, [3, 3, 1]);
    assert_eq!(jobs, (1..=7).rev().map(job_id).collect::<Vec<_>>());
    let first = store.ticks(&PageRequest::first(3)).await.unwrap();
    assert_eq!(
        first.items.iter().map(|t| t.id.0).collect::<Vec<_>>(),
        [7, 6, 5]
    );
    let second = PageRequest {
        limit: 3,
        token: first.next,
    };
    assert_eq!(
        store
            .ticks(&second)
            .await
            .unwrap()
            .items
            .first()
            .unwrap()
            .id,
        TickId(4)
    );
    let wrong = store.plans(&second).await;
    assert!(
        matches!(wrong, Err(StoreError::BadPageToken)),
        "a token of another listing"
    );
    assert_eq!(
        store
            .plans(&PageRequest::first(2))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
    assert_eq!(
        store
            .audit(&PageRequest::first(2))
            .await
            .unwrap()
            .items
            .len(),
        2
    );
}

#[tokio::test]
async fn a_job_is_found_by_name_with_the_live_one_first() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let (old, new) = (job(1, "chat"), job(2, "chat"));
    store
        .commit(&tx(vec![put_job(&old), put_job(&finished(&old))]))
        .await
        .unwrap();
    let found = store.job_by_name_or_id("chat").await.unwrap().unwrap();
    assert_eq!(found, finished(&old));
    store.commit(&tx(vec![put_job(&new)])).await.unwrap();
    assert_eq!(store.job_by_name_or_id("chat").await.unwrap(), Some(new));
    assert_eq!(
        store.job_by_name_or_id(&old.id.to_string()).await.unwrap(),
        Some(finished(&old))
    );
    for nothing in ["other", "", "x' OR true --", "nul\0"] {
        assert_eq!(
            store.job_by_name_or_id(nothing).await.unwrap(),
            None,
            "{nothing:?}"
        );
    }
}

#[tokio::test]
async fn plans_ticks_and_evidence_are_found_by_number() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let (one, two) = (job_id(1), job_id(2));
    assert_eq!(store.plan(None).await.unwrap(), None);
    store
        .commit(&tx(vec![
            put_plan(&plan(1, 0, &[one, two], 0.5)),
            put_plan(&plan(2, 1, &[one], 0.25)),
            put_tick(&tick(1, Phase::Freeze)),
            Change::Evidence(vec![evidence(1, one, 0, 3), evidence(1, one, 1, 4)]),
            Change::Evidence(vec![evidence(1, one, 0, 99), evidence(2, one, 0, 5)]),
        ]))
        .await
        .unwrap();
    assert_eq!(
        store.plan(Some(PlanSeq(1))).await.unwrap(),
        Some(plan(1, 0, &[one, two], 0.5))
    );
    assert_eq!(
        store.plan_for_job(one).await.unwrap().unwrap().seq,
        PlanSeq(2)
    );
    assert_eq!(
        store.plan_for_job(two).await.unwrap().unwrap().seq,
        PlanSeq(1)
    );
    assert_eq!(store.plan_for_job(job_id(3)).await.unwrap(), None);
    assert_eq!(store.tick(Some(TickId(2))).await.unwrap(), None);
    let of_tick = store.evidence_of_tick(TickId(1)).await.unwrap();
    assert_eq!(of_tick, [evidence(1, one, 0, 3), evidence(1, one, 1, 4)]);
    let of_job = store.evidence_of_job(one, 2).await.unwrap();
    assert_eq!(of_job, [evidence(2, one, 0, 5), evidence(1, one, 0, 3)]);
}

#[tokio::test]
async fn the_evidence_of_the_fleet_is_read_by_tick_and_counted_as_it_comes() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let (one, two) = (job_id(1), job_id(2));
    let rows = [
        deciding(1, one, 0, &["M_a", "M_b"]),
        deciding(1, two, 0, &["M_a"]),
        deciding(2, one, 0, &[]),
        deciding(3, one, 0, &["M_b"]),
    ];
    let twice = deciding(1, one, 0, &["M_c"]);
    let first = rows
        .iter()
        .take(2)
        .cloned()
        .chain([twice.clone()])
        .collect();
    store
        .commit(&tx(vec![Change::Evidence(first)]))
        .await
        .unwrap();
    let second = rows.iter().skip(2).cloned().chain([twice]).collect();
    store
        .commit(&tx(vec![Change::Evidence(second)]))
        .await
        .unwrap();
    let between = store.evidence_between(TickId(1), TickId(3)).await.unwrap();
    assert_eq!(between, rows.iter().take(3).cloned().collect::<Vec<_>>());
    let newest = store.evidence_readable_since(TickId(0), 2).await.unwrap();
    assert_eq!(newest, rows.iter().skip(2).cloned().collect::<Vec<_>>());
    let tracks = store.mechanism_tracks().await.unwrap();
    let decided: Vec<_> = tracks
        .iter()
        .map(|(id, t)| (id.as_str(), t.n_decided))
        .collect();
    assert_eq!(
        decided,
        [("M_a", 2), ("M_b", 2)],
        "a row left out is not counted"
    );
}

#[tokio::test]
async fn tokens_are_looked_up_by_digest_and_can_be_revoked() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let token = |hash: &[u8], host: Option<&str>| NewToken {
        hash: hash.to_vec(),
        role: "agent".to_owned(),
        identity: "h1".to_owned(),
        host: host.map(|h| h.parse().unwrap()),
        created_at: UtcMicros(1),
    };
    store
        .token_insert(&token(&[1; 32], Some("h1")))
        .await
        .unwrap();
    store.token_insert(&token(&[2; 32], None)).await.unwrap();
    let record = |host: Option<&str>| TokenRecord {
        role: "agent".to_owned(),
        identity: "h1".to_owned(),
        host: host.map(|h| h.parse().unwrap()),
    };
    assert_eq!(
        store.token_lookup(&[1; 32]).await.unwrap(),
        Some(record(Some("h1")))
    );
    assert_eq!(
        store.token_lookup(&[2; 32]).await.unwrap(),
        Some(record(None))
    );
    assert_eq!(store.token_lookup(&[1; 31]).await.unwrap(), None);
    assert!(store.token_revoke(&[1; 32]).await.unwrap());
    assert!(!store.token_revoke(&[1; 32]).await.unwrap());
    assert_eq!(store.token_lookup(&[1; 32]).await.unwrap(), None);
}
