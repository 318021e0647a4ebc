//! C5: every replica has its own free devices on one host that takes work, old and new side by
//! side during a canary: a device that anyone has reserved is not free, the job's own old replicas
//! included. Counted per device, per host and per environment. Spec §11.

use std::collections::{BTreeMap, BTreeSet};

use super::{Checked, Findings};
use crate::host::HostRecord;
use crate::ids::ReplicaId;
use crate::ladder::{Ladder, Rank};
use crate::plan::{PlanAction, Slot};
use crate::planner::pools::Pools;
use crate::store::JobRecord;

pub(super) fn check(checked: &Checked<'_>, findings: &mut Findings) {
    let holders: BTreeMap<&str, &ReplicaId> = checked
        .snapshot
        .state
        .replicas
        .values()
        .flat_map(|r| r.gpu_uuids.iter().map(move |u| (u.as_str(), &r.id)))
        .collect();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (action, ladder, job) in checked.ladder_actions() {
        for slot in &action.slots {
            let Some(rank) = ladder.ranks.get(slot.rank as usize) else {
                continue;
            };
            check_host(checked, (action, job), (slot, rank), findings);
            for uuid in &slot.gpu_uuids {
                if !used.insert(uuid) {
                    findings.add(
                        "C5-TWICE",
                        action.job,
                        format!("device {uuid} is used twice"),
                    );
                }
                if let Some(holder) = holders.get(uuid.as_str()) {
                    let detail = format!("device {uuid} is reserved by {holder}");
                    findings.add("C5-RESERVED", action.job, detail);
                }
            }
        }
    }
    check_environments(checked, findings);
}

fn check_host(
    checked: &Checked<'_>,
    (action, job): (&PlanAction, &JobRecord),
    (slot, rank): (&Slot, &Rank),
    findings: &mut Findings,
) {
    let replica = format!("replica r{}.{}", slot.rank, slot.index);
    let mut bad = |code: &str, detail: String| {
        findings.add(code, action.job, format!("{replica}: {detail}"));
    };
    let width = rank.gpus_per_replica() as usize;
    if slot.gpu_uuids.len() != width {
        bad(
            "C5-WIDTH",
            format!("{} devices, tp × pp needs {width}", slot.gpu_uuids.len()),
        );
    }
    let Some(host) = checked.snapshot.state.hosts.get(&slot.host) else {
        return bad("C5-HOST", format!("there is no host {}", slot.host));
    };
    if !checked.snapshot.takes_work(host) {
        bad(
            "C5-HOST",
            format!(
                "host {} takes no work: {}",
                slot.host,
                why_closed(checked, host)
            ),
        );
    }
    let facts = &host.facts;
    if facts.environment != rank.environment || facts.instance_type != rank.instance_type {
        bad(
            "C5-PLACE",
            format!("host {} is not where the rank says", slot.host),
        );
    }
    if !facts.engines.iter().any(|e| e.engine == job.spec.engine) {
        let engine = job.spec.engine.name();
        bad(
            "C5-ENGINE",
            format!("host {} has no engine {engine}", slot.host),
        );
    }
    for uuid in &slot.gpu_uuids {
        if !facts.gpus.iter().any(|g| &g.uuid == uuid) {
            let shown: String = uuid.chars().take(80).collect();
            bad(
                "C5-DEVICE",
                format!("host {} has no device {shown:?}", slot.host),
            );
        }
    }
}

fn why_closed(checked: &Checked<'_>, host: &HostRecord) -> &'static str {
    match checked.snapshot.liveness.get(&host.facts.host) {
        _ if host.cordoned => "cordoned",
        _ if host.draining_since.is_some() => "draining",
        Some(liveness) => liveness.name(),
        None => "never connected",
    }
}

/// GPUs asked for by environment against those that are free.
fn check_environments(checked: &Checked<'_>, findings: &mut Findings) {
    let pools = Pools::of(checked.snapshot);
    let mut asked: BTreeMap<_, u64> = BTreeMap::new();
    for (_, ladder, _) in checked.ladder_actions() {
        for (environment, n) in gpus_by_environment(ladder) {
            *asked.entry(environment).or_default() += n;
        }
    }
    for (environment, n) in asked {
        let free = pools.free_in(environment);
        if n > free {
            let detail = format!("{n} GPUs asked in {environment}, {free} are free");
            findings.add("C5-ENVIRONMENT", None, detail);
        }
    }
}

fn gpus_by_environment(ladder: &Ladder) -> BTreeMap<&crate::environment::Environment, u64> {
    let mut sums = BTreeMap::new();
    for rank in &ladder.ranks {
        let n = u64::from(rank.gpus_per_replica()) * u64::from(rank.n_replicas);
        *sums.entry(&rank.environment).or_default() += n;
    }
    sums
}
