//! What a restart keeps of learning: the detector's calibration, and rows whose S3 failed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use koi_core::catalog::Catalog;
use koi_core::causal::CausalModel;
use koi_core::ids::TickId;
use koi_core::model::ModelClass;
use koi_core::params::Params;
use koi_core::server::{ServerMachine, ServerSettings};
use koi_core::store::Change;
use koi_core::tick::observatory::Observatory;
use koi_core::tick::{Phase, TickCause};
use koi_core::validation::meta::{self, CalibrationRecord, ThresholdRow, VariableCalibration};
use koi_core::validation::residual::Variable;
use koi_core::validation::{Calibration, UpdateTable};
use koi_core::variables::{Mediator, Outcome};
use koi_server::agents::registry::Registry;
use koi_server::core_loop::{Core, CoreParts, Lead};
use koi_server::endpoints::EndpointBoard;
use koi_server::tick::points::PointsBoard;
use koi_server::tick::run::{TickParts, World, run_tick};
use tokio_util::sync::CancellationToken;

use super::conformance::agree;
use super::records::*;
use super::{AnyStore, load};
use crate::support::{TestDatabase, TestFolder};

fn set(tick: i64, sigma: f64) -> CalibrationRecord {
    let row = |variable| VariableCalibration {
        variable,
        model_class: ModelClass::DenseSmall,
        phase: meta::Phase::Settled,
        blocks: 30,
        sigma,
        slack_sigmas: 0.75,
        bias: 1e-3 / 7.0,
        model_error_std: 0.01,
        noise_std: 0.1 + 0.2,
        long_run_factor: 1.5,
        level: 100.0,
        thresholds: vec![ThresholdRow {
            points: 256,
            sigmas: vec![4.0, 5.1, 5.2, 5.3, 5.4, 5.5, 5.6, 1e2 / 3.0],
        }],
    };
    let mut calibration = Calibration::default();
    calibration.insert(row(Variable::V(Mediator::QueueDepth)));
    calibration.insert(row(Variable::Y(Outcome::P99TtftMs)));
    CalibrationRecord {
        tick: TickId(tick),
        calibration,
    }
}

fn put(tick: i64, sigma: f64) -> Change {
    Change::Calibration(Box::new(set(tick, sigma)))
}

#[tokio::test]
async fn the_newest_calibration_is_what_a_server_that_starts_judges_by() {
    let chat = job(1, "chat");
    let script = [
        tx(vec![put(20, 0.05)]),
        tx(vec![put(40, 1.0 / 3.0)]),
        // A transaction that is refused sets nothing.
        tx(vec![put(60, 9.0), put_job(&chat), put_job(&chat)]),
    ];
    let (answers, state) = agree(&script).await;
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert_eq!(*state.calibration, set(40, 1.0 / 3.0).calibration);
    let resumed = Observatory::resume(&state.calibration, &[]);
    assert_eq!(resumed.statistics.calibration, *state.calibration);
}

#[tokio::test]
async fn calibrations_are_bounded_and_one_of_another_form_is_left_out() {
    let database = TestDatabase::new().await;
    let changes = (1..=40).map(|tick| put(tick, 0.1)).collect();
    database.store.commit(&tx(changes)).await.unwrap();
    assert_eq!(*load(&database).await.calibration, set(40, 0.1).calibration);
    let mut raw = database.raw().await;
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM calibration")
        .fetch_one(&mut raw)
        .await
        .unwrap();
    assert_eq!(count, 32);
    sqlx::query("UPDATE calibration SET version = 999")
        .execute(&mut raw)
        .await
        .unwrap();
    let loaded = database.store.load_state().await.unwrap();
    assert_eq!(*loaded.state.calibration, Calibration::default());
    assert_eq!(loaded.quarantined.len(), 1);
    assert_eq!(loaded.quarantined[0].table, "calibration");
}

