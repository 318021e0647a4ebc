//! Prices that should not be believed: old ones and absurd ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::{Date, Price, PriceBook, PriceKey};
use crate::catalog::Catalog;

/// How far from the list price of the same GPU type a price may be.
const ABSURD_RATIO: f64 = 10.0;

/// What is wrong with a price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PriceProblem {
    /// It is not a positive finite number.
    NotAPrice,
    /// It is older than allowed.
    Stale {
        /// Its age.
        age_days: i64,
    },
    /// It is dated after the day against which age is counted.
    FromTheFuture {
        /// By how much.
        days: i64,
    },
    /// Per GPU it is more than ten times the list price of the GPU type.
    AboveList {
        /// Price over list price.
        ratio: f64,
    },
    /// Per GPU it is less than a tenth of the list price of the GPU type.
    BelowList {
        /// Price over list price.
        ratio: f64,
    },
    /// The catalog does not know the machine, so nothing can be compared.
    UnknownInstance,
    /// No listed price and no host is of its cloud and region, so it holds for nothing.
    UnknownPlace,
}

impl PriceProblem {
    /// Name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAPrice => "not_a_price",
            Self::Stale { .. } => "stale",
            Self::FromTheFuture { .. } => "from_the_future",
            Self::AboveList { .. } => "above_list",
            Self::BelowList { .. } => "below_list",
            Self::UnknownInstance => "unknown_instance",
            Self::UnknownPlace => "unknown_place",
        }
    }

    /// Whether the row is wrong in itself, so that it must not count as a price. What is merely old
    /// or far from the list may be true, and so may a place that nobody else has named.
    #[must_use]
    pub const fn is_error(self) -> bool {
        match self {
            Self::NotAPrice | Self::UnknownInstance => true,
            // Somewhere it is tomorrow already.
            Self::FromTheFuture { days } => days > 1,
            Self::Stale { .. }
            | Self::AboveList { .. }
            | Self::BelowList { .. }
            | Self::UnknownPlace => false,
        }
    }
}

impl fmt::Display for PriceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPrice => write!(f, "is not a price"),
            Self::Stale { age_days } => write!(f, "is {age_days} days old"),
            Self::FromTheFuture { days } => write!(f, "is dated {days} days ahead"),
            Self::AboveList { ratio } => write!(f, "is {ratio:.1} times the list price"),
            Self::BelowList { ratio } => write!(f, "is {ratio:.3} of the list price"),
            Self::UnknownInstance => write!(f, "is of a machine that is not in the catalog"),
            Self::UnknownPlace => write!(
                f,
                "is of a cloud and region that no listed price and no host has: it holds for nothing"
            ),
        }
    }
}

/// A price and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PriceFlag {
    /// Which.
    pub key: PriceKey,
    /// The price in USD per hour; absent when it is not finite.
    pub usd_per_hour: Option<f64>,
    /// What.
    pub problem: PriceProblem,
}

impl PriceBook {
    /// Every price that is stale on a day, absurd, or of a machine that the catalog does not know.
    ///
    /// The list price of a GPU type is the median, over the catalog's machines with it, of the
    /// on-demand list price per GPU.
    #[must_use]
    pub fn flags(&self, catalog: &Catalog, as_of: Date, max_age_days: i64) -> Vec<PriceFlag> {
        let list = list_prices(catalog);
        let mut flags = Vec::new();
        for (key, price) in self.iter() {
            let mut flag = |problem| {
                flags.push(PriceFlag {
                    key: key.clone(),
                    usd_per_hour: Some(price.usd_per_hour).filter(|p| p.is_finite()),
                    problem,
                });
            };
            if let Some(problem) = absurdity(catalog, &list, key, price) {
                flag(problem);
            }
            let age_days = as_of.days() - price.date.days();
            if age_days > max_age_days {
                flag(PriceProblem::Stale { age_days });
            } else if age_days < 0 {
                flag(PriceProblem::FromTheFuture { days: -age_days });
            }
        }
        flags
    }
}

/// Cloud and region of a price or a host.
pub type Place = (String, String);

impl PriceBook {
    /// Every cloud and region in the book.
    #[must_use]
    pub fn places(&self) -> BTreeSet<Place> {
        let place = |key: &PriceKey| (key.cloud.clone(), key.region.clone());
        self.iter().map(|(key, _)| place(key)).collect()
    }

    /// Prices of places that are not among the known ones.
    #[must_use]
    pub fn in_unknown_places(&self, known: &BTreeSet<Place>) -> Vec<PriceFlag> {
        let is_strange = |key: &PriceKey| !known.contains(&(key.cloud.clone(), key.region.clone()));
        let strange = self.iter().filter(|(key, _)| is_strange(key));
        strange
            .map(|(key, price)| PriceFlag {
                key: key.clone(),
                usd_per_hour: Some(price.usd_per_hour).filter(|p| p.is_finite()),
                problem: PriceProblem::UnknownPlace,
            })
            .collect()
    }
}

/// On-demand list price of one GPU for an hour, by GPU type.
fn list_prices(catalog: &Catalog) -> BTreeMap<&str, f64> {
    let mut by_type: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for instance in catalog.instance_types() {
        if let Some(usd) = instance.usd_per_gpu_hour() {
            by_type.entry(&instance.gpu_type).or_default().push(usd);
        }
    }
    by_type
        .into_iter()
        .filter_map(|(gpu, mut prices)| {
            prices.sort_by(f64::total_cmp);
            Some((gpu, *prices.get(prices.len() / 2)?))
        })
        .collect()
}

fn absurdity(
    catalog: &Catalog,
    list: &BTreeMap<&str, f64>,
    key: &PriceKey,
    price: &Price,
) -> Option<PriceProblem> {
    if !(price.usd_per_hour.is_finite() && price.usd_per_hour > 0.0) {
        return Some(PriceProblem::NotAPrice);
    }
    let Some(instance) = catalog.instance_type(&key.instance) else {
        return Some(PriceProblem::UnknownInstance);
    };
    let list = list.get(instance.gpu_type.as_str())?;
    let ratio = price.usd_per_hour / f64::from(instance.gpus.max(1)) / list;
    if ratio > ABSURD_RATIO {
        Some(PriceProblem::AboveList { ratio })
    } else if ratio < 1.0 / ABSURD_RATIO {
        Some(PriceProblem::BelowList { ratio })
    } else {
        None
    }
}
