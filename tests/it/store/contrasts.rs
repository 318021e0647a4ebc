//! Deployments and contrasts in both stores: whole records, bounds, and a replay of stored rows.

use koi_core::catalog::Catalog;
use koi_core::causal::{CausalModel, fan_out, replay as replay_events};
use koi_core::configuration::ConfigurationDraft;
use koi_core::ids::{Generation, TickId};
use koi_core::params::Params;
use koi_core::store::{Change, JobRecord, ServerState, StoreTx};
use koi_core::validation::contrast::{
    Conditions, ContrastBook, ContrastRow, ContrastUpdate, DeploymentId, DeploymentRow, Subject,
    fold_tick,
};
use koi_core::validation::cusum::Verdict;
use koi_core::validation::evidence::VariableVerdict;
use koi_core::validation::{EvidenceRow, UpdateTable};

use super::records::*;
use super::{AnyStore, comparable};

fn id(job: &JobRecord, generation: u32) -> DeploymentId {
    DeploymentId {
        job: job.id,
        generation: Generation(generation),
        rank: 0,
    }
}

fn subject(job: &JobRecord, generation: u32) -> Subject {
    let configuration = Catalog::embedded().configuration(ConfigurationDraft::default());
    Subject {
        id: id(job, generation),
        environment: "spot/aws/us-east-1/use1-az2/A100".parse().unwrap(),
        configuration: configuration.unwrap(),
        n_replicas: 2,
        model_id: job.spec.model.id.clone(),
        model: job.spec.model.facts.clone(),
        class: job.spec.class,
        slo: job.spec.slo,
        workload: job.spec.workload.clone(),
    }
}

/// A row of a deployment whose values have many digits.
fn row(book: &ContrastBook, tick: i64, job: &JobRecord, generation: u32) -> EvidenceRow {
    let own = id(job, generation);
    let x = 1.0 / 3.0 + tick as f64 * 0.1 + f64::from(generation);
    let verdict = VariableVerdict {
        points: 30,
        observed_mean: x,
        predicted_mean: x * 0.9,
        residual_mean: x * 1e-3,
        own_bias: None,
        sigma: Some(0.05),
        peak: None,
        verdict: Some(Verdict::Matched),
        fired_at: None,
    };
    let before = (generation > 1).then(|| id(job, generation - 1));
    let contrast = |reference| ContrastRow {
        edge: "max_num_seqs->running_requests".to_owned(),
        scope: "Any;Any".to_owned(),
        environment: "spot/aws/us-east-1/use1-az2/A100".to_owned(),
        reference,
        z: 0.7 + 1e-3 * tick as f64,
        delta: 0.1 * x,
        levels: None,
        z_variance: 1e-5 * x,
    };
    let levels = |reference| ContrastRow {
        edge: "kvcache_dtype->kv_pressure_score".to_owned(),
        levels: Some(("auto".to_owned(), "fp8 'ü".to_owned())),
        z: 1.0,
        ..contrast(reference)
    };
    EvidenceRow {
        generation: Generation(generation),
        variables: [("running_requests".to_owned(), verdict)].into(),
        deployment: Some(DeploymentRow {
            subject: book
                .wants_subject(own)
                .then(|| Box::new(subject(job, generation))),
            conditions: Conditions {
                rate_rps_per_replica: Some(x / 7.0),
                ..Conditions::default()
            },
            superseded: false,
        }),
        contrasts: before
            .into_iter()
            .flat_map(|b| [levels(b), contrast(b)])
            .collect(),
        ..deciding(tick, job.id, 0, &["M_kv_pressure"])
    }
}

fn learning(rows: &[EvidenceRow], book: &ContrastBook, tick: i64) -> (StoreTx, ContrastBook) {
    let model = CausalModel::embedded(Catalog::embedded()).unwrap();
    let table = UpdateTable::embedded().unwrap();
    let (after, update) = fold_tick(book, TickId(tick), rows);
    let changes = vec![
        Change::Evidence(rows.to_vec()),
        Change::BeliefEvents(fan_out(rows, &model, &table, &Params::default())),
        Change::Contrasts(Box::new(update)),
    ];
    (tx(changes), after)
}

