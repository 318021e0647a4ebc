//! A price feed's update: one write, or none when nothing changes.

use super::commands::audit;
use super::{Decision, Refusal, Reply, ServerMachine};
use crate::catalog::price::{Merged, PriceUpdate};
use crate::store::{Change, RequestRecord, TxKind};
use crate::time::UtcMicros;

impl ServerMachine {
    pub(super) fn update_prices(
        &self,
        now: UtcMicros,
        update: &PriceUpdate,
        request: RequestRecord,
    ) -> Result<Decision, Refusal> {
        let merged = self.state.prices.merged(update).map_err(Refusal::Invalid)?;
        let counts = merged.counts();
        let reply = Reply::Object(counts.clone());
        if merged.changed.is_empty() {
            return Ok(Decision { tx: None, reply });
        }
        let audit = audit(&request, "update_prices", &update.source, &counts);
        let request = RequestRecord {
            object: counts,
            ..request
        };
        let changes = vec![
            Change::Prices(merged.changed),
            Change::Request(Box::new(request)),
            audit,
        ];
        let tx = self.tx(now, TxKind::PricesUpdated, changes);
        Ok(Decision {
            tx: Some(tx),
            reply,
        })
    }
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
