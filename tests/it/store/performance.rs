//! Imported performance: added once, replaced when changed, listed by page.

use koi_core::catalog::Catalog;
use koi_core::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use koi_core::time::UtcMicros;
use koi_server::store::{ImportCounts, PageRequest, PerformanceFilter};
use koi_server::tick::points::PointsBoard;

use crate::support::TestDatabase;

fn row(source: &str, id: u32, ttft_ms: f64) -> PerformanceRow {
    PerformanceRow {
        source: source.to_owned(),
        row_id: format!("row-{id:04}"),
        date: "2026-01".to_owned(),
        model: format!("model-{}", id % 3),
        gpu_type: "H100".to_owned(),
        n_gpus: Some(2),
        tp: Some(2),
        pp: None,
        ep: None,
        dp: None,
        engine: Some("vllm".to_owned()),
        engine_version: None,
        weight_dtype: None,
        kv_dtype: None,
        isl: Some(1024.5),
        osl: Some(128.0),
        load: Some(Load {
            kind: LoadKind::Concurrency,
            value: Some(16.0),
        }),
        disaggregated: false,
        measured: Measured {
            ttft: Some(Timing {
                ms: ttft_ms,
                statistic: Statistic::Mean,
            }),
            ..Measured::default()
        },
        notes: "'; DROP TABLE performance; -- \u{1f41f}".to_owned(),
    }
}

#[tokio::test]
async fn rows_are_added_once_and_replaced_when_they_change() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let import = async |rows: &[PerformanceRow], at: i64| {
        let stored = store.performance_import(rows, (UtcMicros(at), "operator:ann"));
        stored.await.unwrap()
    };
    let mut rows: Vec<_> = (0..300).map(|i| row("a", i, 50.25)).collect();
    let added = import(&rows, 1).await;
    assert_eq!((added.n_added, added.n_unchanged), (300, 0));
    rows[7] = row("a", 7, 99.0);
    rows.push(row("b", 7, 50.0));
    let again = import(&rows, 2).await;
    let expected = ImportCounts {
        n_added: 1,
        n_replaced: 1,
        n_unchanged: 299,
    };
    assert_eq!(again, expected);
    assert_eq!(import(&[], 3).await, ImportCounts::default());

    let sources = store.performance_sources().await.unwrap();
    let counts: Vec<_> = sources
        .iter()
        .map(|s| (s.source.as_str(), s.n_rows))
        .collect();
    assert_eq!(counts, [("a", 300), ("b", 1)]);
    assert_eq!((sources[0].n_models, sources[0].n_gpu_types), (3, 1));
}

#[tokio::test]
async fn rows_come_back_as_they_were_by_page_and_filter() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let rows: Vec<_> = (0..25)
        .map(|i| row("a", i, 50.0 + f64::from(i) / 3.0))
        .collect();
    let stored = store.performance_import(&rows, (UtcMicros(5), "operator:ann"));
    stored.await.unwrap();
    let mut page = PageRequest::first(10);
    let mut seen = Vec::new();
    loop {
        let filter = PerformanceFilter::default();
        let found = store.performance_rows(&filter, &page).await.unwrap();
        assert!(found.items.iter().all(|i| i.imported_at == UtcMicros(5)));
        seen.extend(found.items.into_iter().map(|i| i.row));
        let Some(next) = found.next else { break };
        page.token = Some(next);
    }
    assert_eq!(seen, rows);
    let filter = PerformanceFilter {
        model: Some("model-1".to_owned()),
        ..PerformanceFilter::default()
    };
    let found = store
        .performance_rows(&filter, &PageRequest::first(100))
        .await;
    assert_eq!(found.unwrap().items.len(), 8);
}

#[tokio::test]
async fn a_planner_reads_the_newest_rows_of_every_scope_within_bounds() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    // Three models by id; the second half is imported later.
    let rows: Vec<_> = (0..60).map(|i| row("a", i, 50.0)).collect();
    for (at, part) in rows.chunks(30).enumerate() {
        let stored = store.performance_import(part, (UtcMicros(at as i64), "operator:ann"));
        stored.await.unwrap();
    }
    let all = store.performance_by_scope(1_000, 10_000).await.unwrap();
    assert_eq!(all.len(), 60);
    let newest = store.performance_by_scope(10, 10_000).await.unwrap();
    assert_eq!(newest.len(), 30);
    assert!(newest.iter().all(|r| rows[30..].contains(r)));
    for model in ["model-0", "model-1", "model-2"] {
        let n = newest.iter().filter(|r| r.model == model).count();
        assert_eq!(n, 10, "{model}");
    }
    // Where the whole is cut, every scope keeps its newest.
    let few = store.performance_by_scope(10, 3).await.unwrap();
    let models: std::collections::BTreeSet<_> = few.iter().map(|r| r.model.clone()).collect();
    assert_eq!((few.len(), models.len()), (3, 3));
    assert_eq!(store.performance_by_scope(10, 3).await.unwrap(), few);

    let spoil = "UPDATE performance SET doc = '{}' WHERE row_id = 'row-0059'";
    sqlx::query(spoil)
        .execute(&mut database.raw().await)
        .await
        .unwrap();
    let left = store.performance_by_scope(1_000, 10_000).await.unwrap();
    assert_eq!(left.len(), 59, "a spoilt row costs itself");
}

#[tokio::test]
async fn points_are_read_again_only_after_an_import() {
    let database = TestDatabase::new().await;
    let store = &database.store;
    let catalog = Catalog::embedded();
    let known = |id: u32| PerformanceRow {
        model: "llama-3.1-8b".to_owned(),
        n_gpus: Some(1),
        tp: Some(1),
        ..row("a", id, 90.0 + f64::from(id))
    };
    let import = async |rows: &[PerformanceRow]| {
        let stored = store.performance_import(rows, (UtcMicros(1), "operator:ann"));
        stored.await.unwrap();
    };
    let board = PointsBoard::default();
    let now = async || board.current(store, catalog).await.unwrap();
    let nothing = now().await;
    assert!(nothing.points.is_empty() && nothing.digest.is_empty());

    import(&[known(1), row("a", 2, 50.0)]).await;
    // Nobody said so: nothing is read.
    assert!(now().await.points.is_empty());
    board.mark_stale();
    let first = now().await;
    assert_eq!((first.points.len(), first.n_left_out), (1, 1));
    assert!(!first.digest.is_empty());
    // The same rows again are the same object: not read anew.
    assert!(std::sync::Arc::ptr_eq(&first, &now().await));

    import(&[known(3)]).await;
    board.mark_stale();
    let second = now().await;
    assert_eq!(second.points.len(), 2);
    assert_ne!(second.digest, first.digest);
}
