//! Where and within what bounds a job may run.

use std::collections::BTreeSet;

use super::super::draft::ConstraintDraft;
use super::super::{Constraints, JobClass};
use super::in_range;
use crate::environment::{Environment, NotAnEnvironment};
use crate::violation::Violations;

const MAX_REPLICAS: u32 = 1024;
const DEFAULT_MAX_REPLICAS: u32 = 8;
const MAX_ENTRIES: usize = 256;
const MAX_USD_PER_HOUR: f64 = 1e7;

pub(super) fn validate(
    draft: &ConstraintDraft,
    class: Option<JobClass>,
    bad: &mut Violations,
) -> Option<Constraints> {
    let before = bad.clone().into_vec().len();
    let allowed_gpu_types = gpu_types("allowed_gpu_types", &draft.allowed_gpu_types, bad);
    let denied_gpu_types = gpu_types("denied_gpu_types", &draft.denied_gpu_types, bad);
    let allowed_environments =
        environments("allowed_environments", &draft.allowed_environments, bad);
    let denied_environments = environments("denied_environments", &draft.denied_environments, bad);
    not_both("gpu_types", &allowed_gpu_types, &denied_gpu_types, bad);
    not_both(
        "environments",
        &allowed_environments,
        &denied_environments,
        bad,
    );
    let max_usd_per_hour = draft.max_usd_per_hour.and_then(|x| {
        in_range(
            "constraints.max_usd_per_hour",
            x,
            0.01..=MAX_USD_PER_HOUR,
            "USD per hour",
            bad,
        )
    });
    let (min_replicas, max_replicas) = replicas(draft, bad);
    let online = class == Some(JobClass::Online);
    let min_available = draft.min_available.unwrap_or(u32::from(online));
    if min_available > min_replicas {
        bad.add(
            "constraints.min_available",
            format!("is {min_available}, more than min_replicas ({min_replicas}); lower it or raise min_replicas"),
        );
    }
    let constraints = Constraints {
        allowed_gpu_types,
        denied_gpu_types,
        allowed_environments,
        denied_environments,
        spot_allowed: draft.spot_allowed.unwrap_or(class == Some(JobClass::Batch)),
        max_usd_per_hour,
        min_replicas,
        max_replicas,
        min_available,
        allow_gap: draft.allow_gap.unwrap_or(false),
    };
    (bad.clone().into_vec().len() == before).then_some(constraints)
}

fn replicas(draft: &ConstraintDraft, bad: &mut Violations) -> (u32, u32) {
    let min = draft.min_replicas.unwrap_or(1);
    let max = draft.max_replicas.unwrap_or(DEFAULT_MAX_REPLICAS.max(min));
    for (name, value) in [("min_replicas", min), ("max_replicas", max)] {
        if !(1..=MAX_REPLICAS).contains(&value) {
            bad.add(
                format!("constraints.{name}"),
                format!("must be from 1 to {MAX_REPLICAS}, got {value}"),
            );
        }
    }
    if min > max {
        bad.add(
            "constraints.min_replicas",
            format!("is {min}, more than max_replicas ({max})"),
        );
    }
    (min, max)
}

fn too_many(name: &str, entries: &[String], bad: &mut Violations) -> bool {
    let many = entries.len() > MAX_ENTRIES;
    if many {
        bad.add(
            format!("constraints.{name}"),
            format!("has {} entries, at most {MAX_ENTRIES}", entries.len()),
        );
    }
    many
}

fn gpu_types(name: &str, entries: &[String], bad: &mut Violations) -> BTreeSet<String> {
    if too_many(name, entries, bad) {
        return BTreeSet::new();
    }
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    for (i, entry) in entries.iter().enumerate() {
        if !(1..=63).contains(&entry.len()) || !entry.bytes().all(plain) {
            let shown: String = entry.chars().take(48).collect();
            bad.add(
                format!("constraints.{name}[{i}]"),
                format!(
                    "must be a GPU type such as H100: letters, digits, '-', '_', '.', got {shown:?}"
                ),
            );
        }
    }
    entries.iter().cloned().collect()
}

fn environments(name: &str, entries: &[String], bad: &mut Violations) -> BTreeSet<Environment> {
    if too_many(name, entries, bad) {
        return BTreeSet::new();
    }
    let mut places = BTreeSet::new();
    for (i, entry) in entries.iter().enumerate() {
        match entry.parse::<Environment>() {
            Ok(place) => {
                places.insert(place);
            }
            Err(e @ NotAnEnvironment { .. }) => {
                bad.add(format!("constraints.{name}[{i}]"), e.to_string())
            }
        }
    }
    places
}

fn not_both<T: Ord + std::fmt::Display>(
    name: &str,
    allowed: &BTreeSet<T>,
    denied: &BTreeSet<T>,
    bad: &mut Violations,
) {
    for both in allowed.intersection(denied).take(8) {
        bad.add(
            format!("constraints.denied_{name}"),
            format!("{both} is also in allowed_{name}; keep it in one list"),
        );
    }
}
