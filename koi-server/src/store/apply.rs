//! A transaction's conditions and changes as SQL; the meaning is `ServerState::apply`.

use std::collections::BTreeSet;

use sqlx::{PgConnection, Row};

use koi_core::ids::JobId;
use koi_core::store::{Change, Expect, ReplicaRecord, StoreTx, TxRefusal};
use koi_core::tick::{Phase, TickRecord};

use super::head::Head;
use super::{
    StoreError, audit, belief, calibration, contrast, evidence, host, job, mechanism, plan, price,
    replica, request, slow_history, state, tick,
};

/// What the changes of a transaction share.
pub(super) struct Context<'a> {
    pub(super) head: &'a mut Head,
    pub(super) tx: &'a StoreTx,
    /// Evidence as it is written.
    pub(super) documents: &'a evidence::Documents,
}

/// Checks the epoch and the conditions and applies the changes. The caller holds the head's lock and
/// rolls back on an error.
pub(super) async fn apply(
    db: &mut PgConnection,
    head: &mut Head,
    (tx, documents): (&StoreTx, &evidence::Documents),
) -> Result<(), StoreError> {
    if tx.epoch < head.epoch {
        return Err(TxRefusal::Fenced {
            offered: tx.epoch,
            stored: head.epoch,
        }
        .into());
    }
    for expect in &tx.expects {
        check(db, head, expect).await?;
    }
    let mut context = Context {
        head,
        tx,
        documents,
    };
    let mut rest = tx.changes.as_slice();
    while let Some((first, others)) = rest.split_first() {
        let run = replica_run(rest);
        rest = if run.is_empty() {
            let place = tx.changes.len() - rest.len();
            apply_change(db, &mut context, (place, first)).await?;
            others
        } else {
            replica::replicas_put(db, &run).await?;
            rest.get(run.len()..).unwrap_or_default()
        };
    }
    head.epoch = tx.epoch;
    if tx.changes.iter().any(may_end_a_job) {
        job::job_forget_finished(db).await?;
    }
    Ok(())
}

/// The replicas, all of different ids, with which the changes begin.
fn replica_run(changes: &[Change]) -> Vec<&ReplicaRecord> {
    let mut seen = BTreeSet::new();
    let replicas = changes.iter().map_while(|change| match change {
        Change::Replica(record) => Some(&**record),
        _ => None,
    });
    replicas
        .take_while(|record| seen.insert(&record.id))
        .collect()
}

const fn may_end_a_job(change: &Change) -> bool {
    matches!(change, Change::Job(_) | Change::ReplicaReleased(_))
}

async fn check(db: &mut PgConnection, head: &Head, expect: &Expect) -> Result<(), StoreError> {
    let holds = match expect {
        Expect::PlanSeq(seq) => *seq == head.plan_seq,
        Expect::TickPhase(id, phase) => newest_tick(db, head)
            .await?
            .is_some_and(|t| t.id == *id && t.phase == *phase),
        Expect::TickOpen(id) => newest_tick(db, head)
            .await?
            .is_some_and(|t| t.id == *id && t.closed_at.is_none()),
        Expect::JobVersion(id, version) => job_version(db, *id).await? == *version,
    };
    if holds {
        Ok(())
    } else {
        Err(conflict(format!("{} does not hold", describe(expect))))
    }
}

async fn newest_tick(db: &mut PgConnection, head: &Head) -> Result<Option<TickRecord>, StoreError> {
    match head.tick {
        Some(id) => tick::tick_find(db, id).await,
        None => Ok(None),
    }
}

async fn job_version(db: &mut PgConnection, id: JobId) -> Result<i64, StoreError> {
    let sql = "SELECT version FROM job WHERE job_id = $1 AND NOT is_history";
    let row = sqlx::query(sql).bind(id.0).fetch_optional(db).await?;
    Ok(row.map_or(Ok(0), |r| r.try_get(0))?)
}

fn describe(expect: &Expect) -> String {
    let code = |phase: &Phase| phase.code();
    match expect {
        Expect::PlanSeq(seq) => format!("newest plan = {seq}"),
        Expect::TickPhase(id, phase) => format!("tick {id} in {}", code(phase)),
        Expect::TickOpen(id) => format!("tick {id} open"),
        Expect::JobVersion(id, version) => format!("job {id} at version {version}"),
    }
}

pub(super) fn conflict(what: String) -> StoreError {
    TxRefusal::Conflict(what).into()
}

async fn apply_change(
    db: &mut PgConnection,
    context: &mut Context<'_>,
    (place, change): (usize, &Change),
) -> Result<(), StoreError> {
    match change {
        Change::Job(record) => job::job_put(db, record, context.tx.at).await,
        Change::Host(record) => host::host_put(db, record, context).await,
        Change::Replica(record) => replica::replicas_put(db, &[&**record]).await,
        Change::ReplicaReleased(id) => replica::replica_release(db, id).await,
        Change::Tick(record) => tick::tick_put(db, record, context.head).await,
        Change::Plan(record) => plan::plan_put(db, record, context.head).await,
        Change::Evidence(rows) => {
            evidence::evidence_insert(db, rows, context.documents.at(place)).await
        }
        Change::BeliefEvents(events) => belief::belief_events_insert(db, events).await,
        Change::Contrasts(update) => contrast::contrasts_put(db, update).await,
        Change::Calibration(set) => calibration::calibration_put(db, set).await,
        Change::Slow(slow) => state::slow_state_put(db, slow).await,
        Change::SlowTick(tick) => slow_history::slow_tick_put(db, tick).await,
        Change::Mechanism(record) => mechanism::mechanism_put(db, record).await,
        Change::Prices(rows) => price::prices_put(db, rows, context.tx.at).await,
        Change::PricesRemoved(filter) => price::prices_remove(db, filter).await,
        Change::Request(record) => request::request_insert(db, record, context.tx.at).await,
        Change::Audit(record) => audit::audit_insert(db, record, context.tx).await,
    }
}
