//! The fold itself; both stores are held to it by `tests/it/store`.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::causal::{BeliefChange, BeliefSource};
use crate::ids::Generation;
use crate::job::{
    ArrivalPattern, Constraints, EngineName, JobClass, JobModel, JobSpec, LengthStats,
    OnDisconnect, Preference, Slo, Workload,
};
use crate::model::ModelFacts;
use crate::tick::TickCause;

const CONFIG_JSON: &str = r#"{"model_type":"llama","architectures":["LlamaForCausalLM"],
    "hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,
    "num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":512,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16"}"#;

fn spec(name: &str) -> JobSpec {
    let lengths = LengthStats {
        mean: 100.0,
        p50: 90.0,
        p95: 400.0,
        p99: 1000.0,
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
            multi_turn_ratio: 0.0,
            session_affinity: false,
        },
        slo: Slo::Online {
            p99_ttft_ms: Some(400.0),
            p99_tpot_ms: None,
        },
        preference: Preference {
            weights: [0.2; 5],
            pinned: false,
            hard: BTreeMap::new(),
            tau: 0.1,
        },
        constraints: Constraints {
            allowed_gpu_types: BTreeSet::new(),
            denied_gpu_types: BTreeSet::new(),
            allowed_environments: BTreeSet::new(),
            denied_environments: BTreeSet::new(),
            spot_allowed: true,
            max_usd_per_hour: None,
            min_replicas: 1,
            max_replicas: 4,
            min_available: 1,
            allow_gap: false,
        },
        priority: 5,
        on_disconnect: OnDisconnect::KeepServing,
    }
}

