//! What a prediction costs.

use koi_core::catalog::{Catalog, GpuType};

/// The lowest on-demand price of a GPU of this type in the catalog, in USD per hour.
pub(super) fn usd_per_gpu_hour(gpu: &GpuType) -> Option<f64> {
    let instances = Catalog::embedded().instance_types();
    let prices = instances.filter(|i| i.gpu_type == gpu.id && i.gpus > 0);
    prices
        .filter_map(|i| Some(i.on_demand_usd_per_hour? / f64::from(i.gpus)))
        .filter(|usd| usd.is_finite() && *usd > 0.0)
        .min_by(f64::total_cmp)
}

/// USD per million generated tokens.
///
/// # Formula
/// n · price / (3600 · tokens per second) · 10⁶
pub(super) fn per_million(
    usd_per_gpu_hour: Option<f64>,
    n_gpus: u32,
    tokens_per_sec: Option<f64>,
) -> Option<f64> {
    let tokens = tokens_per_sec.filter(|t| *t > 0.0)?;
    Some(f64::from(n_gpus) * usd_per_gpu_hour? / (3600.0 * tokens) * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_by_hand() {
        // Two GPUs at 3.60 USD/h are 0.002 USD/s; 1000 tokens/s make 2 USD per million.
        let usd = per_million(Some(3.6), 2, Some(1000.0)).unwrap();
        assert!((usd - 2.0).abs() < 1e-12);
        assert_eq!(per_million(None, 2, Some(1000.0)), None);
        assert_eq!(per_million(Some(3.6), 2, Some(0.0)), None);
    }
}
