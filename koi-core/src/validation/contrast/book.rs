//! The deployment book and the running sums of contrasts: all that S2 remembers of the past.
//!
//! A fold of evidence rows and of nothing else, so that it replays byte for byte. Bounded in number
//! and age; a deployment that left the book makes no contrast any more, and those it made stay in
//! the sums. Spec §8, Contrast.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::deployment::{DeploymentId, Subject};
use super::life::Life;
use super::{ContrastSums, LevelPairSums};
use crate::ids::{Generation, JobId, TickId};
use crate::validation::evidence::EvidenceRow;

/// Deployments kept of one rank of a job.
pub const MAX_PER_RANK: usize = 8;
/// Deployments kept in all.
pub const MAX_DEPLOYMENTS: usize = 4_096;
/// Ticks after its last row for which a deployment is kept.
pub const KEPT_TICKS: i64 = 500;
/// Ranks of jobs of which it is remembered what has left the book.
pub const MAX_CLOSED: usize = 16_384;

/// One contrast of a deployment: what is left of the change of its destination once the surrogate
/// has explained everything but the edge's source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContrastRow {
    /// Edge.
    pub edge: String,
    /// Scope of the mechanisms it speaks to, in its canonical form; both ends lie inside.
    pub scope: String,
    /// Environment of both, or the ordered pair of them.
    pub environment: String,
    /// What it was compared with.
    pub reference: DeploymentId,
    /// z: change of the source on its natural scale, 1 between levels.
    pub z: f64,
    /// Δ: what is left of the change of the destination, on its natural scale.
    pub delta: f64,
    /// The levels, from and to, where the source is a category.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<(String, String)>,
    /// Error variance of z, where the source is itself measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub z_variance: f64,
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

/// Running sums of one edge in one scope and environment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeSums {
    /// Of sources that are numbers or flags.
    pub steps: ContrastSums,
    /// Of sources that are categories.
    #[serde(default)]
    pub levels: LevelPairSums,
    /// Σ of the error variances of z.
    #[serde(default)]
    pub z_variance: f64,
}

impl EdgeSums {
    /// Contrasts of both kinds.
    #[must_use]
    pub fn n(&self) -> u32 {
        let levels = self.levels.pairs().map(|(_, _, sums)| sums.n);
        self.steps.n + levels.sum::<u32>()
    }

    /// Mean error variance of z.
    #[must_use]
    pub fn mean_z_variance(&self) -> f64 {
        if self.steps.n == 0 {
            0.0
        } else {
            (self.z_variance / f64::from(self.steps.n)).max(0.0)
        }
    }

    fn add(&mut self, contrast: &ContrastRow) {
        match &contrast.levels {
            Some((from, to)) => self.levels.add(from, to, contrast.delta),
            None => {
                self.steps.add(contrast.z, contrast.delta);
                self.z_variance += contrast.z_variance;
            }
        }
    }

    fn remove(&mut self, contrast: &ContrastRow) {
        match &contrast.levels {
            Some((from, to)) => self.levels.remove(from, to, contrast.delta),
            None => {
                self.steps.remove(contrast.z, contrast.delta);
                self.z_variance = if self.steps.n == 0 {
                    0.0
                } else {
                    self.z_variance - contrast.z_variance
                };
            }
        }
    }
}

/// Which sums: an edge in a scope and an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumKey {
    /// Edge.
    pub edge: String,
    /// Scope in its canonical form.
    pub scope: String,
    /// Environment, or the ordered pair of them.
    pub environment: String,
}

impl SumKey {
    /// The sums that a contrast belongs to.
    #[must_use]
    pub fn of(contrast: &ContrastRow) -> Self {
        Self {
            edge: contrast.edge.clone(),
            scope: contrast.scope.clone(),
            environment: contrast.environment.clone(),
        }
    }
}

