//! Which price holds where several are stated.
//!
//! Of what people and feeds state (a host's own settings, the overlay, the feed) the latest day holds;
//! on the same day the feed before the overlay before the host's settings. The list holds only where
//! nobody states anything.

use super::{Date, Dated, Price, PriceBook, PriceKey, PriceOrigin};
use crate::host::{HostFacts, HostPrice};

/// The price of a machine: the feed's, unless list or overlay publish a later one.
#[must_use]
pub fn holding<'a>(base: &'a PriceBook, feed: &'a PriceBook, key: &PriceKey) -> Option<&'a Price> {
    let (base, fed) = (base.price(key), feed.price(key));
    match (base, fed) {
        (Some(base), Some(fed)) if base.dated == Dated::Published && base.date > fed.date => {
            Some(base)
        }
        (_, Some(fed)) => Some(fed),
        (base, None) => base,
    }
}

/// The price that holds for a host, with where it comes from.
#[must_use]
pub fn price_of_host(facts: &HostFacts, base: &PriceBook, feed: &PriceBook) -> Option<HostPrice> {
    let booked = holding(base, feed, &PriceKey::of_host(facts));
    let Some(own) = &facts.price else {
        return booked.map(stated);
    };
    let own_date = own.date.parse::<Date>().ok();
    let is_later = |booked: &&Price| own_date.is_none_or(|own| booked.date >= own);
    let wins = booked
        .filter(|b| b.origin != PriceOrigin::List)
        .filter(is_later);
    Some(wins.map_or_else(|| own.clone(), stated))
}

fn stated(price: &Price) -> HostPrice {
    HostPrice {
        usd_per_hour: price.usd_per_hour,
        source: format!("{} ({})", price.source, price.origin.name()),
        date: price.date.to_string(),
    }
}

impl PriceKey {
    /// What a host's price is for.
    #[must_use]
    pub fn of_host(facts: &HostFacts) -> Self {
        Self {
            cloud: facts.environment.cloud.clone(),
            region: facts.environment.region.clone(),
            market: facts.environment.market,
            instance: facts.instance_type.clone(),
        }
    }
}