/// A server over the database as it is, with one tick after the other.
async fn parts(database: &TestDatabase, folder: &TestFolder) -> TickParts {
    let store = database.store.clone();
    let epoch = store.acquire_epoch().await.unwrap();
    let state = load(database).await;
    let catalog = Catalog::embedded();
    let observatory = Observatory::resume(&state.calibration, &[]);
    let endpoints = EndpointBoard::open(folder.0.join("endpoints")).unwrap();
    let (core, _task) = Core::spawn(CoreParts {
        machine: ServerMachine::new(state, epoch, catalog, ServerSettings::default()),
        store: store.clone(),
        registry: Arc::<Registry>::default(),
        endpoints: Arc::new(endpoints),
        lead: Lead::default(),
        shutdown: CancellationToken::new(),
    });
    TickParts {
        core,
        store,
        observatory: Arc::new(Mutex::new(observatory)),
        world: World {
            catalog,
            causal: Arc::new(CausalModel::embedded(catalog).unwrap()),
            updates: Arc::new(UpdateTable::embedded().unwrap()),
            params: Arc::new(Params::default()),
        },
        points: Arc::new(PointsBoard::default()),
        recent: Arc::default(),
    }
}

/// S2 of ticks 1 and 2 wrote rows, their S3 failed: the next tick applies both, once.
#[tokio::test]
async fn rows_whose_s3_failed_are_applied_by_the_next_tick_and_once() {
    let database = TestDatabase::new().await;
    let folder = TestFolder::new("learned");
    let chat = job(1, "chat");
    let failed = Phase::Exit { keep_all: true };
    for n in 1..=2 {
        let rows = vec![deciding(n, chat.id, 0, &["M_kv_pressure"])];
        let written = vec![put_tick(&tick(n, failed)), Change::Evidence(rows)];
        database.store.commit(&tx(written)).await.unwrap();
    }
    let key = "mechanism:M_kv_pressure".parse().unwrap();
    let moved = || async {
        let counts = database.store.belief_event_counts().await.unwrap();
        counts.get(&key).copied().unwrap_or_default()
    };
    assert_eq!(moved().await, 0);
    let parts = parts(&database, &folder).await;
    for n in 3..=4 {
        let ran = run_tick(
            parts.clone(),
            (TickCause::Operator, None),
            Duration::from_secs(60),
        );
        let done = ran.await.unwrap();
        assert_eq!((done.id, done.failure), (TickId(n), None));
        assert_eq!(moved().await, 2, "after tick {n}");
        let state = load(&database).await;
        assert_eq!(state.slow.applied_through, Some(TickId(n)));
        assert_eq!(state.beliefs[&key].alpha_micro, 2_000_000);
    }
    assert_eq!(database.store.beliefs_verify().await.unwrap(), []);
    let events = database.store.belief_history(&key, None, 9).await.unwrap();
    let ticks: Vec<i64> = events.iter().map(|e| e.tick.0).collect();
    assert_eq!(ticks, [2, 1], "each under its own tick, in order");
}

/// Many events are written at once; names that SQL gives a meaning to come back as they were.
#[tokio::test]
async fn events_of_many_rows_keep_their_order_and_their_names() {
    let [_, AnyStore::Postgres(database)] = AnyStore::both().await else {
        panic!("Postgres second");
    };
    let names = [
        "edge:a\"b->c",
        "edge:back\\slash->x",
        "mechanism:M_{1,NULL}",
    ];
    let event = |rank| {
        let moves: Vec<(&str, i64, i64)> =
            names.iter().map(|n| (*n, i64::from(rank), -1)).collect();
        belief_event(7, (job_id(1), rank), &moves)
    };
    let events: Vec<_> = (0..4_500).map(event).collect();
    let change = Change::BeliefEvents(events);
    database.store.commit(&tx(vec![change])).await.unwrap();
    assert_eq!(database.store.beliefs_verify().await.unwrap(), []);
    for name in names {
        let key = name.parse().unwrap();
        let newest = database.store.belief_history(&key, None, 2).await.unwrap();
        let moved: Vec<i64> = newest.iter().map(|e| e.moved.alpha_micro).collect();
        assert_eq!(moved, [4_499, 4_498], "{name}");
    }
}
