//! What a tick changes of the book: S3's fold of one tick's rows, and the changes that a store writes.
//!
//! Spec §8 and §9: S2 writes rows, S3 alone moves the sums, once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::book::{ContrastBook, ContrastRow, DeploymentRecord, EdgeSums, SumKey};
use super::deployment::{DeploymentId, Subject};
use super::life::Life;
use crate::ids::TickId;
use crate::validation::evidence::EvidenceRow;

/// A deployment that is new or has a further row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentChange {
    /// Which.
    pub id: DeploymentId,
    /// What it is; of a new one alone.
    pub subject: Option<Box<Subject>>,
    /// How it did so far.
    pub life: Life,
    /// All its contrasts, where one of them is new or was revised.
    pub contrasts: Option<Vec<ContrastRow>>,
}

/// Sums as they are after a tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumChange {
    /// Which.
    pub key: SumKey,
    /// What they are.
    pub sums: EdgeSums,
}

/// What a tick changed. Every record is whole, so that writing it twice changes nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContrastUpdate {
    /// Deployments with a further row, in the order of ids.
    pub deployments: Vec<DeploymentChange>,
    /// Deployments that left the book, in the order in which they left.
    pub forgotten: Vec<DeploymentId>,
    /// Sums that moved, in the order of keys.
    pub sums: Vec<SumChange>,
}

impl ContrastUpdate {
    /// True when nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deployments.is_empty() && self.forgotten.is_empty() && self.sums.is_empty()
    }
}

/// S3's part: the book after one more tick's rows, and what is to be written.
#[must_use]
pub fn fold_tick(
    book: &ContrastBook,
    tick: TickId,
    rows: &[EvidenceRow],
) -> (ContrastBook, ContrastUpdate) {
    fold_ticks(book, (tick, tick), rows)
}

/// The same over several ticks, both ends included, as if each had been folded on its own: what is to
/// be written where the S3 of some failed. Rows are in the order of ticks.
#[must_use]
pub fn fold_ticks(
    book: &ContrastBook,
    (from, through): (TickId, TickId),
    rows: &[EvidenceRow],
) -> (ContrastBook, ContrastUpdate) {
    let (mut after, mut forgotten) = (book.clone(), Vec::new());
    for tick in from.0..=through.0 {
        let of_tick = if from == through {
            rows
        } else {
            let first = rows.partition_point(|r| r.tick.0 < tick);
            let last = rows.partition_point(|r| r.tick.0 <= tick);
            rows.get(first..last).unwrap_or_default()
        };
        for row in of_tick {
            after.observe(row);
        }
        for row in of_tick {
            after.apply(row);
        }
        forgotten.extend(after.forget(TickId(tick)));
    }
    let update = between(book, &after, forgotten);
    (after, update)
}

fn between(
    before: &ContrastBook,
    after: &ContrastBook,
    forgotten: Vec<DeploymentId>,
) -> ContrastUpdate {
    let deployments = after
        .deployments
        .iter()
        .filter_map(|(id, record)| deployment_change(*id, before.deployments.get(id), record))
        .collect();
    let sums = after
        .sums
        .iter()
        .filter(|(key, sums)| {
            let old = before.sums.get(*key);
            !old.is_some_and(|old| Arc::ptr_eq(old, sums))
        })
        .map(|(key, sums)| SumChange {
            key: key.clone(),
            sums: (**sums).clone(),
        })
        .collect();
    ContrastUpdate {
        deployments,
        forgotten,
        sums,
    }
}

fn deployment_change(
    id: DeploymentId,
    old: Option<&Arc<DeploymentRecord>>,
    new: &Arc<DeploymentRecord>,
) -> Option<DeploymentChange> {
    if old.is_some_and(|old| Arc::ptr_eq(old, new)) {
        return None;
    }
    let same_contrasts = old.map_or(new.contrasts.is_empty(), |o| o.contrasts == new.contrasts);
    Some(DeploymentChange {
        id,
        subject: old.is_none().then(|| Box::new(new.subject.clone())),
        life: new.life.clone(),
        contrasts: (!same_contrasts).then(|| new.contrasts.clone()),
    })
}

impl ContrastBook {
    /// Writes an update down.
    ///
    /// # Errors
    /// The id of a deployment that is neither known nor described; nothing is written then.
    pub fn write(&mut self, update: &ContrastUpdate) -> Result<(), DeploymentId> {
        let stays =
            |id: &DeploymentId| self.deployments.contains_key(id) && !update.forgotten.contains(id);
        let is_unknown = |c: &&DeploymentChange| c.subject.is_none() && !stays(&c.id);
        if let Some(unknown) = update.deployments.iter().find(is_unknown) {
            return Err(unknown.id);
        }
        for id in &update.forgotten {
            self.close(*id);
        }
        for change in &update.deployments {
            self.write_deployment(change);
        }
        for change in &update.sums {
            self.write_sums(change.key.clone(), change.sums.clone());
        }
        Ok(())
    }

    fn write_deployment(&mut self, change: &DeploymentChange) {
        let old = self.deployments.remove(&change.id);
        let (known, contrasts) = match old.map(Arc::unwrap_or_clone) {
            Some(old) => (Some(old.subject), old.contrasts),
            None => (None, Vec::new()),
        };
        let described = change.subject.as_ref().map(|s| (**s).clone());
        if let Some(subject) = described.or(known) {
            self.put(DeploymentRecord {
                subject,
                life: change.life.clone(),
                contrasts: change.contrasts.clone().unwrap_or(contrasts),
            });
        }
    }

    /// A deployment as a store kept it.
    pub fn put(&mut self, record: DeploymentRecord) {
        self.deployments.insert(record.subject.id, Arc::new(record));
    }

    /// Sums as a store kept them.
    pub fn write_sums(&mut self, key: SumKey, sums: EdgeSums) {
        self.sums.insert(key, Arc::new(sums));
    }

    /// What has left the book, as a store kept it.
    pub fn put_closed(&mut self, id: DeploymentId) {
        self.close(id);
    }
}
