//! Domain to wire, for answers.

use koi_core::catalog::Value;
use koi_core::configuration::Configuration;
use koi_core::ladder::{CommittedLadder, Ladder, Promise, Rank};
use koi_core::plan::{Considered, PlanAction};
use koi_core::rollout::EndpointSet;
use koi_core::score::SigmaTerms;
use koi_core::store::{PlanRecord, ReplicaPhase, ReplicaRecord, ReplicaRole, Rollout, RolloutKind};
use koi_core::surrogate::Prediction;
use koi_core::tick::{TickPrice, TickRecord};
use koi_core::variables::{MediatorValues, OutcomeValues};
use koi_proto::convert::environment::environment_to_wire;
use koi_proto::v1;

fn named(name: &str, value: f64) -> v1::NamedValue {
    v1::NamedValue {
        name: name.to_owned(),
        value,
    }
}

/// Present mediators.
#[must_use]
pub fn mediators(values: &MediatorValues) -> Vec<v1::NamedValue> {
    values.present().map(|(v, x)| named(v.name(), x)).collect()
}

/// Present outcomes.
#[must_use]
pub fn outcomes(values: &OutcomeValues) -> Vec<v1::NamedValue> {
    values.present().map(|(v, x)| named(v.name(), x)).collect()
}

fn settings(configuration: &Configuration) -> Vec<v1::Setting> {
    configuration
        .iter()
        .map(|(name, value)| {
            use v1::setting::Value as Wire;
            let value = match value {
                Value::Bool(b) => Wire::BoolValue(*b),
                Value::Int(i) => Wire::IntValue(*i),
                Value::Float(x) => Wire::FloatValue(*x),
                Value::Text(t) => Wire::TextValue(t.clone()),
            };
            v1::Setting {
                name: name.to_owned(),
                value: Some(value),
            }
        })
        .collect()
}

fn rank(rank: &Rank) -> v1::Rank {
    v1::Rank {
        environment: Some(environment_to_wire(&rank.environment)),
        instance_type: rank.instance_type.clone(),
        settings: settings(&rank.configuration),
        n_replicas: rank.n_replicas,
        mechanism_id: rank.mechanism_id.clone().unwrap_or_default(),
        gpus_per_replica: rank.gpus_per_replica(),
    }
}

/// A ladder.
#[must_use]
pub fn ladder(ladder: &Ladder) -> v1::Ladder {
    v1::Ladder {
        ranks: ladder.ranks.iter().map(rank).collect(),
    }
}

/// Every term of σ, and the gain where the plan computed one.
#[must_use]
pub fn sigma(terms: &SigmaTerms, gain: Option<f64>) -> v1::SigmaTerms {
    let cost = terms.switch_cost.as_ref();
    let parts = cost.map(|c| {
        vec![
            named("cold_start", c.cold_start_usd),
            named("parallel", c.parallel_usd),
            named("kill", c.kill_usd),
            named("risk", c.risk_usd),
        ]
    });
    v1::SigmaTerms {
        exploit_score: Some(terms.exploit.j),
        information_gain: terms.eig.value(),
        breach_probability: Some(terms.slo_risk.any),
        switch_cost: cost.map(|c| c.hours_of_cost),
        sigma: Some(terms.sigma),
        gain,
        switch_cost_usd: parts.unwrap_or_default(),
        gaps: outcomes(&terms.exploit.gaps),
    }
}

fn prediction(p: &Prediction) -> v1::Prediction {
    let limited_by = serde_json::to_value(p.limited_by).ok();
    v1::Prediction {
        mediators: mediators(&p.mediators),
        outcomes: outcomes(&p.outcomes),
        limited_by: limited_by
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default(),
        saturated: p.saturated,
        capacity_rps: p.capacity_rps,
    }
}

/// A committed ladder with its promise.
#[must_use]
pub fn committed(l: &CommittedLadder) -> v1::CommittedLadder {
    v1::CommittedLadder {
        generation: l.generation.0,
        ladder: Some(ladder(&l.ladder)),
        rank_predictions: l.promise.ranks.iter().map(prediction).collect(),
        outcomes: outcomes(&l.promise.outcomes),
        sigma: Some(sigma(&l.promise.sigma, l.promise.gain)),
        usd_per_hour: l.promise.usd_per_hour,
        committed_at_us: l.committed_at.0,
    }
}

/// A roll-out.
#[must_use]
pub fn rollout(r: &Rollout) -> v1::Rollout {
    let kind = match r.kind {
        RolloutKind::Place => "place",
        RolloutKind::Canary => "canary",
        RolloutKind::Recreate => "recreate",
    };
    v1::Rollout {
        kind: kind.to_owned(),
        target: Some(committed(&r.target)),
        ready_at_us: r.ready_at.map(|t| t.0),
        deadline_us: r.deadline.0,
        reason: r.reason.clone(),
    }
}

