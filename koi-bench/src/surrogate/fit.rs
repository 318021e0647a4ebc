//! `--fit`: every calibrated number anew, as the files of `configs/calibration`.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use koi_core::surrogate::EngineGeneration;
use koi_core::surrogate::interval::{IntervalRow, Intervals};
use koi_core::surrogate::mixture::{MemberWeights, Mixture};
use koi_core::surrogate::residual::{Quantity, Residuals};

use super::calibrate;
use super::cv::{self, By};
use super::table::Point;

/// Neighbours' share: the least loss of `koi bench surrogate --neighbours`, which leaves whole
/// groups of one split and lengths out; rows of a left-out model or GPU have no neighbours.
const NEIGHBOURS_SHARE: f64 = 1.0;

/// Fits and writes everything; returns remarks.
pub(super) fn write(points: &[Point], folder: &Path, iterations: u32) -> Result<Vec<String>> {
    let all: Vec<&Point> = points.iter().collect();
    let mut constants = calibrate::fit(&all, iterations)?;
    constants.fitted = format!(
        "koi bench surrogate --fit, {iterations} iterations from prior.toml on {} rows",
        points.len()
    );
    rounded(&mut constants)?;
    let forests = cv::grow_all(&all, &constants);
    let residuals = Residuals {
        fitted: format!("koi bench surrogate --fit on {} rows", points.len()),
        forests,
    };
    let by_model = cv::run(points, By::Model, iterations)?;
    let by_gpu = cv::run(points, By::Gpu, iterations)?;
    let (mixture, intervals) = spread(points, &by_model, &by_gpu);
    let put = |name: &str, text: String| -> Result<()> {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    std::fs::create_dir_all(folder)?;
    put("analytic.toml", toml::to_string(&constants)?)?;
    put(
        "residual.toml",
        residuals.to_toml().map_err(|e| anyhow!(e))?,
    )?;
    put("mixture.toml", toml::to_string(&mixture)?)?;
    put("intervals.toml", toml::to_string(&intervals)?)?;
    Ok(vec![format!(
        "wrote analytic.toml, residual.toml, mixture.toml and intervals.toml to {}",
        folder.display()
    )])
}

/// Six significant digits, so that the file reads well and says what was fitted.
fn rounded(constants: &mut koi_core::surrogate::constants::Constants) -> Result<()> {
    let numbers: Vec<f64> = constants
        .values()
        .into_iter()
        .map(|(_, v)| format!("{v:.5e}").parse().unwrap_or(v))
        .collect();
    *constants = constants
        .with_values(&numbers)
        .context("constants of another shape")?;
    Ok(())
}

/// Weights and intervals from the errors of both cross-validations.
fn spread(points: &[Point], by_model: &[cv::Held], by_gpu: &[cv::Held]) -> (Mixture, Intervals) {
    let mut rows = Vec::new();
    let four = |x: f64| (x * 1e4).round() / 1e4;
    for quantity in Quantity::ALL {
        for (by, held) in [(By::Model, by_model), (By::Gpu, by_gpu)] {
            let lessons = cv::lessons(points, by, held, quantity);
            let generations = EngineGeneration::ALL.into_iter().map(Some);
            for generation in std::iter::once(None).chain(generations) {
                let of = lessons
                    .iter()
                    .filter(|l| generation.is_none() || l.generation == generation);
                let cell = cv::cell(of);
                if cell.n > 0 {
                    rows.push(IntervalRow {
                        quantity,
                        gpu_seen: by == By::Model,
                        generation,
                        residual_share: cell.share,
                        low: four(cell.low),
                        high: four(cell.high),
                        n: cell.n,
                    });
                }
            }
        }
    }
    let weights = Quantity::ALL.map(|_| MemberWeights {
        neighbours: NEIGHBOURS_SHARE,
    });
    let [tpot, ttft, throughput] = weights;
    let fitted = format!("koi bench surrogate --fit on {} rows", points.len());
    let seen: std::collections::BTreeSet<String> = points
        .iter()
        .filter(|p| p.question.is_ok())
        .flat_map(|p| [p.row.gpu_type.clone(), p.gpu_key.clone()])
        .collect();
    let intervals = Intervals {
        fitted: fitted.clone(),
        seen_gpus: seen.into_iter().collect(),
        interval: rows,
    };
    (
        Mixture {
            fitted,
            tpot,
            ttft,
            throughput,
        },
        intervals,
    )
}
