//! Tests of the meta step: size and power of a bundle before and after, and what it keeps.

use super::*;
use crate::model::ModelClass;
use crate::validation::cusum::{Verdict, cusum};
use crate::validation::residual::{Variable, sample_std};
use crate::variables::{Mediator, Outcome};

const DECODE: Variable = Variable::V(Mediator::DecodeStepsPerSec);
const CLASS: ModelClass = ModelClass::DenseLarge;
const POINTS: usize = 30;
const BUNDLE: u32 = 4;

/// The part of the statistics that the meta step turns.
#[derive(Default)]
struct Meta {
    blocks: ResidualBlocks,
    calibration: Calibration,
}

impl Meta {
    fn step(&mut self, params: &Params, seed: u64) {
        self.calibration = recalibrate(&self.blocks, &self.calibration, params, seed);
    }
}

/// Sum of twelve uniforms: mean 0, variance 1, near enough to normal.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

/// What a row shows of one variable: an error of the surrogate and autocorrelated noise.
#[derive(Clone, Copy)]
struct Truth {
    noise: f64,
    phi: f64,
    model_error: f64,
}

const QUIET: Truth = Truth {
    noise: 0.05,
    phi: 0.3,
    model_error: 0.0,
};
const WITH_MODEL_ERROR: Truth = Truth {
    model_error: 0.03,
    ..QUIET
};

impl Truth {
    fn row(self, rng: &mut Rng, shift: f64) -> Vec<f64> {
        let offset = shift + self.model_error * normal(rng);
        let fresh = (1.0 - self.phi * self.phi).sqrt();
        let mut e = normal(rng);
        (0..POINTS)
            .map(|_| {
                e = self.phi * e + fresh * normal(rng);
                offset + self.noise * e
            })
            .collect()
    }
}

/// Whether a row fires as the paper's constants have it, with the row's own σ.
fn fires_literally(row: &[f64]) -> bool {
    let sigma = sample_std(row).unwrap();
    cusum(row, 0.5 * sigma, 4.0 * sigma).verdict == Verdict::Diverged
}

fn fires(row: &[f64], calibration: &Calibration, bundle: u32) -> bool {
    let params = Params::default();
    let own = || sample_std(row).unwrap();
    let detector = calibration.detector((DECODE, CLASS), &params, own);
    let threshold = detector.threshold(POINTS as u32, bundle);
    cusum(row, detector.slack(), threshold).verdict == Verdict::Diverged
}

/// Stores rows as the loop does: judged by the calibration in force, which is re-estimated now and
/// then.
fn learned(truth: Truth, rows: u32, seed: u64) -> Calibration {
    let params = Params::default();
    let mut rng = Rng::from_seed(seed);
    let mut meta = Meta::default();
    for i in 1..=rows {
        let row = truth.row(&mut rng, 0.0);
        let verdict = match fires(&row, &meta.calibration, 1) {
            true => Verdict::Diverged,
            false => Verdict::Matched,
        };
        let block = ResidualBlock::new(&row, 40.0, Some(verdict)).unwrap();
        meta.blocks.push((DECODE, CLASS), block, &params);
        if [48, 192, rows].contains(&i) {
            meta.step(&params, seed);
        }
    }
    meta.calibration
}

/// Share of bundles of four independent variables in which any fires.
fn bundle_rate(truth: Truth, bundles: u32, rng: &mut Rng, fires: impl Fn(&[f64]) -> bool) -> f64 {
    let mut fired = 0;
    for _ in 0..bundles {
        let any = (0..BUNDLE).fold(false, |any, _| fires(&truth.row(rng, 0.0)) || any);
        fired += u32::from(any);
    }
    f64::from(fired) / f64::from(bundles)
}

#[test]
fn a_true_bundle_of_four_mostly_fires_before_and_once_in_fifty_rows_after() {
    let (learners, bundles) = (12, 1_000);
    for (name, truth) in [("noise", QUIET), ("with model error", WITH_MODEL_ERROR)] {
        let mut rng = Rng::from_seed(17);
        let before = bundle_rate(truth, 2_000, &mut rng, fires_literally);
        let rates: Vec<f64> = (0..learners)
            .map(|seed| {
                let calibration = learned(truth, 480, seed);
                bundle_rate(truth, bundles, &mut rng, |row| {
                    fires(row, &calibration, BUNDLE)
                })
            })
            .collect();
        let after = rates.iter().sum::<f64>() / f64::from(learners as u32);
        // Between learners and within: the spread of their rates holds both.
        let error = sample_std(&rates).unwrap() / f64::from(learners as u32).sqrt();
        println!(
            "{name}: false fires of a bundle of four: before {before:.3}, after {after:.4} ± {error:.4}"
        );
        assert!(before > 0.2, "{name}: {before}");
        assert!(after <= 0.02 + 2.0 * error, "{name}: {after} ± {error}");
    }
}