/// A deployment in the book.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeploymentRecord {
    /// What it is.
    pub subject: Subject,
    /// How it did.
    pub life: Life,
    /// Its contrasts, one per edge and scope, in that order.
    pub contrasts: Vec<ContrastRow>,
}

impl DeploymentRecord {
    /// The contrast on an edge in a scope.
    #[must_use]
    pub fn contrast(&self, edge: &str, scope: &str) -> Option<&ContrastRow> {
        let at = position(&self.contrasts, (edge, scope)).ok()?;
        self.contrasts.get(at)
    }
}

fn position(contrasts: &[ContrastRow], key: (&str, &str)) -> Result<usize, usize> {
    contrasts.binary_search_by(|c| (c.edge.as_str(), c.scope.as_str()).cmp(&key))
}

/// The book with its sums. Cheap to clone: records and sums are shared until they change.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContrastBook {
    pub(super) deployments: BTreeMap<DeploymentId, Arc<DeploymentRecord>>,
    pub(super) sums: BTreeMap<SumKey, Arc<EdgeSums>>,
    /// Newest generation of a rank that left the book; it and those before it never come back.
    pub(super) closed: BTreeMap<(JobId, u32), Generation>,
}

impl ContrastBook {
    /// A deployment.
    #[must_use]
    pub fn deployment(&self, id: DeploymentId) -> Option<&DeploymentRecord> {
        self.deployments.get(&id).map(|d| &**d)
    }

    /// Every deployment in the order of ids.
    pub fn deployments(&self) -> impl Iterator<Item = &DeploymentRecord> {
        self.deployments.values().map(|d| &**d)
    }

    /// Every deployment of a job in the order of generations.
    pub fn of_job(&self, job: JobId) -> impl DoubleEndedIterator<Item = &DeploymentRecord> {
        let at = |generation, rank| DeploymentId {
            job,
            generation: Generation(generation),
            rank,
        };
        let range = self.deployments.range(at(0, 0)..=at(u32::MAX, u32::MAX));
        range.map(|(_, d)| &**d)
    }

    /// Sums by edge, scope and environment.
    pub fn sums(&self) -> impl Iterator<Item = (&SumKey, &EdgeSums)> {
        self.sums.iter().map(|(key, sums)| (key, &**sums))
    }

    /// Sums of one edge in one scope and environment.
    #[must_use]
    pub fn sums_of(&self, key: &SumKey) -> Option<&EdgeSums> {
        self.sums.get(key).map(|s| &**s)
    }

