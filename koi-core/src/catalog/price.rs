//! What machines cost, by cloud, region and market: list prices compiled in, an overlay on top, and
//! flags on prices that are old or absurd.
//!
//! Not what a host states about itself: the agent's own price wins where there is one. This module
//! has no clock, so the day against which age is counted comes in. Spec §3; field.md 2.9.

mod date;
mod flag;
mod overlay;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

pub use date::{Date, NotADate};
pub use flag::{PriceFlag, PriceProblem};
pub use overlay::{Discount, OverlayPrice, PriceOverlay};

use crate::environment::Market;
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

/// Prices by what they are for.
#[derive(Debug, Clone, PartialEq, Default)]
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
                    };
                    self.add(name, key, price, problems);
                }
            }
        }
    }

    fn add(&mut self, file: &str, key: PriceKey, price: Price, problems: &mut Violations) {
        for part in [&key.cloud, &key.region, &key.instance] {
            if part.is_empty() || part.len() > MAX_NAME || part.contains(char::is_control) {
                problems.add(
                    file,
                    format!("a name has 1 to {MAX_NAME} printable characters: {part:.40?}"),
                );
                return;
            }
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