#[test]
fn thirty_blocks_are_enough_for_the_promised_rate() {
    let mut rng = Rng::from_seed(23);
    let rates: Vec<f64> = (100..130)
        .map(|seed| {
            let calibration = learned(WITH_MODEL_ERROR, 48, seed);
            assert!(calibration.get(DECODE, CLASS).unwrap().blocks >= 46);
            bundle_rate(WITH_MODEL_ERROR, 300, &mut rng, |row| {
                fires(row, &calibration, BUNDLE)
            })
        })
        .collect();
    let after = rates.iter().sum::<f64>() / rates.len() as f64;
    let error = sample_std(&rates).unwrap() / (rates.len() as f64).sqrt();
    println!("48 blocks: {after:.4} ± {error:.4}");
    assert!(after <= 0.02 + 2.0 * error, "{after} ± {error}");
}

#[test]
fn a_shift_of_thirty_per_cent_is_found_within_three_rows() {
    let mut rng = Rng::from_seed(29);
    for (name, truth) in [("noise", QUIET), ("with model error", WITH_MODEL_ERROR)] {
        let calibration = learned(truth, 480, 3);
        let row = calibration.get(DECODE, CLASS).unwrap();
        let detectable = row.detectable_shift(POINTS as u32, BUNDLE).unwrap();
        println!(
            "{name}: σ {:.4}, δ {}σ, h {:.2}σ, detectable {:.2}σ = {:.1} %",
            row.sigma,
            row.slack_sigmas,
            row.threshold_sigmas(POINTS as u32, BUNDLE).unwrap(),
            detectable.sigmas,
            100.0 * detectable.fraction.unwrap()
        );
        assert!(detectable.fraction.unwrap() < 0.3, "{detectable:?}");
        for shift in [1.3_f64.ln(), -(1.3_f64.ln()), 0.7_f64.ln()] {
            let found = (0..200).filter(|_| {
                (0..3).any(|_| fires(&truth.row(&mut rng, shift), &calibration, BUNDLE))
            });
            assert_eq!(found.count(), 200, "{name} {shift}");
        }
    }
}

#[test]
fn the_reported_shift_is_found_nine_times_out_of_ten() {
    let mut rng = Rng::from_seed(31);
    for truth in [QUIET, WITH_MODEL_ERROR] {
        let calibration = learned(truth, 480, 5);
        let row = calibration.get(DECODE, CLASS).unwrap();
        let shift = row.detectable_shift(POINTS as u32, BUNDLE).unwrap().sigmas * row.sigma;
        let found = (0..1_000)
            .filter(|_| fires(&truth.row(&mut rng, shift), &calibration, BUNDLE))
            .count();
        assert!((850..=1_000).contains(&found), "{found}");
    }
}

#[test]
fn thresholds_grow_with_points_and_bundle_and_stay_within_their_bounds() {
    for truth in [QUIET, WITH_MODEL_ERROR] {
        let calibration = learned(truth, 480, 7);
        let row = calibration.get(DECODE, CLASS).unwrap();
        let h = |points, bundle| row.threshold_sigmas(points, bundle).unwrap();
        for points in [3, 6, 12, 20, 30, 60, 120, 256, 1_000] {
            assert!(h(points, 1) <= h(points, 4) && h(points, 4) <= h(points, 99));
            assert!((4.0..=12.0).contains(&h(points, 1)));
            assert!(h(3, 4) <= h(points, 4) && h(points, 4) <= h(10_000, 4));
        }
    }
}

#[test]
fn settled_deployments_are_calibrated_apart_from_fresh_ones() {
    let params = Params::default();
    let mut rng = Rng::from_seed(47);
    let mut blocks = ResidualBlocks::default();
    let uneven = Truth {
        model_error: 0.3,
        ..QUIET
    };
    for _ in 0..60 {
        for (phase, truth) in [(Phase::Fresh, uneven), (Phase::Settled, QUIET)] {
            let row = truth.row(&mut rng, 0.0);
            let block = ResidualBlock::new(&row, 40.0, Some(Verdict::Matched)).unwrap();
            blocks.push((DECODE, CLASS, phase), block, &params);
        }
    }
    let calibration = recalibrate(&blocks, &Calibration::default(), &params, 1);
    let shift = |phase| {
        let row = calibration.of((DECODE, CLASS, phase)).unwrap();
        let shift = row.detectable_shift(POINTS as u32, BUNDLE).unwrap();
        shift.fraction.unwrap()
    };
    let (settled, fresh) = (shift(Phase::Settled), shift(Phase::Fresh));
    assert!(settled < 0.15 && fresh > 0.5, "{settled} {fresh}");
    let text = serde_json::to_string(&calibration).unwrap();
    let back: Calibration = serde_json::from_str(&text).unwrap();
    assert_eq!(back.rows().count(), 2);
}

