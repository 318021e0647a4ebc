//! What machines cost, by cloud, region and market: list prices compiled in, an overlay on top, and
//! flags on prices that are old or absurd.
//!
//! Three layers: the list, an operator's overlay file, and the feed that the server keeps. What a host
//! states about itself competes with them by date (`holding`). This module has no clock, so the day
//! against which age is counted comes in. Spec §3; field.md 2.9.

mod csv;
mod date;
mod filter;
mod flag;
mod holding;
mod overlay;
mod update;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use csv::CsvOrigin;
pub use date::{Date, NotADate};
pub use filter::PriceFilter;
pub use flag::{Place, PriceFlag, PriceProblem};
pub use holding::{holding, price_of_host};
pub use overlay::{Discount, OverlayPrice, PriceOverlay};
pub use update::{MAX_UPDATE_PRICES, Merged, PriceUpdate, PricedRow};

use crate::environment::Market;
use crate::printable::is_hidden;
use crate::violation::{FieldViolation, Violations};

macro_rules! price_files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../configs/prices/", $name)))),+]
    };
}

const EMBEDDED: [(&str, &str); 6] = price_files![
    "aws.toml",
    "azure.toml",
    "gcp.toml",
    "lambda.toml",
    "nebius.toml",
    "runpod.toml",
];

/// Most prices that a book may hold.
pub const MAX_PRICES: usize = 200_000;
/// Largest price file.
const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;
/// Most characters of a name in a price row.
const MAX_NAME: usize = 128;
/// Cheapest machine that is believed: less than a hundredth of the cheapest that can be rented. A
/// price of nothing would make any plan on that machine the best one.
pub const MIN_USD_PER_HOUR: f64 = 0.001;
/// Dearest machine that is believed: far above any rack that can be rented, far below a slip of
/// units.
pub const MAX_USD_PER_HOUR: f64 = 10_000.0;

/// What a price is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PriceKey {
    /// Cloud.
    pub cloud: String,
    /// Region.
    pub region: String,
    /// Market.
    pub market: Market,
    /// The cloud's name for the machine.
    pub instance: String,
}

impl std::fmt::Display for PriceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let market = self.market.name();
        write!(
            f,
            "{}/{}/{market}/{}",
            self.cloud, self.region, self.instance
        )
    }
}

/// Whose day a price's date is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dated {
    /// The day the list was made.
    Published,
    /// The day it was read; the list may be older.
    Read,
}

/// Who put a price into the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceOrigin {
    /// The list compiled in.
    #[default]
    List,
    /// The operator's overlay file.
    Overlay,
    /// The price feed.
    Feed,
}

impl PriceOrigin {
    /// Name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Overlay => "overlay",
            Self::Feed => "feed",
        }
    }
}

/// One price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// USD per hour for the whole machine. May be absurd: [`PriceBook::flags`] says so.
    pub usd_per_hour: f64,
    /// Where it comes from.
    pub source: String,
    /// When it was so.
    pub date: Date,
    /// Whose day that is.
    pub dated: Dated,
    /// Who put it in.
    #[serde(default)]
    pub origin: PriceOrigin,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    cloud: String,
    source: String,
    date: Date,
    dated: Dated,
    #[serde(default)]
    on_demand: Regions,
    #[serde(default)]
    spot: Regions,
    #[serde(default)]
    reserved: Regions,
}

/// Region → machine → USD per hour.
type Regions = BTreeMap<String, BTreeMap<String, f64>>;

/// Prices by what they are for. Serialised as rows, for JSON has no maps with such keys.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<PricedRow>", into = "Vec<PricedRow>")]
pub struct PriceBook {
    prices: BTreeMap<PriceKey, Price>,
}