/// Rows of a job over ticks: a new generation every fourth tick, side by side with the old one for
/// one of them.
fn script(ticks: i64) -> (JobRecord, Vec<(i64, Vec<EvidenceRow>, StoreTx)>) {
    let chat = job(1, "chat");
    let mut book = ContrastBook::default();
    let mut steps = Vec::new();
    for tick in 1..=ticks {
        let generation = u32::try_from(1 + tick / 4).unwrap();
        let mut rows = vec![row(&book, tick, &chat, generation)];
        if tick % 4 == 0 {
            rows.insert(0, row(&book, tick, &chat, generation - 1));
        }
        let (tx, after) = learning(&rows, &book, tick);
        book = after;
        steps.push((tick, rows, tx));
    }
    (chat, steps)
}

#[tokio::test]
async fn both_stores_keep_the_book_to_the_last_bit() {
    let (chat, steps) = script(48);
    let mut reference = ServerState::default();
    let first = tx(vec![put_job(&chat)]);
    reference.apply(&first).unwrap();
    for mut store in AnyStore::both().await {
        store.commit(&first).await.unwrap();
        for (tick, _, tx) in &steps {
            store.commit(tx).await.unwrap();
            if tick % 12 == 0 {
                let mut upto = reference.clone();
                for (_, _, tx) in steps.iter().filter(|s| s.0 <= *tick) {
                    upto.apply(tx).unwrap();
                }
                assert_eq!(store.load().await, upto, "after tick {tick}");
            }
        }
        let book = store.load().await.contrasts;
        assert_eq!(book.deployments().count(), 8, "bounded per rank");
        assert!(!book.wants_subject(id(&chat, 1)), "what left stays away");
        let counted: u32 = book.sums().map(|(_, s)| s.n()).sum();
        assert_eq!(
            counted,
            2 * 12,
            "two edges, one contrast per new generation"
        );
    }
}

#[tokio::test]
async fn stored_evidence_replays_to_the_same_sums_and_beliefs() {
    let (chat, steps) = script(20);
    let model = CausalModel::embedded(Catalog::embedded()).unwrap();
    let table = UpdateTable::embedded().unwrap();
    for mut store in AnyStore::both().await {
        store.commit(&tx(vec![put_job(&chat)])).await.unwrap();
        for (_, _, tx) in &steps {
            store.commit(tx).await.unwrap();
        }
        let state = store.load().await;
        let mut book = ContrastBook::default();
        let mut events = Vec::new();
        for (tick, rows, _) in &steps {
            let stored = match &store {
                AnyStore::Memory(memory) => {
                    memory.evidence_of_tick(TickId(*tick)).cloned().collect()
                }
                AnyStore::Postgres(database) => database
                    .store
                    .evidence_of_tick(TickId(*tick))
                    .await
                    .unwrap(),
            };
            assert_eq!(
                stored.len(),
                rows.len(),
                "two generations side by side are two rows"
            );
            events.extend(fan_out(&stored, &model, &table, &Params::default()));
            book = fold_tick(&book, TickId(*tick), &stored).0;
        }
        assert_eq!(book, state.contrasts);
        let bytes = |b: &ContrastBook| serde_json::to_vec(&b.sums().collect::<Vec<_>>()).unwrap();
        assert_eq!(bytes(&book), bytes(&state.contrasts));
        let replayed = replay_events(&model.seed_beliefs(), &events);
        assert_eq!(replayed, state.beliefs_from(&model));
    }
}

#[tokio::test]
async fn a_deployment_that_nobody_described_is_a_conflict_and_nothing_is_written() {
    let (chat, steps) = script(4);
    let (_, _, last) = steps.last().unwrap();
    let mut update = last
        .changes
        .iter()
        .find_map(|c| match c {
            Change::Contrasts(update) => Some((**update).clone()),
            _ => None,
        })
        .unwrap();
    for change in &mut update.deployments {
        change.subject = None;
    }
    let lonely = tx(vec![
        audit("never"),
        Change::Contrasts(Box::new(ContrastUpdate {
            forgotten: vec![id(&chat, 9)],
            ..update
        })),
    ]);
    let mut reference = ServerState::default();
    let expected = comparable(reference.apply(&lonely));
    assert!(expected.is_err());
    for mut store in AnyStore::both().await {
        assert_eq!(comparable(store.commit(&lonely).await), expected);
        assert_eq!(store.load().await, ServerState::default());
    }
}
