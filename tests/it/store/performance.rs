//! Imported performance: added once, replaced when changed, listed by page.

use koi_core::performance::{Load, LoadKind, Measured, PerformanceRow, Statistic, Timing};
use koi_core::time::UtcMicros;
use koi_server::store::{ImportCounts, PageRequest, PerformanceFilter};

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
