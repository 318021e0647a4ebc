//! What contrasts add to a row: the counterfactual predictions of two deployments per job, apart from
//! the rest because every one of them asks the surrogate.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::anyhow;
use koi_core::catalog::{Catalog, Value};
use koi_core::configuration::ConfigurationDraft;
use koi_core::ids::{Generation, TickId};
use koi_core::store::JobRecord;
use koi_core::validation::EvidenceRow;
use koi_core::validation::contrast::{
    CompareContext, Conditions, ContrastBook, DeploymentId, DeploymentRow, Subject, compare,
    fold_tick,
};

use super::world::World;
use crate::plan::world::snapshot;

/// Jobs, each deployed twice.
const JOBS: u32 = 24;
/// Ticks that the first deployments are seen for.
const TICKS: i64 = 3;

/// Time and number of contrasts of one tick in which every job is seen redeployed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Contrasts {
    pub(super) n_rows: usize,
    pub(super) n_contrasts: usize,
    pub(super) seconds: f64,
}

pub(super) fn measure(world: &World, seed: u64) -> anyhow::Result<Contrasts> {
    let cluster = snapshot(JOBS, 0, seed)?;
    let jobs: Vec<&JobRecord> = cluster.state.jobs.values().collect();
    let mut book = ContrastBook::default();
    for tick in 1..=TICKS {
        let rows = rows(world, &jobs, (&book, tick), 1)?;
        book = fold_tick(&book, TickId(tick), &rows).0;
    }
    let mut found = Contrasts::default();
    for tick in TICKS + 1..=2 * TICKS {
        let mut rows = rows(world, &jobs, (&book, tick), 2)?;
        let context = CompareContext {
            catalog: Catalog::embedded(),
            model: &world.model,
            params: &world.params,
            residual_invariance: &BTreeMap::new(),
        };
        let begun = Instant::now();
        compare(&book, &mut rows, context);
        found.seconds += begun.elapsed().as_secs_f64();
        found.n_rows += rows.len();
        found.n_contrasts += rows.iter().map(|r| r.contrasts.len()).sum::<usize>();
        book = fold_tick(&book, TickId(tick), &rows).0;
    }
    Ok(found)
}

fn rows(
    world: &World,
    jobs: &[&JobRecord],
    (book, tick): (&ContrastBook, i64),
    generation: u32,
) -> anyhow::Result<Vec<EvidenceRow>> {
    let of = |(number, job): (usize, &&JobRecord)| {
        let mut row = world.judge(number, TickId(tick));
        row.job = job.id;
        row.generation = Generation(generation);
        let subject = subject(job, &row)?;
        row.deployment = Some(DeploymentRow {
            subject: book.wants_subject(subject.id).then(|| Box::new(subject)),
            conditions: Conditions {
                rate_rps_per_replica: Some(0.5),
                replicas: Some(1.0),
                ..Conditions::default()
            },
            superseded: false,
        });
        Ok(row)
    };
    jobs.iter().enumerate().map(of).collect()
}

/// A deployment whose second generation batches half as many sequences.
fn subject(job: &JobRecord, row: &EvidenceRow) -> anyhow::Result<Subject> {
    let sequences = if row.generation.0 == 1 { 128 } else { 64 };
    let draft = ConfigurationDraft(BTreeMap::from([(
        "max_num_seqs".to_owned(),
        Value::Int(sequences),
    )]));
    let configuration = Catalog::embedded().configuration(draft);
    let spec = &job.spec;
    Ok(Subject {
        id: DeploymentId {
            job: job.id,
            generation: row.generation,
            rank: row.rank,
        },
        environment: row.environment.clone(),
        configuration: configuration.map_err(|e| anyhow!("{e:?}"))?,
        n_replicas: 1,
        model_id: spec.model.id.clone(),
        model: spec.model.facts.clone(),
        class: spec.class,
        slo: spec.slo,
        workload: spec.workload.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redeployed_job_is_compared_with_what_it_was() {
        let found = measure(&World::new(3, 1).unwrap(), 1).unwrap();
        assert_eq!(found.n_rows, 72);
        assert!(found.n_contrasts > 0, "{found:?}");
    }
}
