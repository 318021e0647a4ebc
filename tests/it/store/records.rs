//! Small, complete records for transactions.

use std::collections::{BTreeMap, BTreeSet};

use koi_core::catalog::price::{Dated, Price, PriceKey, PriceOrigin, PricedRow};
use koi_core::causal::{BeliefChange, BeliefEvent, BeliefKey, BeliefSource};
use koi_core::environment::Market;
use koi_core::gpu::GpuFacts;
use koi_core::host::{HostFacts, HostPrice, HostRecord};
use koi_core::ids::{Epoch, Generation, HostGeneration, JobId, PlanSeq, ReplicaId, TickId};
use koi_core::job::{
    ArrivalPattern, Constraints, EngineName, JobClass, JobModel, JobSpec, LengthStats,
    OnDisconnect, Preference, Slo, Workload,
};
use koi_core::ladder::{CommittedLadder, Ladder, Promise, Rank};
use koi_core::model::ModelFacts;
use koi_core::plan::{ActionKind, PlanAction};
use koi_core::score::eig::Eig;
use koi_core::score::sigma::SigmaWeights;
use koi_core::score::{Exploit, SigmaTerms, SloRisk};
use koi_core::store::{
    AuditRecord, Change, Expect, JobRecord, JobState, PlanRecord, ReplicaPhase, ReplicaRecord,
    ReplicaRole, RequestRecord, Rollout, RolloutKind, StoreTx, TxKind,
};
use koi_core::tick::{Phase, TickCause, TickRecord};
use koi_core::time::UtcMicros;
use koi_core::validation::{EvidenceRow, Exercise, MechanismVerdict, Quadrant};
use koi_core::variables::{Outcome, OutcomeValues};

pub(crate) const EPOCH: Epoch = Epoch(1);
const ENVIRONMENT: &str = "spot/aws/us-east-1/use1-az2/A100";
const CONFIG_JSON: &str = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],
    "hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
    "num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":512,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16"}"#;

pub(crate) fn tx(changes: Vec<Change>) -> StoreTx {
    tx_if(Vec::new(), changes)
}

pub(crate) fn tx_if(expects: Vec<Expect>, changes: Vec<Change>) -> StoreTx {
    StoreTx {
        kind: TxKind::JobSubmitted,
        epoch: EPOCH,
        at: UtcMicros(1_000),
        expects,
        changes,
    }
}

pub(crate) fn job_id(n: u32) -> JobId {
    JobId(uuid::Uuid::from_u128(u128::from(n) + 1))
}

fn spec(name: &str) -> JobSpec {
    let lengths = LengthStats {
        mean: 0.1 + 0.2,
        p50: 90.0,
        p95: 400.5,
        p99: 1e3,
    };
    JobSpec {
        name: name.parse().unwrap(),
        tenant: "default".parse().unwrap(),
        class: JobClass::Online,
        engine: EngineName::Sim,
        model: JobModel {
            id: "org/tiny".to_owned(),
            facts: ModelFacts::from_config_json(CONFIG_JSON).unwrap(),
            config_json: CONFIG_JSON.to_owned(),
        },
        workload: Workload {
            arrival_rate_rps: 2.5,
            arrival_pattern: ArrivalPattern::Poisson,
            peak_to_mean: 1.5,
            isl: lengths,
            osl: lengths,
            shared_prefix_tokens: 0.0,
            prefix_concentration: 0.0,
            multi_turn_ratio: 0.3,
            session_affinity: false,
        },
        slo: Slo::Online {
            p99_ttft_ms: Some(400.0),
            p99_tpot_ms: None,
        },
        preference: Preference {
            weights: [0.2; 5],
            pinned: false,
            hard: BTreeMap::from([(Outcome::ALL[0], 12.5)]),
            tau: 0.1,
        },
        constraints: Constraints {
            allowed_gpu_types: BTreeSet::new(),
            denied_gpu_types: BTreeSet::new(),
            allowed_environments: BTreeSet::from([ENVIRONMENT.parse().unwrap()]),
            denied_environments: BTreeSet::new(),
            spot_allowed: true,
            max_usd_per_hour: None,
            min_replicas: 1,
            max_replicas: 4,
            min_available: 1,
            allow_gap: false,
        },
        priority: 5,
        on_disconnect: OnDisconnect::ReplaceAfter { seconds: 60 },
    }
}

pub(crate) fn job(n: u32, name: &str) -> JobRecord {
    JobRecord {
        id: job_id(n),
        spec: spec(name),
        state: JobState::Waiting,
        submitted_at: UtcMicros(i64::from(n)),
        last_generation: Generation(0),
        active: None,
        rollout: None,
        note: None,
        ticks_waited: 0,
        tokens_done: 0,
        recent_failures: 0,
        version: 1,
    }
}

