//! What measured points say, and which are refused.

use super::*;
use crate::catalog::Catalog;
use crate::model::KnownModel;

fn question(concurrency: f64, gpu: &GpuType) -> Question {
    let row = MeasuredRow {
        model: "llama-3.1-8b".to_owned(),
        gpu_type: gpu.id.clone(),
        num_gpus: Some(1),
        tp: Some(1),
        pp: Some(1),
        engine: "vllm".to_owned(),
        isl: Some(1000.0),
        osl: Some(200.0),
        load: Some(concurrency),
        load_kind: Some(LoadKind::Concurrency),
        ..MeasuredRow::default()
    };
    let facts = KnownModel::find("llama-3.1-8b").unwrap().facts().unwrap();
    Question::of(&row, &facts, gpu).unwrap()
}

fn stack(question: &Question, gpu: &GpuType, points: &MeasuredPoints) -> StackPrediction {
    let profile = EngineProfile::embedded(question.generation);
    let RowAnswer::Prediction(row) = question.ask(gpu, profile) else {
        panic!("it runs");
    };
    let ask = (question, gpu);
    Calibration::embedded().stack(&row, &gpu.id, question.generation, |q| {
        points.voice(ask, &row.situation, q, None)
    })
}

fn tpot(ms: f64) -> Measured {
    Measured {
        tpot: Some(Timing {
            ms,
            statistic: Statistic::Mean,
        }),
        ..Measured::default()
    }
}

#[test]
fn a_point_draws_its_neighbourhood_and_nothing_else() {
    let catalog = Catalog::embedded();
    let (gpu, other) = (
        catalog.gpu_type("H100").unwrap(),
        catalog.gpu_type("L40S").unwrap(),
    );
    let none = MeasuredPoints::default();
    let q = question(16.0, gpu);
    let before = stack(&q, gpu, &none).tpot_mean_ms.unwrap();
    let mut points = MeasuredPoints::default();
    let measured = tpot(before.mixed.value * 1.5);
    let calibration = Calibration::embedded();
    points.add("a", (&q, gpu), &measured, &calibration).unwrap();
    let after = stack(&q, gpu, &points);
    let here = after.tpot_mean_ms.unwrap();
    assert!(here.mixed.coverage > 0.5);
    let ratio = here.mixed.value / before.mixed.value;
    assert!(
        ratio > 1.1 && ratio < 1.5,
        "shrunk towards what was known: {ratio}"
    );
    // Nothing was measured of the first token, on another device, or far away.
    assert_eq!(after.ttft_mean_ms, stack(&q, gpu, &none).ttft_mean_ms);
    let elsewhere = question(16.0, other);
    assert_eq!(
        stack(&elsewhere, other, &points),
        stack(&elsewhere, other, &none)
    );
    let far = question(512.0, gpu);
    let far = stack(&far, gpu, &points).tpot_mean_ms.unwrap();
    assert!(far.mixed.coverage < here.mixed.coverage / 2.0);
}

#[test]
fn a_row_does_not_speak_for_itself() {
    let gpu = Catalog::embedded().gpu_type("H100").unwrap();
    let q = question(16.0, gpu);
    let mut points = MeasuredPoints::default();
    let calibration = Calibration::embedded();
    points
        .add("a", (&q, gpu), &tpot(50.0), &calibration)
        .unwrap();
    let profile = EngineProfile::embedded(q.generation);
    let RowAnswer::Prediction(row) = q.ask(gpu, profile) else {
        panic!("it runs");
    };
    let voice = |id| points.voice((&q, gpu), &row.situation, Quantity::Tpot, id);
    assert!(voice(None).coverage > 0.5);
    assert_eq!(voice(Some("a")), NeighbourVoice::default());
    assert!(voice(Some("b")).coverage > 0.5);
}

#[test]
fn what_teaches_nothing_is_refused() {
    let gpu = Catalog::embedded().gpu_type("H100").unwrap();
    let q = question(16.0, gpu);
    let mut points = MeasuredPoints::default();
    let calibration = Calibration::embedded();
    let mut median = tpot(50.0);
    median.tpot.as_mut().unwrap().statistic = Statistic::P50;
    for measured in [Measured::default(), median, tpot(f64::NAN)] {
        assert!(points.add("a", (&q, gpu), &measured, &calibration).is_err());
    }
    assert!(points.is_empty());
}

#[test]
fn what_no_device_can_do_is_refused_by_name() {
    let gpu = Catalog::embedded().gpu_type("H100").unwrap();
    let q = question(16.0, gpu);
    let mut points = MeasuredPoints::default();
    let calibration = Calibration::embedded();
    let rate = |tokens: f64| Measured {
        output_tokens_per_sec: Some(tokens),
        ..Measured::default()
    };
    for (measured, word) in [
        (rate(9e7), "can compute"),
        (rate(1e-300), "absurd"),
        (tpot(1e-300), "absurd"),
        (tpot(1e7), "absurd"),
    ] {
        let why = points.add("a", (&q, gpu), &measured, &calibration);
        assert!(why.as_ref().is_err_and(|w| w.contains(word)), "{why:?}");
    }
    assert!(points.is_empty());
    assert!(
        points
            .add("a", (&q, gpu), &rate(500.0), &calibration)
            .is_ok()
    );
}
