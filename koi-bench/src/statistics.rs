//! Medians, quantiles and rank correlation of finite numbers.

/// The q-quantile, interpolated between neighbours; `None` for no finite numbers.
pub(crate) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor()))
}

/// The median.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for run in order.chunk_by(|a, b| values[*a].total_cmp(&values[*b]).is_eq()) {
        let first = ranks_before(values, values[run[0]]);
        for index in run {
            ranks[*index] = first + (run.len() as f64 + 1.0) / 2.0;
        }
    }
    ranks
}

fn ranks_before(values: &[f64], value: f64) -> f64 {
    values
        .iter()
        .filter(|v| v.total_cmp(&value).is_lt())
        .count() as f64
}

/// Spearman's rank correlation of pairs; `None` for fewer than three or when one side is constant.
///
/// # Formula
/// ρ = cov(r(x), r(y)) / (σ(r(x)) · σ(r(y))) with mean ranks for ties.
pub(crate) fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let (x, y) = (ranks(&x), ranks(&y));
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let scale = (product(&x, &x) * product(&y, &y)).sqrt();
    (scale > 0.0).then(|| product(&x, &y) / scale)
}

/// Absolute relative errors of (predicted, true) pairs.
pub(crate) fn relative_errors(pairs: &[(f64, f64)]) -> Vec<f64> {
    pairs
        .iter()
        .filter(|(_, truth)| *truth > 0.0)
        .map(|(predicted, truth)| (predicted - truth).abs() / truth)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_hand() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, f64::NAN, 1.0]), Some(2.5));
        assert_eq!(quantile(&[0.0, 10.0], 0.95), Some(9.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn spearman_by_hand() {
        assert_eq!(spearman(&[(1.0, 1.0), (2.0, 9.0), (3.0, 100.0)]), Some(1.0));
        assert_eq!(spearman(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)]), Some(-1.0));
        // d² = 1 + 1 + 0 + 0: 1 − 6·2 / (4·15).
        let rho = spearman(&[(1.0, 2.0), (2.0, 1.0), (3.0, 3.0), (4.0, 4.0)]).unwrap();
        assert!((rho - 0.8).abs() < 1e-12);
        // Ranks 1.5, 1.5, 3 against 1, 2, 3: 1.5 / √(1.5 · 2).
        let rho = spearman(&[(5.0, 1.0), (5.0, 2.0), (6.0, 3.0)]).unwrap();
        assert!((rho - 1.5 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(spearman(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(spearman(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }

    #[test]
    fn errors_are_relative_to_the_truth() {
        assert_eq!(
            relative_errors(&[(15.0, 10.0), (5.0, 10.0), (1.0, 0.0)]),
            [0.5, 0.5]
        );
    }
}