pub(crate) fn next_version(job: &JobRecord) -> JobRecord {
    JobRecord {
        version: job.version + 1,
        ..job.clone()
    }
}

pub(crate) fn finished(job: &JobRecord) -> JobRecord {
    JobRecord {
        state: JobState::Finished {
            reason: "cancelled".to_owned(),
        },
        ..next_version(job)
    }
}

/// A ladder with a rank of everything that has a column.
pub(crate) fn ladder(generation: u32, usd_per_hour: f64) -> CommittedLadder {
    let weights = SigmaWeights {
        explore_weight: 0.5,
        slo_risk_weight: 1.0,
        churn_price: 0.05,
    };
    let exploit = Exploit {
        j: -0.1,
        gaps: OutcomeValues::absent(),
        limiting: Outcome::ALL[1],
    };
    CommittedLadder {
        generation: Generation(generation),
        ladder: Ladder {
            ranks: vec![Rank {
                environment: ENVIRONMENT.parse().unwrap(),
                instance_type: "p4d.24xlarge".to_owned(),
                configuration: serde_json::from_str("{}").unwrap(),
                n_replicas: 2,
                mechanism_id: Some("M_kv_pressure".to_owned()),
            }],
        },
        promise: Promise {
            ranks: Vec::new(),
            members: Vec::new(),
            bands: Vec::new(),
            outcomes: OutcomeValues::absent().with(Outcome::ALL[0], 1.0 / 3.0),
            sigma: SigmaTerms {
                exploit,
                eig: Eig::NotComputed,
                slo_risk: SloRisk {
                    any: 0.01,
                    by_limit: Vec::new(),
                },
                switch_cost: None,
                weights,
                sigma: -0.12,
            },
            gain: Some(0.1 + 0.2),
            usd_per_hour: Some(usd_per_hour),
        },
        committed_at: UtcMicros(5),
    }
}

pub(crate) fn rolling_out(job: &JobRecord, generation: u32, usd_per_hour: f64) -> JobRecord {
    let rollout = Rollout {
        kind: RolloutKind::Place,
        target: ladder(generation, usd_per_hour),
        ready_at: None,
        deadline: UtcMicros(99),
        reason: "first".to_owned(),
    };
    JobRecord {
        rollout: Some(rollout),
        last_generation: Generation(generation),
        ..next_version(job)
    }
}

pub(crate) fn host(name: &str, generation: i64) -> HostRecord {
    let gpu = |index| GpuFacts {
        uuid: format!("GPU-{name}-{index}"),
        index,
        name: "NVIDIA A100".to_owned(),
        memory_bytes: 80 << 30,
        power_limit_w: Some(400.0),
    };
    HostRecord {
        facts: HostFacts {
            host: name.parse().unwrap(),
            environment: ENVIRONMENT.parse().unwrap(),
            instance_type: "p4d.24xlarge".to_owned(),
            gpus: (0..2).map(gpu).collect(),
            nvlink: true,
            price: Some(HostPrice {
                usd_per_hour: 32.77,
                source: "list".to_owned(),
                date: "2026-01-01".to_owned(),
            }),
            address: "10.0.0.1".to_owned(),
            boot_id: "boot".to_owned(),
            build_id: "build".to_owned(),
            engines: Vec::new(),
            simulated: true,
        },
        cordoned: false,
        draining_since: None,
        generation: HostGeneration(generation),
        first_seen: UtcMicros(3),
    }
}

pub(crate) fn replica(job: &JobRecord, index: u32, devices: &[&str]) -> ReplicaRecord {
    ReplicaRecord {
        id: ReplicaId {
            job: job.spec.name.clone(),
            generation: Generation(1),
            rank: 0,
            index,
        },
        job: job.id,
        host: "h1".parse().unwrap(),
        gpu_uuids: devices.iter().map(|d| (*d).to_owned()).collect(),
        role: ReplicaRole::Serve,
        phase: ReplicaPhase::Launching,
        endpoint: None,
        reserved_at: UtcMicros(4),
        ready_at: None,
        n_starts: 0,
    }
}

pub(crate) fn priced(instance: &str, usd_per_hour: f64) -> PricedRow {
    PricedRow {
        key: PriceKey {
            cloud: "aws".to_owned(),
            region: "us-east-1".to_owned(),
            market: Market::Spot,
            instance: instance.to_owned(),
        },
        price: Price {
            usd_per_hour,
            source: "'; DROP TABLE price; -- \u{1f41f}".to_owned(),
            date: "2026-11-30".parse().unwrap(),
            dated: Dated::Published,
            origin: PriceOrigin::Feed,
        },
    }
}

