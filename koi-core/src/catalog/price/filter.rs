//! Which prices are meant: by parts of their key. Used to list them and to take them out of the feed.

use serde::{Deserialize, Serialize};

use super::{PriceBook, PriceKey};
use crate::environment::Market;

/// Parts of a price's key; an absent part fits all, so that the default means every price.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PriceFilter {
    /// Cloud.
    pub cloud: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// Market.
    pub market: Option<Market>,
    /// The cloud's name for the machine.
    pub instance: Option<String>,
}

impl PriceFilter {
    /// True when a price of this key is meant.
    #[must_use]
    pub fn has(&self, key: &PriceKey) -> bool {
        let fits = |wanted: &Option<String>, is: &String| wanted.as_ref().is_none_or(|w| w == is);
        fits(&self.cloud, &key.cloud)
            && fits(&self.region, &key.region)
            && fits(&self.instance, &key.instance)
            && self.market.is_none_or(|m| m == key.market)
    }

    /// True when every price is meant.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for PriceFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "*".to_owned());
        let market = self.market.map_or("*", Market::name);
        let (cloud, region) = (part(&self.cloud), part(&self.region));
        write!(f, "{cloud}/{region}/{market}/{}", part(&self.instance))
    }
}

impl PriceBook {
    /// How many prices are meant.
    #[must_use]
    pub fn n_matching(&self, filter: &PriceFilter) -> usize {
        self.prices.keys().filter(|key| filter.has(key)).count()
    }

    /// Takes out every price that is meant.
    pub fn remove_matching(&mut self, filter: &PriceFilter) {
        self.prices.retain(|key, _| !filter.has(key));
    }
}