#[test]
fn few_blocks_give_eight_sigma_and_fewer_the_rows_own() {
    let params = Params::default();
    let mut meta = Meta::default();
    let mut rng = Rng::from_seed(37);
    for stored in 1..30 {
        let row = QUIET.row(&mut rng, 0.0);
        let block = ResidualBlock::new(&row, 40.0, Some(Verdict::Matched)).unwrap();
        meta.blocks.push((DECODE, CLASS), block, &params);
        meta.step(&params, 1);
        let detector = meta.calibration.detector((DECODE, CLASS), &params, || 1.0);
        assert_eq!(detector.sigma < 0.5, stored >= 3, "{stored}");
        let h = detector.threshold(30, 4) / detector.sigma;
        assert!((h - 8.0).abs() < 1e-12, "{stored}: {h}");
        assert!((detector.slack() / detector.sigma - 0.5).abs() < 1e-12);
    }
    assert!(is_due(TickId(20), &params) && !is_due(TickId(21), &params));
}

#[test]
fn the_papers_constants_can_be_chosen() {
    let off = Params {
        calibration: CalibrationRule::Off,
        ..Params::default()
    };
    let calibration = learned(QUIET, 480, 9);
    let detector = calibration.detector((DECODE, CLASS), &off, || 2.0);
    assert!((detector.threshold(30, 4) - 8.0).abs() < 1e-12);
    assert!((detector.slack() - 1.0).abs() < 1e-12);
    assert!(!is_due(TickId(20), &off));
}

#[test]
fn a_restart_keeps_what_was_calibrated_and_the_same_seed_gives_the_same_table() {
    let params = Params::default();
    let calibration = learned(QUIET, 96, 11);
    assert_eq!(calibration, learned(QUIET, 96, 11));
    let text = serde_json::to_string(&calibration).unwrap();
    let back: Calibration = serde_json::from_str(&text).unwrap();
    let h = |c: &Calibration| {
        c.get(DECODE, CLASS)
            .unwrap()
            .threshold_sigmas(30, 4)
            .unwrap()
    };
    assert!((h(&back) - h(&calibration)).abs() < 1e-12);
    // Two fresh rows are no reason to forget.
    let mut blocks = ResidualBlocks::default();
    let mut rng = Rng::from_seed(1);
    for _ in 0..29 {
        let row = WITH_MODEL_ERROR.row(&mut rng, 0.0);
        let block = ResidualBlock::new(&row, 40.0, Some(Verdict::Matched)).unwrap();
        blocks.push((DECODE, CLASS), block, &params);
    }
    assert_eq!(recalibrate(&blocks, &back, &params, 2), back);
    let wrong = text.replace("decode_steps_per_sec", "decode_steps");
    assert!(serde_json::from_str::<Calibration>(&wrong).is_err());
}

#[test]
fn hostile_residuals_never_reach_the_table() {
    let params = Params::default();
    let mut blocks = ResidualBlocks::default();
    let mut rng = Rng::from_seed(41);
    let matched = Some(Verdict::Matched);
    assert_eq!(ResidualBlock::new(&[f64::NAN, 1.0], 1.0, matched), None);
    let ttft = Variable::Y(Outcome::P99TtftMs);
    for i in 0..600 {
        let mut row = QUIET.row(&mut rng, 0.0);
        row[i % POINTS] = [f64::NAN, f64::INFINITY, 0.0][i % 3];
        let block = ResidualBlock::new(&row, f64::NAN, matched).unwrap();
        blocks.push((DECODE, CLASS), block, &params);
        let flat = ResidualBlock::new(&[0.0; POINTS], 1.0, matched).unwrap();
        blocks.push((ttft, CLASS), flat, &params);
    }
    assert_eq!(blocks.count((DECODE, CLASS)), 480);
    let calibration = recalibrate(&blocks, &Calibration::default(), &params, 1);
    for row in calibration.rows() {
        assert!(row.sigma.is_finite() && row.sigma >= 0.01);
        let h = row.threshold_sigmas(30, 4).unwrap();
        assert!((4.0..=12.0).contains(&h), "{h}");
    }
    assert!((calibration.get(ttft, CLASS).unwrap().sigma - 0.01).abs() < 1e-12);
}

#[test]
fn a_minority_of_real_changes_does_not_raise_the_threshold_to_them() {
    let params = Params::default();
    let mut rng = Rng::from_seed(43);
    let mut blocks = ResidualBlocks::default();
    for i in 0..480 {
        let changed = i % 25 == 0;
        let row = QUIET.row(&mut rng, if changed { -0.357 } else { 0.0 });
        let verdict = if changed {
            Verdict::Diverged
        } else {
            Verdict::Matched
        };
        let block = ResidualBlock::new(&row, 40.0, Some(verdict)).unwrap();
        blocks.push((DECODE, CLASS), block, &params);
    }
    let calibration = recalibrate(&blocks, &Calibration::default(), &params, 1);
    let row = calibration.get(DECODE, CLASS).unwrap();
    assert_eq!(row.blocks, 480 - 20);
    let shift = row.detectable_shift(POINTS as u32, BUNDLE).unwrap();
    assert!(shift.fraction.unwrap() < 0.15, "{shift:?}");
}
