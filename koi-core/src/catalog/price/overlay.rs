//! An operator's own prices over the list: rows that replace, and discounts that multiply.
//!
//! The same form serves a price feed: a feed is an overlay that is merged again and again.

mod read;

use std::collections::BTreeSet;

use super::{
    Date, Dated, MAX_FILE_BYTES, MAX_PRICES, MAX_USD_PER_HOUR, MIN_USD_PER_HOUR, Price, PriceBook,
    PriceKey, PriceOrigin, unprintable,
};
use crate::environment::Market;
use crate::printable::check_shown;
use crate::violation::{FieldViolation, Violations};

/// Most discounts of one overlay.
const MAX_DISCOUNTS: usize = 1000;
/// Factors that a discount may have.
const MIN_FACTOR: f64 = 0.01;
const MAX_FACTOR: f64 = 10.0;

/// One price that replaces the list's.
#[derive(Debug, Clone, PartialEq)]
pub struct OverlayPrice {
    /// Cloud.
    pub cloud: String,
    /// Region.
    pub region: String,
    /// Market.
    pub market: Market,
    /// The cloud's name for the machine.
    pub instance: String,
    /// USD per hour for the whole machine.
    pub usd_per_hour: f64,
}

impl OverlayPrice {
    /// What it is for.
    #[must_use]
    pub fn key(&self) -> PriceKey {
        PriceKey {
            cloud: self.cloud.clone(),
            region: self.region.clone(),
            market: self.market,
            instance: self.instance.clone(),
        }
    }
}

/// A discount on everything that matches; what is left out matches all.
#[derive(Debug, Clone, PartialEq)]
pub struct Discount {
    /// Cloud.
    pub cloud: String,
    /// Region.
    pub region: Option<String>,
    /// Market.
    pub market: Option<Market>,
    /// The cloud's name for the machine.
    pub instance: Option<String>,
    /// What the price is multiplied by.
    pub factor: f64,
}

impl Discount {
    fn matches(&self, key: &PriceKey) -> bool {
        self.cloud == key.cloud
            && self.region.as_ref().is_none_or(|r| *r == key.region)
            && self.market.is_none_or(|m| m == key.market)
            && self.instance.as_ref().is_none_or(|i| *i == key.instance)
    }
}

/// Prices and discounts of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceOverlay {
    /// Where they come from, e.g. a contract.
    pub source: String,
    /// When they were so.
    pub date: Date,
    /// Discounts; they apply to the list, before the prices.
    pub discounts: Vec<Discount>,
    /// Prices.
    pub prices: Vec<OverlayPrice>,
}

impl PriceOverlay {
    /// Reads an overlay file.
    ///
    /// # Errors
    /// The parser's message, or every key that is wrong and every row that is out of bounds: factors
    /// outside [0.01, 10], too many rows, names that are not printable, a machine priced twice, prices
    /// outside [[`MIN_USD_PER_HOUR`], [`MAX_USD_PER_HOUR`]]. Here, unlike in a list, a bad price is refused: it is the
    /// operator's own.
    pub fn parse(text: &str) -> Result<Self, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        if text.len() > MAX_FILE_BYTES {
            problems.add("", format!("is larger than {MAX_FILE_BYTES} bytes"));
            return Err(problems.into_vec());
        }
        read::parse(text)
    }

    /// The overlay itself when all of its rows are within bounds: the door for a price feed.
    ///
    /// # Errors
    /// As [`Self::parse`], for rows that did not come from a file.
    pub fn checked(self) -> Result<Self, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        self.check(&mut problems);
        problems.finish(self)
    }

    fn check(&self, problems: &mut Violations) {
        check_source(&self.source, problems);
        if self.prices.len() > MAX_PRICES || self.discounts.len() > MAX_DISCOUNTS {
            let limits = format!("at most {MAX_PRICES} prices and {MAX_DISCOUNTS} discounts");
            problems.add("", limits);
            return;
        }
        check_discounts(self.discounts.iter().enumerate(), problems);
        check_prices(self.prices.iter().enumerate(), problems);
    }
}

fn check_source(source: &str, problems: &mut Violations) {
    if source.is_empty() || source.len() > 400 {
        problems.add(
            "source",
            "says in 1 to 400 bytes where the prices come from",
        );
    } else if let Err(why) = check_shown(source) {
        problems.add("source", why);
    }
}

fn check_discounts<'a>(
    rows: impl Iterator<Item = (usize, &'a Discount)>,
    problems: &mut Violations,
) {
    for (i, discount) in rows {
        if !(MIN_FACTOR..=MAX_FACTOR).contains(&discount.factor) {
            let message = format!(
                "must be {MIN_FACTOR} to {MAX_FACTOR}, what the list's price is multiplied by"
            );
            problems.add(format!("discount[{i}].factor"), message);
        }
    }
}

fn check_prices<'a>(
    rows: impl Iterator<Item = (usize, &'a OverlayPrice)>,
    problems: &mut Violations,
) {
    let mut seen = BTreeSet::new();
    for (i, price) in rows {
        let key = price.key();
        if let Some(bad) = unprintable(&key) {
            problems.add(format!("price[{i}]"), bad);
        }
        let usd = price.usd_per_hour;
        if !(MIN_USD_PER_HOUR..=MAX_USD_PER_HOUR).contains(&usd) {
            let message = format!(
                "must be {MIN_USD_PER_HOUR} to {MAX_USD_PER_HOUR} USD/h; where there is no price, leave the row out"
            );
            problems.add(format!("price[{i}].usd_per_hour"), message);
        }
        if !seen.insert(key) {
            problems.add(format!("price[{i}]"), "is priced twice");
        }
    }
}

impl PriceBook {
    /// The book with an overlay: its discounts multiply what is there, then its prices replace it.
    /// A discounted price keeps its date, for a discount on an old price is old too. A price from
    /// the overlay never replaces one that is newer.
    #[must_use]
    pub fn with_overlay(mut self, overlay: &PriceOverlay) -> Self {
        for discount in &overlay.discounts {
            for (key, price) in &mut self.prices {
                if discount.matches(key) {
                    price.usd_per_hour *= discount.factor;
                    price.origin = PriceOrigin::Overlay;
                    price.source = format!(
                        "{}, times {} ({})",
                        price.source, discount.factor, overlay.source
                    );
                }
            }
        }
        for row in &overlay.prices {
            let key = row.key();
            let is_older = self
                .prices
                .get(&key)
                .is_some_and(|p| p.dated == Dated::Published && p.date > overlay.date);
            if !is_older && (self.prices.len() < MAX_PRICES || self.prices.contains_key(&key)) {
                self.prices.insert(
                    key,
                    Price {
                        usd_per_hour: row.usd_per_hour,
                        source: overlay.source.clone(),
                        date: overlay.date,
                        dated: Dated::Published,
                        origin: PriceOrigin::Overlay,
                    },
                );
            }
        }
        self
    }
}
