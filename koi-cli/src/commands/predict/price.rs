//! What a prediction costs.

use koi_core::catalog::price::{MAX_USD_PER_HOUR, MIN_USD_PER_HOUR, PriceBook};
use koi_core::catalog::{Catalog, GpuType, InstanceType};
use koi_core::environment::Market;

/// The lowest on-demand price of a GPU of this type in the catalog, in USD per hour: over every
/// region of the list prices, and over the machines' own.
pub(super) fn usd_per_gpu_hour(gpu: &GpuType) -> Option<f64> {
    let catalog = Catalog::embedded();
    let per_gpu = |instance: &InstanceType, usd: f64| {
        let is_this = instance.gpu_type == gpu.id && instance.gpus > 0;
        let is_price = (MIN_USD_PER_HOUR..=MAX_USD_PER_HOUR).contains(&usd);
        (is_this && is_price).then(|| usd / f64::from(instance.gpus))
    };
    let by_region = PriceBook::embedded()
        .iter()
        .filter(|(key, _)| key.market == Market::OnDemand)
        .filter_map(|(key, price)| {
            let instance = catalog.instance_type(&key.instance)?;
            per_gpu(instance, price.usd_per_hour)
        });
    let own = catalog
        .instance_types()
        .filter_map(|instance| per_gpu(instance, instance.on_demand_usd_per_hour?));
    by_region.chain(own).min_by(f64::total_cmp)
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
    fn the_lowest_price_is_the_lowest_of_all_regions() {
        let catalog = Catalog::embedded();
        for id in ["H100", "A10G", "L40S", "T4"] {
            let gpu = catalog.gpu_type(id).unwrap();
            let lowest = usd_per_gpu_hour(gpu).unwrap();
            let mut n_regions = 0;
            for (key, price) in PriceBook::embedded().iter() {
                let instance = catalog.instance_type(&key.instance).unwrap();
                if instance.gpu_type == id && key.market == Market::OnDemand {
                    n_regions += 1;
                    let usd = price.usd_per_hour / f64::from(instance.gpus);
                    assert!(lowest <= usd, "{id}: {key} has {usd}, below {lowest}");
                }
            }
            assert!(n_regions > 5, "{id}");
        }
        // Spot is cheaper, and is not what is asked.
        let h100 = catalog.gpu_type("H100").unwrap();
        let spot = PriceBook::embedded().iter().any(|(key, price)| {
            let instance = catalog.instance_type(&key.instance).unwrap();
            let usd = price.usd_per_hour / f64::from(instance.gpus);
            key.market == Market::Spot
                && instance.gpu_type == "H100"
                && usd < usd_per_gpu_hour(h100).unwrap()
        });
        assert!(spot);
    }

    #[test]
    fn cost_by_hand() {
        // Two GPUs at 3.60 USD/h are 0.002 USD/s; 1000 tokens/s make 2 USD per million.
        let usd = per_million(Some(3.6), 2, Some(1000.0)).unwrap();
        assert!((usd - 2.0).abs() < 1e-12);
        assert_eq!(per_million(None, 2, Some(1000.0)), None);
        assert_eq!(per_million(Some(3.6), 2, Some(0.0)), None);
    }
}