    /// Sums of one edge in one scope, by environment.
    pub fn sums_by_environment<'a>(
        &'a self,
        edge: &'a str,
        scope: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a EdgeSums)> {
        let from = SumKey {
            edge: edge.to_owned(),
            scope: scope.to_owned(),
            environment: String::new(),
        };
        let range = self.sums.range(from..);
        range
            .take_while(move |(key, _)| key.edge == edge && key.scope == scope)
            .map(|(key, sums)| (key.environment.as_str(), &**sums))
    }

    /// Whether a row of this deployment must carry its subject: the book does not know it, and may.
    #[must_use]
    pub fn wants_subject(&self, id: DeploymentId) -> bool {
        !self.deployments.contains_key(&id) && !self.is_closed(id)
    }

    fn is_closed(&self, id: DeploymentId) -> bool {
        let closed = self.closed.get(&(id.job, id.rank));
        closed.is_some_and(|newest| id.generation <= *newest)
    }

    /// Takes a row into the life of its deployment; its contrasts are [`Self::apply`]'s business.
    pub fn observe(&mut self, row: &EvidenceRow) {
        let Some(seen) = &row.deployment else {
            return;
        };
        let id = row.deployment_id();
        if let Some(subject) = seen.subject.as_ref().filter(|s| s.id == id)
            && self.wants_subject(id)
        {
            self.open(row.tick, subject);
        }
        if let Some(record) = self.deployments.get_mut(&id) {
            Arc::make_mut(record).life.observe(row, seen);
        }
    }

    fn open(&mut self, tick: TickId, subject: &Subject) {
        let earlier: Vec<DeploymentId> = self
            .of_job(subject.id.job)
            .filter(|d| d.subject.id.generation < subject.id.generation)
            .filter(|d| d.life.trigger.is_none())
            .map(|d| d.subject.id)
            .collect();
        for id in earlier {
            if let Some(record) = self.deployments.get_mut(&id) {
                Arc::make_mut(record).life.end();
            }
        }
        let record = DeploymentRecord {
            subject: subject.clone(),
            life: Life::born(tick),
            contrasts: Vec::new(),
        };
        self.deployments.insert(subject.id, Arc::new(record));
    }

    /// Counts a row's contrasts: each takes the place of the one that its deployment had on the
    /// same edge in the same scope. A row of a deployment that the book does not know, or that is
    /// not its newest, counts nothing.
    pub fn apply(&mut self, row: &EvidenceRow) {
        let Some(record) = self.deployments.get_mut(&row.deployment_id()) else {
            return;
        };
        if record.life.last_tick != row.tick || row.contrasts.is_empty() {
            return;
        }
        let record = Arc::make_mut(record);
        for contrast in &row.contrasts {
            let place = position(&record.contrasts, (&contrast.edge, &contrast.scope));
            let known = place.ok().and_then(|at| record.contrasts.get(at));
            if known == Some(contrast) {
                continue;
            }
            let before = match place {
                Ok(at) => record
                    .contrasts
                    .get_mut(at)
                    .map(|old| std::mem::replace(old, contrast.clone())),
                Err(at) => {
                    record.contrasts.insert(at, contrast.clone());
                    None
                }
            };
            if let Some(before) = before {
                Self::sums_mut(&mut self.sums, &before).remove(&before);
            }
            Self::sums_mut(&mut self.sums, contrast).add(contrast);
        }
    }

    fn sums_mut<'a>(
        sums: &'a mut BTreeMap<SumKey, Arc<EdgeSums>>,
        contrast: &ContrastRow,
    ) -> &'a mut EdgeSums {
        Arc::make_mut(sums.entry(SumKey::of(contrast)).or_default())
    }

    /// Leaves out what is too old or too much, and says what; it depends on the rows alone.
    pub fn forget(&mut self, tick: TickId) -> Vec<DeploymentId> {
        let mut gone: Vec<DeploymentId> = Vec::new();
        let mut per_rank: BTreeMap<(JobId, u32), usize> = BTreeMap::new();
        for (id, record) in self.deployments.iter().rev() {
            let n = per_rank.entry((id.job, id.rank)).or_default();
            *n += 1;
            if *n > MAX_PER_RANK || record.life.last_tick.0 < tick.0 - KEPT_TICKS {
                gone.push(*id);
            }
        }
        let left = self.deployments.len() - gone.len();
        if left > MAX_DEPLOYMENTS {
            let dropped: std::collections::BTreeSet<DeploymentId> = gone.iter().copied().collect();
            let mut by_age: Vec<(TickId, DeploymentId)> = self
                .deployments
                .iter()
                .filter(|(id, _)| !dropped.contains(id))
                .map(|(id, d)| (d.life.last_tick, *id))
                .collect();
            by_age.sort_unstable();
            gone.extend(
                by_age
                    .iter()
                    .take(left - MAX_DEPLOYMENTS)
                    .map(|(_, id)| *id),
            );
        }
        for id in &gone {
            self.close(*id);
        }
        gone
    }

    pub(super) fn close(&mut self, id: DeploymentId) {
        self.deployments.remove(&id);
        let newest = self
            .closed
            .entry((id.job, id.rank))
            .or_insert(id.generation);
        *newest = id.generation.max(*newest);
        while self.closed.len() > MAX_CLOSED {
            // Ids of jobs grow with time.
            self.closed.pop_first();
        }
    }
}
