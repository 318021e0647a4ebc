//! Prices of a feed between wire and domain.

use koi_core::catalog::price::{Date, MAX_UPDATE_PRICES, OverlayPrice, PriceKey, PriceOverlay};
use koi_core::environment::Market;
use koi_core::violation::{FieldViolation, Violations};

use crate::v1;

impl From<(&PriceKey, Option<f64>)> for v1::PriceRow {
    fn from((key, usd_per_hour): (&PriceKey, Option<f64>)) -> Self {
        Self {
            cloud: key.cloud.clone(),
            region: key.region.clone(),
            market: key.market.name().to_owned(),
            instance: key.instance.clone(),
            usd_per_hour,
        }
    }
}

/// An update's prices as an overlay, not yet checked.
///
/// # Errors
/// What has no form in the domain: a day that is none, unknown markets, prices left out, far too many
/// rows; all together, by field.
pub fn overlay_from_wire(
    request: v1::UpdatePricesRequest,
) -> Result<PriceOverlay, Vec<FieldViolation>> {
    let mut problems = Violations::default();
    let date = request.date.parse::<Date>();
    if let Err(error) = &date {
        problems.add("date", error.to_string());
    }
    if request.prices.len() > MAX_UPDATE_PRICES {
        let message = format!("at most {MAX_UPDATE_PRICES} prices in one update; send several");
        problems.add("price", message);
        return Err(problems.into_vec());
    }
    let mut prices = Vec::with_capacity(request.prices.len());
    for (i, row) in request.prices.into_iter().enumerate() {
        let market = Market::from_name(&row.market);
        if market.is_none() {
            let message = "must be one of reserved, on_demand, spot";
            problems.add(format!("price[{i}].market"), message);
        }
        if row.usd_per_hour.is_none() {
            problems.add(format!("price[{i}].usd_per_hour"), "is missing");
        }
        prices.push(OverlayPrice {
            cloud: row.cloud,
            region: row.region,
            // A wrong market never leaves this function: the problem above does.
            market: market.unwrap_or(Market::OnDemand),
            instance: row.instance,
            usd_per_hour: row.usd_per_hour.unwrap_or(1.0),
        });
    }
    let epoch = Date::from_days(0);
    let overlay = PriceOverlay {
        source: request.source,
        date: date.or(epoch).map_err(|e| {
            vec![FieldViolation {
                field: "date".to_owned(),
                message: e.to_string(),
            }]
        })?,
        discounts: Vec::new(),
        prices,
    };
    if problems.is_empty() {
        return Ok(overlay);
    }
    // What the rows themselves have wrong is said in the same answer.
    if let Err(found) = overlay.checked() {
        problems.extend("", found);
    }
    Err(problems.into_vec())
}