fn job(n: u128, name: &str) -> JobRecord {
    JobRecord {
        id: JobId(uuid::Uuid::from_u128(n)),
        spec: spec(name),
        state: JobState::Waiting,
        submitted_at: UtcMicros(1),
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

fn replica(job: &JobRecord, index: u32, devices: &[&str]) -> Change {
    Change::Replica(Box::new(ReplicaRecord {
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
        reserved_at: UtcMicros(1),
        ready_at: None,
        n_starts: 0,
    }))
}

fn tick(id: i64) -> Change {
    Change::Tick(Box::new(TickRecord {
        id: TickId(id),
        phase: Phase::Freeze,
        cause: TickCause::Schedule,
        epoch: Epoch(1),
        opened_at: UtcMicros(id),
        closed_at: None,
        plan_seq: None,
        failure: None,
        n_evidence_rows: 0,
        phase_ms: BTreeMap::new(),
        first_violations: Vec::new(),
        prices: Vec::new(),
    }))
}

fn plan(seq: i64, parent: i64) -> Change {
    Change::Plan(Box::new(PlanRecord {
        seq: PlanSeq(seq),
        parent: PlanSeq(parent),
        tick: TickId(1),
        created_at: UtcMicros(1),
        rationale: String::new(),
        actions: Vec::new(),
        considered: Vec::new(),
        objective: 0.0,
        bound: None,
        snapshot_hash: String::new(),
        seed: 0,
        tally: crate::plan::PlanTally::default(),
    }))
}

fn moves(key: &str, alpha_micro: i64) -> Change {
    let change = BeliefChange {
        key: key.parse().unwrap(),
        alpha_micro,
        beta_micro: 1,
    };
    let event = BeliefEvent {
        tick: TickId(1),
        source: BeliefSource::Forget,
        changes: vec![change],
    };
    Change::BeliefEvents(vec![event])
}

fn put(job: &JobRecord) -> Change {
    Change::Job(Box::new(job.clone()))
}

fn apply(state: &mut ServerState, changes: Vec<Change>) -> Result<(), TxRefusal> {
    let expects = Vec::new();
    let at = UtcMicros(1);
    state.apply(&StoreTx {
        kind: TxKind::JobSubmitted,
        epoch: Epoch(1),
        at,
        expects,
        changes,
    })
}

/// A state in which every kind of change has something to disturb.
fn busy() -> (ServerState, JobRecord) {
    let chat = job(1, "chat");
    let mut state = ServerState::default();
    let changes = vec![
        put(&chat),
        replica(&chat, 0, &["G1", "G2"]),
        tick(5),
        plan(3, 0),
        moves("edge:e1", 10),
    ];
    apply(&mut state, changes).unwrap();
    (state, chat)
}

#[test]
fn a_refused_transaction_leaves_no_trace() {
    let (state, chat) = busy();
    let mut next = chat.clone();
    next.version = 2;
    next.note = Some("at risk".to_owned());
    let disturb = vec![
        put(&next),
        Change::ReplicaReleased("chat.g1.r0.0".parse().unwrap()),
        replica(&chat, 1, &["G1"]),
        tick(6),
        plan(4, 3),
        moves("edge:e1", 1),
        moves("mechanism:m1", 1),
        Change::Slow(Box::default()),
    ];
    let refused = [
        put(&next),
        put(&job(2, "chat")),
        replica(&chat, 2, &["G1"]),
        replica(&chat, 2, &["G7", "G7"]),
        replica(&job(9, "nobody"), 0, &["G9"]),
        tick(5),
        plan(9, 3),
        plan(4, 4),
    ];
    for last in refused {
        let mut got = state.clone();
        let changes = disturb.iter().cloned().chain([last.clone()]).collect();
        assert!(apply(&mut got, changes).is_err(), "{last:?}");
        assert_eq!(got, state, "{last:?}");
    }
    let mut got = state.clone();
    apply(&mut got, disturb).unwrap();
    assert_ne!(got, state);
}

#[test]
fn devices_follow_their_replicas_within_one_transaction() {
    let (mut state, chat) = busy();
    // Moved away from G2, which a second replica then takes, and released, so that a third takes G1.
    let swap = vec![
        replica(&chat, 0, &["G1"]),
        replica(&chat, 1, &["G2"]),
        Change::ReplicaReleased("chat.g1.r0.0".parse().unwrap()),
        replica(&chat, 2, &["G1"]),
    ];
    apply(&mut state, swap).unwrap();
    let taken = apply(&mut state, vec![replica(&chat, 3, &["G5", "G2"])]).unwrap_err();
    let expected = TxRefusal::DeviceTaken {
        uuid: "G2".to_owned(),
        holder: "chat.g1.r0.1".parse().unwrap(),
        wanted: "chat.g1.r0.3".parse().unwrap(),
    };
    assert_eq!(taken, expected);
}

#[test]
fn a_replica_keeps_its_owner() {
    let (mut state, chat) = busy();
    let mut over = chat.clone();
    over.version = 2;
    over.state = JobState::Finished {
        reason: "cancelled".to_owned(),
    };
    let successor = job(2, "chat");
    apply(&mut state, vec![put(&over), put(&successor)]).unwrap();
    assert_eq!(state.job_named("chat").map(|j| j.id), Some(successor.id));
    assert!(apply(&mut state, vec![replica(&successor, 0, &["G8"])]).is_err());
    assert_eq!(state.replicas_of(chat.id).count(), 1);
    apply(
        &mut state,
        vec![Change::ReplicaReleased("chat.g1.r0.0".parse().unwrap())],
    )
    .unwrap();
    assert_eq!(state.jobs.len(), 1, "over and without replicas: history");
}

#[test]
fn beliefs_are_seed_plus_events() {
    let (mut state, _) = busy();
    apply(&mut state, vec![moves("edge:e1", -3), moves("edge:e1", 5)]).unwrap();
    let sum = state.beliefs[&"edge:e1".parse().unwrap()];
    let belief = sum.from_seed(crate::causal::Belief::of_counts(9, 1));
    assert_eq!(
        (belief.alpha_micro, belief.beta_micro),
        (9_000_012, 1_000_003)
    );
}

/// Ten thousand devices reserved in one plan: quadratic work would take minutes, not moments.
#[test]
fn reserving_a_whole_fleet_is_not_quadratic() {
    let chat = job(1, "chat");
    let mut state = ServerState::default();
    apply(&mut state, vec![put(&chat)]).unwrap();
    let names: Vec<String> = (0..20_000).map(|n| format!("GPU-{n:08}")).collect();
    let place = |(i, pair): (usize, &[String])| {
        let devices: Vec<&str> = pair.iter().map(String::as_str).collect();
        replica(&chat, u32::try_from(i).unwrap(), &devices)
    };
    let changes: Vec<Change> = names.chunks(2).enumerate().map(place).collect();
    apply(&mut state, changes).unwrap();
    assert_eq!(state.replicas.len(), 10_000);
    assert!(apply(&mut state, vec![replica(&chat, 10_000, &["GPU-00019999"])]).is_err());
}
