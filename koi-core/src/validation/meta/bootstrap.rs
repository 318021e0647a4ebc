//! Thresholds from resampled paths: how far does the detector run when nothing is wrong?
//!
//! Block bootstrap (Künsch, 1989) of the noise, smoothed bootstrap of the deployments' errors; the
//! tail beyond what was drawn is exponential, as that of a CUSUM is. Spec §8.

use super::blocks::ResidualBlock;
use super::calibration::{BUNDLE_SIZES, ThresholdRow};
use super::components::Components;
use crate::params::Params;
use crate::rng::Rng;

/// Numbers of points for which thresholds are stored; between two of them the larger one counts.
pub const POINTS: [u32; 8] = [3, 6, 12, 20, 30, 60, 120, 256];
/// Slacks tried, in units of the configured one.
const SLACK_STEPS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
/// Bundle whose threshold must stay below the largest one, or the slack is raised.
const ORDINARY_BUNDLE: u32 = 4;
/// Share of drawn peaks to which the tail is fitted.
const TAIL: f64 = 0.05;

/// Slack and thresholds in σ: the smallest slack under which an ordinary bundle needs no more than
/// the largest threshold at the points this variable usually has.
///
/// # Source
/// Spec §8: false fires ≤ .02 / bundle size, 4σ ≤ h ≤ 12σ
pub(super) fn thresholds(
    blocks: &[&ResidualBlock],
    parts: &Components,
    sigma: f64,
    params: &Params,
    rng: &mut Rng,
) -> (f64, Vec<ThresholdRow>) {
    let usual = usual_row(blocks);
    let paths = Paths::of(blocks, parts, sigma);
    let largest = params.meta_slack_max_sigmas.max(params.cusum_slack_sigmas);
    let mut slack = params.cusum_slack_sigmas;
    for step in SLACK_STEPS {
        let tried = step * params.cusum_slack_sigmas;
        if tried > largest {
            break;
        }
        slack = tried;
        // The same paths for every slack, so that they differ by the slack alone.
        let peaks = paths.peaks(slack, params.meta_draws, usual + 1, &mut rng.clone());
        let needed = needed(&peaks, params);
        let most = needed.last().map(|row| row.at(ORDINARY_BUNDLE));
        if most.is_none_or(|h| h <= params.meta_threshold_max_sigmas) {
            break;
        }
    }
    let peaks = paths.peaks(slack, params.meta_draws, POINTS.len(), rng);
    (slack, clipped(needed(&peaks, params), params))
}

/// Index in [`POINTS`] of the row that the longest block falls in.
fn usual_row(blocks: &[&ResidualBlock]) -> usize {
    let longest = blocks.iter().map(|b| b.residuals().len()).max();
    let longest = u32::try_from(longest.unwrap_or(0)).unwrap_or(u32::MAX);
    let fits = POINTS.iter().position(|points| *points >= longest);
    fits.unwrap_or(POINTS.len() - 1)
}

/// What paths are drawn from, in σ.
///
/// A path is the error of one deployment, drawn once, and pieces of noise, each the rest of a block
/// from a random point on. A block around its own mean has lost its slowest motion: each piece gets
/// it back as a mean of its own, so that a path wanders as far as the noise itself does.
struct Paths {
    /// Residuals of each block around its mean, and the standard deviation that noise gives the
    /// mean of so many points.
    noise: Vec<(Vec<f64>, f64)>,
    /// Each block's mean, noise taken out.
    offsets: Vec<f64>,
    /// Width of the kernel around a drawn offset.
    kernel: f64,
}

impl Paths {
    fn of(blocks: &[&ResidualBlock], parts: &Components, sigma: f64) -> Self {
        let offsets = blocks
            .iter()
            .map(|b| (parts.bias + parts.mean_shrink * (b.mean() - parts.bias)) / sigma)
            .collect();
        let noise = blocks
            .iter()
            .map(|b| {
                let mean = b.mean();
                let centred = b.residuals().iter().map(|r| (r - mean) / sigma).collect();
                let share = parts.long_run_factor / b.residuals().len() as f64;
                (centred, parts.noise_std * share.sqrt() / sigma)
            })
            .collect();
        // Silverman's width for a normal.
        let width = 1.06 * (blocks.len() as f64).powf(-0.2);
        Self {
            noise,
            offsets,
            kernel: width * parts.model_error_std / sigma,
        }
    }

