//! From the text of an overlay file to its rows: every problem at once, by the place of its row.

use super::{Date, Discount, MAX_DISCOUNTS, MAX_PRICES, OverlayPrice, PriceOverlay};
use crate::document::of_toml;
use crate::environment::Market;
use crate::job::draft::reader::Reader;
use crate::violation::{FieldViolation, Violations};

const DATE: &str = "a day such as 2026-11-01";

/// The overlay that a text spells out, within bounds.
pub(super) fn parse(text: &str) -> Result<PriceOverlay, Vec<FieldViolation>> {
    let document = of_toml(text)?;
    let mut bad = Violations::default();
    let mut top = Reader::new(Some(&document), "", &mut bad);
    let source = top.text("source", &mut bad);
    let source = top.required("source", source, "where the prices come from", &mut bad);
    let date = top.parsed::<Date>("date", DATE, &mut bad);
    let date = top.required("date", date, DATE, &mut bad);
    let discounts = top.sections_up_to(MAX_DISCOUNTS, "discount", &mut bad);
    let discounts = rows(discounts, discount, &mut bad);
    let prices = top.sections_up_to(MAX_PRICES, "price", &mut bad);
    let prices = rows(prices, price, &mut bad);
    top.finish(&mut bad);
    if let Some(source) = &source {
        super::check_source(source, &mut bad);
    }
    // Rows that could not be read keep their place in the count.
    super::check_discounts(discounts.iter().map(|(i, d)| (*i, d)), &mut bad);
    super::check_prices(prices.iter().map(|(i, p)| (*i, p)), &mut bad);
    match (source, date) {
        (Some(source), Some(date)) if bad.is_empty() => Ok(PriceOverlay {
            source,
            date,
            discounts: discounts.into_iter().map(|(_, row)| row).collect(),
            prices: prices.into_iter().map(|(_, row)| row).collect(),
        }),
        _ => Err(bad.into_vec()),
    }
}

fn rows<T>(
    readers: Vec<Reader<'_>>,
    read: fn(Reader<'_>, &mut Violations) -> Option<T>,
    bad: &mut Violations,
) -> Vec<(usize, T)> {
    let rows = readers.into_iter().enumerate();
    rows.filter_map(|(i, r)| Some((i, read(r, bad)?))).collect()
}

fn discount(mut r: Reader<'_>, bad: &mut Violations) -> Option<Discount> {
    let cloud = text(&mut r, "cloud", "the cloud", bad);
    let region = r.text("region", bad);
    let market = market(&mut r, bad);
    let instance = r.text("instance", bad);
    let factor = r.number("factor", bad);
    let factor = r.required("factor", factor, "above 0, at most 10", bad);
    r.finish(bad);
    Some(Discount {
        cloud: cloud?,
        region,
        market,
        instance,
        factor: factor?,
    })
}

fn price(mut r: Reader<'_>, bad: &mut Violations) -> Option<OverlayPrice> {
    let cloud = text(&mut r, "cloud", "the cloud", bad);
    let region = text(&mut r, "region", "the region", bad);
    let market = market(&mut r, bad);
    let market = r.required("market", market, "reserved, on_demand or spot", bad);
    let instance = text(&mut r, "instance", "the cloud's name for the machine", bad);
    let usd = r.number("usd_per_hour", bad);
    let usd_per_hour = r.required("usd_per_hour", usd, "USD of the whole machine", bad);
    r.finish(bad);
    Some(OverlayPrice {
        cloud: cloud?,
        region: region?,
        market: market?,
        instance: instance?,
        usd_per_hour: usd_per_hour?,
    })
}

fn text(r: &mut Reader<'_>, key: &'static str, what: &str, bad: &mut Violations) -> Option<String> {
    let text = r.text(key, bad);
    r.required(key, text, what, bad)
}

fn market(r: &mut Reader<'_>, bad: &mut Violations) -> Option<Market> {
    let names = [Market::Reserved, Market::OnDemand, Market::Spot].map(|m| (m.name(), m));
    r.choice("market", &names, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_and_bounds_are_told_together_and_rows_keep_their_place() {
        let text = "sorce = \"x\"\ndate = \"soon\"\n\
                    [[price]]\ncloud = \"a\"\nmarket = \"spott\"\ninstance = 5\nusd_per_hour = 1.0\n\
                    [[price]]\ncloud = \"a\"\nregion = \"r\"\nmarket = \"spot\"\ninstance = \"i\"\nusd_per_hour = -1.0\n\
                    [[discount]]\nfactor = 99\n[[discount]]\ncloud = \"a\"\nfactor = 99\n";
        let found = parse(text).unwrap_err();
        let fields: Vec<&str> = found.iter().map(|v| v.field.as_str()).collect();
        let want = [
            "source",
            "date",
            "discount[0].cloud",
            "price[0].region",
            "price[0].market",
            "price[0].instance",
            "sorce",
            "discount[1].factor",
            "price[1].usd_per_hour",
        ];
        assert_eq!(fields, want, "{found:?}");
        assert!(found[6].message.contains("did you mean source?"));
    }
}
