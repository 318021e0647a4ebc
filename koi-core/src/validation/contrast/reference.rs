//! Which earlier deployment one is compared with, for each edge of a mechanism.
//!
//! Spec §8, Contrast: by who sets the edge's source.

use std::collections::BTreeMap;

use super::book::{ContrastBook, DeploymentRecord};
use super::deployment::DeploymentId;
use crate::catalog::SetBy;
use crate::ids::TickId;
use crate::job::JobClass;

/// Candidates from other jobs that are looked at for one deployment: the latest ones.
const MAX_OTHERS: usize = 24;

/// Most settings in which a reference may differ. Beyond about as many as one ordinary swap turns, what is
/// left of a change is the surrogate's error about all of them and says little of one; such pairs are
/// many, share their ends, and make slopes look sure that are not.
const MAX_DIFFERING: usize = 4;

/// What must stay and what must change from a reference to the deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// A setting, the workload or a mediator: same job, else same model and workload class, in the
    /// same environment.
    Within,
    /// A fact of the model: another model, same environment and workload class.
    OfModel,
    /// A fact of the place: same job, else same model and workload class, in another environment.
    OfEnvironment,
}

impl Change {
    /// The change that moves a feature.
    #[must_use]
    pub const fn of(set_by: SetBy) -> Self {
        match set_by {
            SetBy::Planner | SetBy::Job | SetBy::Workload => Self::Within,
            SetBy::Model => Self::OfModel,
            SetBy::Environment => Self::OfEnvironment,
        }
    }
}

/// Every deployment by workload class, latest first; made once per tick.
#[derive(Debug)]
pub struct References<'a> {
    book: &'a ContrastBook,
    by_class: BTreeMap<JobClass, Vec<&'a DeploymentRecord>>,
}

/// Order of deployments in time: by first row, then by identity.
fn started(record: &DeploymentRecord) -> (TickId, DeploymentId) {
    (record.life.first_tick, record.subject.id)
}

impl<'a> References<'a> {
    /// Over a book.
    #[must_use]
    pub fn of(book: &'a ContrastBook) -> Self {
        let mut by_class: BTreeMap<JobClass, Vec<&DeploymentRecord>> = BTreeMap::new();
        for record in book.deployments() {
            by_class
                .entry(record.subject.class)
                .or_default()
                .push(record);
        }
        for records in by_class.values_mut() {
            records.sort_by_key(|r| std::cmp::Reverse(started(r)));
        }
        Self { book, by_class }
    }

    /// Earlier deployments that one may be compared with under a change, best first: those of the
    /// same job, the ones side by side with it (its canary's old replicas) before the others, ones
    /// that differ in fewer settings before others, for the surrogate has less to explain there,
    /// and later ones before earlier ones; then those of other jobs, later ones first.
    #[must_use]
    pub fn candidates(&self, of: &DeploymentRecord, change: Change) -> Vec<&'a DeploymentRecord> {
        let own = &of.subject;
        let is_earlier = |l: &&DeploymentRecord| {
            started(l) < started(of) && differing_settings(l, of) <= MAX_DIFFERING
        };
        let fits = |l: &&DeploymentRecord| {
            let same_place = l.subject.environment == own.environment;
            let same_model = l.subject.model_id == own.model_id;
            match change {
                Change::Within => same_place && same_model,
                Change::OfModel => same_place && !same_model,
                Change::OfEnvironment => !same_place && same_model,
            }
        };
        let mut same_job: Vec<&DeploymentRecord> = self
            .book
            .of_job(own.id.job)
            .filter(is_earlier)
            .filter(fits)
            .collect();
        same_job.sort_by_cached_key(|l| {
            let alike = std::cmp::Reverse(differing_settings(l, of));
            std::cmp::Reverse((is_beside(l, of), alike, started(l)))
        });
        let class = self.by_class.get(&own.class);
        let others = class.into_iter().flatten().copied();
        let others = others
            .filter(|l| l.subject.id.job != own.id.job)
            .filter(is_earlier)
            .filter(fits)
            .take(MAX_OTHERS);
        same_job.into_iter().chain(others).collect()
    }
}

/// Settings that have another value, or a value in one of both alone.
fn differing_settings(a: &DeploymentRecord, b: &DeploymentRecord) -> usize {
    let (a, b) = (&a.subject.configuration, &b.subject.configuration);
    let changed = a.iter().filter(|(id, value)| b.get(id) != Some(value));
    let added = b.iter().filter(|(id, _)| a.get(id).is_none());
    changed.count() + added.count()
}

/// Whether an earlier deployment was still seen when the later one began.
fn is_beside(earlier: &DeploymentRecord, later: &DeploymentRecord) -> bool {
    earlier.life.last_tick >= later.life.first_tick
}

/// The key of the environment that a contrast speaks about.
#[must_use]
pub fn environment_key(from: &DeploymentRecord, to: &DeploymentRecord) -> String {
    let (from, to) = (&from.subject.environment, &to.subject.environment);
    if from == to {
        to.to_string()
    } else if from < to {
        format!("{from}|{to}")
    } else {
        format!("{to}|{from}")
    }
}