    /// Peaks of both sides of the detector over `draws` paths, sorted, one list for each of the
    /// first `rows` entries of [`POINTS`].
    fn peaks(&self, slack: f64, draws: u32, rows: usize, rng: &mut Rng) -> Vec<Vec<f64>> {
        let mut peaks: Vec<Vec<f64>> = POINTS
            .iter()
            .take(rows)
            .map(|_| Vec::with_capacity(draws as usize))
            .collect();
        for _ in 0..draws {
            let drawn = self.offsets.get(rng.below(self.offsets.len())).copied();
            let offset = drawn.unwrap_or(0.0) + self.kernel * normal(rng);
            self.one_path(offset, slack, rng, &mut peaks);
        }
        for list in &mut peaks {
            list.sort_by(f64::total_cmp);
        }
        peaks
    }

    fn one_path(&self, offset: f64, slack: f64, rng: &mut Rng, peaks: &mut [Vec<f64>]) {
        let (mut high, mut low, mut peak) = (0.0_f64, 0.0_f64, 0.0_f64);
        let (mut piece, mut centre): (&[f64], f64) = (&[], offset);
        let mut done = 0;
        for (points, list) in POINTS.iter().zip(peaks) {
            while done < *points {
                let Some((first, rest)) = piece.split_first() else {
                    let (next, wander) = self.piece(rng);
                    if next.is_empty() {
                        return;
                    }
                    piece = next;
                    centre = offset + wander;
                    continue;
                };
                piece = rest;
                done += 1;
                let r = centre + first;
                high = (high + r - slack).max(0.0);
                low = (low + r + slack).min(0.0);
                peak = peak.max(high).max(-low);
            }
            list.push(peak);
        }
    }

    fn piece(&self, rng: &mut Rng) -> (&[f64], f64) {
        let Some((block, mean_std)) = self.noise.get(rng.below(self.noise.len())) else {
            return (&[], 0.0);
        };
        let start = rng.below(block.len());
        let rest = block.get(start..).unwrap_or_default();
        (rest, mean_std * normal(rng))
    }
}

/// A standard normal number (Box and Muller, 1958).
fn normal(rng: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.unit()).cos()
}

/// Thresholds before they are clipped; never falling as points or bundle grow.
fn needed(peaks: &[Vec<f64>], params: &Params) -> Vec<ThresholdRow> {
    let mut rows: Vec<ThresholdRow> = Vec::with_capacity(POINTS.len());
    for (points, sorted) in POINTS.iter().zip(peaks) {
        let before = rows.last().map(|r| r.sigmas.clone());
        let mut largest = 0.0_f64;
        let sigmas = BUNDLE_SIZES
            .iter()
            .enumerate()
            .map(|(i, bundle)| {
                let p = params.meta_false_fire / f64::from(*bundle);
                let of_fewer = before.as_ref().and_then(|b| b.get(i)).copied();
                largest = largest
                    .max(tail_quantile(sorted, p))
                    .max(of_fewer.unwrap_or(0.0));
                largest
            })
            .collect();
        rows.push(ThresholdRow {
            points: *points,
            sigmas,
        });
    }
    rows
}

fn clipped(mut rows: Vec<ThresholdRow>, params: &Params) -> Vec<ThresholdRow> {
    let least = params.cusum_threshold_sigmas;
    let most = params.meta_threshold_max_sigmas.max(least);
    for h in rows.iter_mut().flat_map(|r| &mut r.sigmas) {
        *h = h.clamp(least, most);
    }
    rows
}

/// The value that is exceeded with probability `p`, from sorted draws: counted down to the tail,
/// fitted beyond it, one standard error on the safe side.
///
/// # Formula
/// u + θ(1 + 1/√m)·ln(tail/p), u the 95 % quantile, θ the mean excess of the m draws above it
fn tail_quantile(sorted: &[f64], p: f64) -> f64 {
    let at = |share: f64| {
        let index = ((1.0 - share) * sorted.len() as f64).ceil() as usize;
        index.min(sorted.len().saturating_sub(1))
    };
    if p >= TAIL {
        return sorted.get(at(p)).copied().unwrap_or(0.0);
    }
    let from = at(TAIL);
    let threshold = sorted.get(from).copied().unwrap_or(0.0);
    let beyond = sorted.get(from..).unwrap_or_default();
    let m = beyond.len().max(1) as f64;
    let excess = beyond.iter().map(|x| x - threshold).sum::<f64>() / m;
    threshold + excess * (1.0 + 1.0 / m.sqrt()) * (TAIL / p).ln()
}