/// A replica.
#[must_use]
pub fn replica(r: &ReplicaRecord, served_model_name: &str) -> v1::Replica {
    let role = match r.role {
        ReplicaRole::Serve => "serve",
        ReplicaRole::Withdrawn { .. } => "withdrawn",
        ReplicaRole::Drain { .. } => "drain",
    };
    let (phase, failure) = match &r.phase {
        ReplicaPhase::Launching => ("launching", String::new()),
        ReplicaPhase::Ready => ("ready", String::new()),
        ReplicaPhase::Failed { reason } => ("failed", reason.clone()),
    };
    v1::Replica {
        replica_id: r.id.to_string(),
        host: r.host.as_str().to_owned(),
        gpu_uuids: r.gpu_uuids.clone(),
        role: role.to_owned(),
        phase: phase.to_owned(),
        failure,
        endpoint: r.endpoint.as_ref().map(|e| v1::Endpoint {
            replica_id: r.id.to_string(),
            address: e.address.clone(),
            port: u32::from(e.port),
            weight: 0.0,
            served_model_name: served_model_name.to_owned(),
        }),
        ready_at_us: r.ready_at.map(|t| t.0),
        n_starts: r.n_starts,
    }
}

/// An endpoint set.
#[must_use]
pub fn endpoints(set: &EndpointSet) -> v1::EndpointSet {
    v1::EndpointSet {
        job: set.job.clone(),
        version: set.version,
        endpoints: set
            .endpoints
            .iter()
            .map(|e| v1::Endpoint {
                replica_id: e.replica_id.to_string(),
                address: e.address.clone(),
                port: u32::from(e.port),
                weight: e.weight,
                served_model_name: set.served_model_name.clone(),
            })
            .collect(),
    }
}

/// An option that was not chosen.
#[must_use]
pub fn option(c: &Considered) -> v1::Option {
    v1::Option {
        option: c.option.clone(),
        sigma: c.sigma.as_ref().map(|s| sigma(s, c.gain)),
        outcomes: c.outcomes.as_ref().map(outcomes).unwrap_or_default(),
        usd_per_hour: c.usd_per_hour,
        code: c.code.clone(),
        reason: c.reason.clone(),
    }
}

fn action(a: &PlanAction, name: String) -> v1::PlanAction {
    v1::PlanAction {
        job_id: a.job.to_string(),
        job: name,
        kind: a.kind.name().to_owned(),
        ladder: a.ladder.as_ref().map(ladder),
        outcomes: a
            .promise
            .as_ref()
            .map(|p| outcomes(&p.outcomes))
            .unwrap_or_default(),
        sigma: a.promise.as_ref().map(|p| sigma(&p.sigma, p.gain)),
        slots: a
            .slots
            .iter()
            .map(|s| v1::Slot {
                rank: s.rank,
                index: s.index,
                host: s.host.as_str().to_owned(),
                gpu_uuids: s.gpu_uuids.clone(),
            })
            .collect(),
        target_tps: a.target_tps,
        mechanism_id: a.mechanism_id.clone().unwrap_or_default(),
        swap_reason: a
            .swap_reason
            .and_then(|r| serde_json::to_value(r).ok())
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default(),
        rationale: a.rationale.clone(),
        members: a
            .promise
            .as_ref()
            .map(Promise::member_lines)
            .unwrap_or_default(),
    }
}

/// A plan. `name_of` gives a job's name by its id; `whole` adds options and ladders.
#[must_use]
pub fn plan(
    p: &PlanRecord,
    whole: bool,
    name_of: impl Fn(koi_core::ids::JobId) -> String,
) -> v1::Plan {
    let mut actions: Vec<_> = p
        .actions
        .iter()
        .map(|a| action(a, name_of(a.job)))
        .collect();
    if !whole {
        for action in &mut actions {
            action.ladder = None;
            action.slots.clear();
        }
    }
    v1::Plan {
        seq: p.seq.0,
        parent: p.parent.0,
        tick_id: p.tick.0,
        created_at_us: p.created_at.0,
        rationale: p.rationale.clone(),
        actions,
        considered: if whole {
            p.considered.iter().map(option).collect()
        } else {
            Vec::new()
        },
        objective: p.objective,
        bound: p.bound,
        snapshot_hash: p.snapshot_hash.clone(),
        seed: p.seed,
    }
}

/// A tick.
#[must_use]
pub fn tick(t: &TickRecord) -> v1::Tick {
    let cause = serde_json::to_value(t.cause).ok();
    v1::Tick {
        tick_id: t.id.0,
        phase: t.phase.code().to_owned(),
        cause: cause
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default(),
        epoch: t.epoch.0,
        opened_at_us: t.opened_at.0,
        closed_at_us: t.closed_at.map(|c| c.0),
        plan_seq: t.plan_seq.map(|p| p.0),
        failure: t.failure.clone().unwrap_or_default(),
        n_evidence_rows: t.n_evidence_rows,
        phase_ms: t
            .phase_ms
            .iter()
            .map(|(phase, ms)| named(phase, *ms))
            .collect(),
        first_violations: t.first_violations.clone(),
        prices: t.prices.iter().map(tick_price).collect(),
    }
}

fn tick_price(held: &TickPrice) -> v1::TickPrice {
    v1::TickPrice {
        cloud: held.key.cloud.clone(),
        region: held.key.region.clone(),
        market: held.key.market.name().to_owned(),
        instance: held.key.instance.clone(),
        usd_per_hour: held.price.usd_per_hour,
        source: held.price.source.clone(),
        date: held.price.date.clone(),
        n_nodes: held.n_hosts,
    }
}