pub(crate) fn tick(id: i64, phase: Phase) -> TickRecord {
    TickRecord {
        id: TickId(id),
        phase,
        cause: TickCause::Schedule,
        epoch: EPOCH,
        opened_at: UtcMicros(id * 1_000),
        closed_at: matches!(phase, Phase::Exit { .. }).then_some(UtcMicros(id * 1_000 + 500)),
        plan_seq: None,
        failure: None,
        n_evidence_rows: 0,
        phase_ms: BTreeMap::from([("S0".to_owned(), 0.1), ("S1".to_owned(), 1e-7)]),
        first_violations: Vec::new(),
        prices: Vec::new(),
    }
}

pub(crate) fn plan(seq: i64, parent: i64, jobs: &[JobId], objective: f64) -> PlanRecord {
    let action = |job: &JobId| PlanAction {
        job: *job,
        kind: ActionKind::Keep,
        ladder: None,
        promise: None,
        slots: Vec::new(),
        target_tps: None,
        mechanism_id: None,
        swap_reason: None,
        budget_ref: None,
        rationale: "stays as it is".to_owned(),
    };
    PlanRecord {
        seq: PlanSeq(seq),
        parent: PlanSeq(parent),
        tick: TickId(1),
        created_at: UtcMicros(seq),
        rationale: "quiet".to_owned(),
        actions: jobs.iter().map(action).collect(),
        considered: Vec::new(),
        objective,
        bound: Some(1e300),
        snapshot_hash: "0123456789abcdef".to_owned(),
        seed: u64::MAX,
        tally: koi_core::plan::PlanTally::default(),
    }
}

pub(crate) fn evidence(tick: i64, job: JobId, rank: u32, points: u32) -> EvidenceRow {
    EvidenceRow {
        tick: TickId(tick),
        job,
        rank,
        generation: Generation(1),
        environment: ENVIRONMENT.parse().unwrap(),
        points,
        observed: OutcomeValues::absent().with(Outcome::ALL[2], 0.7),
        promise_residuals: OutcomeValues::absent(),
        inside_band: BTreeMap::from([(Outcome::ALL[2], true)]),
        variables: BTreeMap::new(),
        mechanisms: Vec::new(),
        deployment: None,
        contrasts: Vec::new(),
        stood: None,
        basis: None,
    }
}

/// A row that decided these mechanisms and left `M_open` undecided.
pub(crate) fn deciding(tick: i64, job: JobId, rank: u32, mechanisms: &[&str]) -> EvidenceRow {
    let verdict = |id: &str, quadrant| MechanismVerdict {
        id: id.to_owned(),
        committed: true,
        v_verdicts: BTreeMap::new(),
        y_verdicts: BTreeMap::new(),
        quadrant,
        icp: BTreeMap::new(),
        exercise: Exercise::NotComputed,
        uncalibrated: false,
        contradicted: BTreeSet::new(),
    };
    let decided = mechanisms.iter().map(|id| verdict(id, Some(Quadrant::Q1)));
    EvidenceRow {
        mechanisms: decided.chain([verdict("M_open", None)]).collect(),
        ..evidence(tick, job, rank, 30)
    }
}

pub(crate) fn belief_event(
    tick: i64,
    row: (JobId, u32),
    moves: &[(&str, i64, i64)],
) -> BeliefEvent {
    let change = |(key, alpha_micro, beta_micro): &(&str, i64, i64)| BeliefChange {
        key: key.parse::<BeliefKey>().unwrap(),
        alpha_micro: *alpha_micro,
        beta_micro: *beta_micro,
    };
    BeliefEvent {
        tick: TickId(tick),
        source: BeliefSource::Evidence {
            job: row.0,
            rank: row.1,
            generation: Generation(1),
        },
        changes: moves.iter().map(change).collect(),
    }
}

pub(crate) fn request(key: &str, payload: &str, object: &str) -> Change {
    Change::Request(Box::new(RequestRecord {
        identity: "ann".to_owned(),
        key: key.to_owned(),
        payload_hash: payload.to_owned(),
        object: object.to_owned(),
    }))
}

pub(crate) fn audit(action: &str) -> Change {
    Change::Audit(Box::new(AuditRecord {
        actor: "ann".to_owned(),
        action: action.to_owned(),
        object: "job chat".to_owned(),
        reason: "because of 'quotes', tabs\tand ünïcode".to_owned(),
    }))
}

pub(crate) fn put_job(job: &JobRecord) -> Change {
    Change::Job(Box::new(job.clone()))
}

pub(crate) fn put_replica(replica: &ReplicaRecord) -> Change {
    Change::Replica(Box::new(replica.clone()))
}

pub(crate) fn put_tick(tick: &TickRecord) -> Change {
    Change::Tick(Box::new(tick.clone()))
}

pub(crate) fn put_plan(plan: &PlanRecord) -> Change {
    Change::Plan(Box::new(plan.clone()))
}
