//! What makes a measured row usable, and how it is refused.

use super::*;

pub(crate) fn row() -> PerformanceRow {
    PerformanceRow {
        source: "bench".into(),
        row_id: "1".into(),
        date: "2026-01-01".into(),
        model: "m".into(),
        gpu_type: "H100".into(),
        n_gpus: Some(2),
        tp: Some(2),
        pp: Some(1),
        ep: None,
        dp: None,
        engine: Some("vllm".into()),
        engine_version: None,
        weight_dtype: None,
        kv_dtype: None,
        isl: Some(100.0),
        osl: Some(50.0),
        load: Some(Load {
            kind: LoadKind::Concurrency,
            value: Some(8.0),
        }),
        disaggregated: false,
        measured: Measured {
            output_tokens_per_sec: Some(900.0),
            ..Measured::default()
        },
        notes: String::new(),
    }
}

#[test]
fn a_sound_row_passes() {
    assert_eq!(row().check(), Ok(row()));
}

#[test]
fn every_problem_is_named_at_once() {
    let bad = PerformanceRow {
        model: " ".into(),
        row_id: "a\u{7}".into(),
        tp: Some(0),
        n_gpus: Some(1),
        pp: Some(4),
        isl: Some(f64::NAN),
        measured: Measured {
            ttft_p99_ms: Some(-1.0),
            ..Measured::default()
        },
        ..row()
    };
    let mut fields: Vec<String> = bad
        .check()
        .unwrap_err()
        .into_iter()
        .map(|v| v.field)
        .collect();
    fields.sort();
    assert_eq!(
        fields,
        [
            "isl",
            "measured.ttft_p99_ms",
            "model",
            "n_gpus",
            "row_id",
            "tp"
        ]
    );
}

#[test]
fn a_row_without_a_measurement_is_refused() {
    let bad = PerformanceRow {
        measured: Measured::default(),
        ..row()
    };
    assert_eq!(bad.check().unwrap_err()[0].field, "measured");
}

#[test]
fn names_are_read_back() {
    for kind in LoadKind::ALL {
        assert_eq!(LoadKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(
        Statistic::from_words("mean (from queued)"),
        Some(Statistic::Mean)
    );
    assert_eq!(
        Statistic::from_words("derived e2e/osl"),
        Some(Statistic::Derived)
    );
    assert_eq!(Statistic::from_words("max"), None);
}

#[test]
fn a_date_begins_with_a_year_that_has_come() {
    let dated = |date: &str| {
        let mut row = row();
        row.date = date.to_owned();
        row
    };
    for fine in [
        "",
        "2024-10",
        "2025-11..2026",
        "2026-01-01",
        "20240601-120000",
        "1720000000.5",
    ] {
        assert!(dated(fine).check().is_ok(), "{fine}");
    }
    for bad in ["zz", "3000-01-01", "yesterday", "12"] {
        assert!(dated(bad).check().is_err(), "{bad}");
    }
    let today = "2026-11-30".parse().unwrap();
    for (date, is_late) in [
        ("2026-12-01", false),
        ("2026-12-02", true),
        ("2027", true),
        ("2025-11..2026", false),
        ("", false),
    ] {
        assert_eq!(dated(date).is_from_the_future(today), is_late, "{date}");
    }
}
