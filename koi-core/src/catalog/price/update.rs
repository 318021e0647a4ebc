//! A price feed: what an update may bring, what is doubtful about it, and what it changes in the feed
//! that is kept.
//!
//! The same rules as an overlay file's, and stricter where a feed differs: no discounts (merged again
//! and again they would compound), and no price dated after tomorrow, for it would keep out every
//! true price until that day.

use serde::{Deserialize, Serialize};

use super::{
    Date, Dated, MAX_PRICES, Price, PriceBook, PriceFlag, PriceKey, PriceOrigin, PriceOverlay,
};
use crate::catalog::Catalog;
use crate::violation::{FieldViolation, Violations};

/// Most prices of one update: they are stored together or not at all, in one transaction.
pub const MAX_UPDATE_PRICES: usize = 10_000;
/// Clocks of feeds may be ahead by a time zone.
const MAX_DAYS_AHEAD: i64 = 1;

/// A price with what it is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PricedRow {
    /// What it is for.
    pub key: PriceKey,
    /// The price.
    pub price: Price,
}

/// A checked update.
#[derive(Debug, Clone, PartialEq)]
pub struct PriceUpdate {
    /// Where the prices come from.
    pub source: String,
    /// Its prices, each machine once.
    pub rows: Vec<PricedRow>,
    /// What is doubtful about them: stale, far from the list, of unknown machines. They are
    /// accepted all the same.
    pub flags: Vec<PriceFlag>,
}

/// What an update does to a feed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Merged {
    /// Rows to be written.
    pub changed: Vec<PricedRow>,
    /// How many of them are new.
    pub n_added: u32,
    /// How many replace another price.
    pub n_replaced: u32,
    /// Prices that are there already.
    pub n_unchanged: u32,
    /// Prices that are older than what is there, and left out.
    pub n_older: u32,
}

impl PriceOverlay {
    /// The overlay as an update of a feed.
    ///
    /// # Errors
    /// Those of [`PriceOverlay::checked`], discounts, more than [`MAX_UPDATE_PRICES`] prices, and a
    /// date later than tomorrow; all together.
    pub fn into_update(
        self,
        catalog: &Catalog,
        today: Date,
        max_age_days: i64,
    ) -> Result<PriceUpdate, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        if self.prices.len() > MAX_UPDATE_PRICES {
            let message = format!("at most {MAX_UPDATE_PRICES} prices in one update; send several");
            problems.add("price", message);
            return Err(problems.into_vec());
        }
        if self.prices.is_empty() {
            problems.add("price", "an update brings at least one price");
        }
        if !self.discounts.is_empty() {
            problems.add(
                "discount",
                "a feed carries prices only; discounts belong into the server's price_overlay file",
            );
        }
        if self.date.days() > today.days() + MAX_DAYS_AHEAD {
            let message = format!("{} is in the future; today is {today}", self.date);
            problems.add("date", message);
        }
        match self.checked() {
            Ok(overlay) => {
                problems.finish(())?;
                Ok(overlay.update(catalog, today, max_age_days))
            }
            Err(found) => {
                problems.extend("", found);
                Err(problems.into_vec())
            }
        }
    }

    fn update(self, catalog: &Catalog, today: Date, max_age_days: i64) -> PriceUpdate {
        let row = |r: &super::OverlayPrice| PricedRow {
            key: r.key(),
            price: Price {
                usd_per_hour: r.usd_per_hour,
                source: self.source.clone(),
                date: self.date,
                dated: Dated::Published,
                origin: PriceOrigin::Feed,
            },
        };
        let rows: Vec<PricedRow> = self.prices.iter().map(row).collect();
        let flags = PriceBook::from(rows.clone()).flags(catalog, today, max_age_days);
        PriceUpdate {
            source: self.source,
            rows,
            flags,
        }
    }
}

impl PriceBook {
    /// What an update would change. A price never replaces one of a later day.
    ///
    /// # Errors
    /// When the feed would hold more than [`MAX_PRICES`] prices.
    pub fn merged(&self, update: &PriceUpdate) -> Result<Merged, Vec<FieldViolation>> {
        let mut merged = Merged::default();
        for row in &update.rows {
            match self.price(&row.key) {
                None => merged.n_added += 1,
                Some(kept) if *kept == row.price => {
                    merged.n_unchanged += 1;
                    continue;
                }
                Some(kept) if kept.date > row.price.date => {
                    merged.n_older += 1;
                    continue;
                }
                Some(_) => merged.n_replaced += 1,
            }
            merged.changed.push(row.clone());
        }
        let mut problems = Violations::default();
        if self.len() + merged.n_added as usize > MAX_PRICES {
            let (held, added) = (self.len(), merged.n_added);
            let message = format!(
                "the feed holds {held} prices and may hold {MAX_PRICES}; this update adds {added}: make room with \
                 `koi prices remove` (--cloud, --region, --market, --instance), `koi prices list --origin feed` shows them"
            );
            problems.add("price", message);
        }
        problems.finish(merged)
    }
}
