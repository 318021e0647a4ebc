//! A price feed's update and removals from the feed: one write each.

use super::commands::audit;
use super::{Decision, Refusal, Reply, ServerMachine};
use crate::catalog::price::{Merged, PriceFilter, PriceUpdate};
use crate::store::{Change, RequestRecord, TxKind};
use crate::time::UtcMicros;

impl ServerMachine {
    pub(super) fn update_prices(
        &self,
        now: UtcMicros,
        update: &PriceUpdate,
        (request, remember): (RequestRecord, bool),
    ) -> Result<Decision, Refusal> {
        let merged = self.state.prices.merged(update).map_err(Refusal::Invalid)?;
        let counts = merged.counts();
        let reply = Reply::Object(counts.clone());
        let changes_nothing = merged.changed.is_empty();
        if changes_nothing && !remember {
            return Ok(Decision { tx: None, reply });
        }
        let audit = audit(&request, "update_prices", &update.source, &counts);
        let mut changes = vec![answered(request, counts)];
        if !changes_nothing {
            changes.extend([Change::Prices(merged.changed), audit]);
        }
        let tx = self.tx(now, TxKind::PricesUpdated, changes);
        Ok(Decision {
            tx: Some(tx),
            reply,
        })
    }

    /// Takes prices out of the feed. What list, overlay and hosts state holds again from the next
    /// tick on.
    pub(super) fn remove_prices(
        &self,
        now: UtcMicros,
        filter: PriceFilter,
        reason: &str,
        request: RequestRecord,
    ) -> Decision {
        let n_removed = self.state.prices.n_matching(&filter);
        let why = format!("{n_removed} removed: {reason}");
        let audit = audit(&request, "remove_prices", &filter.to_string(), &why);
        let object = n_removed.to_string();
        let changes = vec![
            answered(request, object.clone()),
            Change::PricesRemoved(filter),
            audit,
        ];
        Decision {
            tx: Some(self.tx(now, TxKind::PricesRemoved, changes)),
            reply: Reply::Object(object),
        }
    }
}

/// The answer, for who asks again under the key.
fn answered(request: RequestRecord, object: String) -> Change {
    Change::Request(Box::new(RequestRecord { object, ..request }))
}

impl Merged {
    /// The counts in words; [`Merged::from_counts`] reads them back.
    #[must_use]
    pub fn counts(&self) -> String {
        format!(
            "{} added, {} replaced, {} unchanged, {} older",
            self.n_added, self.n_replaced, self.n_unchanged, self.n_older
        )
    }

    /// The counts of a remembered answer, without rows.
    #[must_use]
    pub fn from_counts(text: &str) -> Option<Self> {
        let mut counts = text
            .split(", ")
            .map(|part| part.split(' ').next()?.parse().ok());
        let mut next = || counts.next().flatten();
        Some(Self {
            changed: Vec::new(),
            n_added: next()?,
            n_replaced: next()?,
            n_unchanged: next()?,
            n_older: next()?,
        })
    }
}