impl PriceBook {
    /// The list prices compiled in.
    ///
    /// # Panics
    /// Never in a released build: a test loads the same text.
    #[must_use]
    pub fn embedded() -> &'static Self {
        static BOOK: LazyLock<PriceBook> = LazyLock::new(|| {
            PriceBook::load(EMBEDDED).expect("invariant: a test loads the embedded prices")
        });
        &BOOK
    }

    /// The texts compiled in, by file name.
    pub fn embedded_text() -> impl Iterator<Item = (&'static str, &'static str)> {
        EMBEDDED.into_iter()
    }

    /// Reads price files (name, text), each of one cloud.
    ///
    /// # Errors
    /// Every problem of every file: unreadable text, empty or overlong names, two files that price
    /// the same thing, more than [`MAX_PRICES`] prices. Absurd numbers are no error: they are kept
    /// and flagged, so that one bad row of a feed does not hide the others.
    pub fn load<'a>(
        files: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        let mut book = Self::default();
        for (name, text) in files {
            if text.len() > MAX_FILE_BYTES {
                problems.add(name, format!("is larger than {MAX_FILE_BYTES} bytes"));
                continue;
            }
            match toml::from_str::<PriceFile>(text) {
                Ok(file) => book.add_file(name, file, &mut problems),
                Err(error) => problems.add(name, error.to_string()),
            }
        }
        problems.finish(book)
    }

    fn add_file(&mut self, name: &str, file: PriceFile, problems: &mut Violations) {
        let markets = [
            (Market::OnDemand, file.on_demand),
            (Market::Spot, file.spot),
            (Market::Reserved, file.reserved),
        ];
        for (market, regions) in markets {
            for (region, machines) in regions {
                for (instance, usd_per_hour) in machines {
                    let key = PriceKey {
                        cloud: file.cloud.clone(),
                        region: region.clone(),
                        market,
                        instance,
                    };
                    let price = Price {
                        usd_per_hour,
                        source: file.source.clone(),
                        date: file.date,
                        dated: file.dated,
                        origin: PriceOrigin::List,
                    };
                    self.add(name, key, price, problems);
                }
            }
        }
    }

    fn add(&mut self, file: &str, key: PriceKey, price: Price, problems: &mut Violations) {
        if let Some(bad) = unprintable(&key) {
            problems.add(file, bad);
            return;
        }
        if self.prices.len() >= MAX_PRICES {
            problems.add(file, format!("more than {MAX_PRICES} prices"));
            return;
        }
        let shown = key.to_string();
        if self.prices.insert(key, price).is_some() {
            problems.add(format!("{file}.{shown}"), "is priced twice");
        }
    }

    /// Puts a price in, whatever was there.
    pub fn put(&mut self, key: PriceKey, price: Price) -> Option<Price> {
        self.prices.insert(key, price)
    }

    /// Takes a price out.
    pub fn remove(&mut self, key: &PriceKey) -> Option<Price> {
        self.prices.remove(key)
    }

    /// Prices that come after a key, in order.
    pub fn after<'a>(
        &'a self,
        key: Option<&'a PriceKey>,
    ) -> impl Iterator<Item = (&'a PriceKey, &'a Price)> {
        let from = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.prices.range::<PriceKey, _>((from, Bound::Unbounded))
    }

    /// The price of a machine.
    #[must_use]
    pub fn price(&self, key: &PriceKey) -> Option<&Price> {
        self.prices.get(key)
    }

    /// All prices in order of cloud, region, market and machine.
    pub fn iter(&self) -> impl Iterator<Item = (&PriceKey, &Price)> {
        self.prices.iter()
    }

    /// How many prices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prices.len()
    }

    /// True when there is no price.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }
}

/// What is wrong with the names of a key.
fn unprintable(key: &PriceKey) -> Option<String> {
    let is_bad =
        |part: &&String| part.is_empty() || part.len() > MAX_NAME || part.contains(is_hidden);
    let bad = [&key.cloud, &key.region, &key.instance]
        .into_iter()
        .find(is_bad)?;
    Some(format!(
        "a name has 1 to {MAX_NAME} printable characters: {bad:.40?}"
    ))
}

impl From<Vec<PricedRow>> for PriceBook {
    fn from(rows: Vec<PricedRow>) -> Self {
        Self {
            prices: rows.into_iter().map(|r| (r.key, r.price)).collect(),
        }
    }
}

impl From<PriceBook> for Vec<PricedRow> {
    fn from(book: PriceBook) -> Self {
        book.prices
            .into_iter()
            .map(|(key, price)| PricedRow { key, price })
            .collect()
    }
}
