//! The simulated engine through the whole of the agent's process control: command line, shim,
//! devices, gate, readiness, scrape, and both kinds of half death.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use koi_agent::engine::sim::SimSettings;
use koi_agent::engine::{EngineLaunch, EngineSettings, command};
use koi_agent::gpu::GpuProbe;
use koi_agent::gpu::gate::{GateRefusal, gate};
use koi_agent::gpu::sim::SimProbe;
use koi_agent::ports::PortLedger;
use koi_agent::probe::probe_token;
use koi_agent::scrape::scrape;
use koi_agent::supervise::control::is_engine_core;
use koi_agent::supervise::listener::listens;

use super::*;

const INVENTORY: &str = r#"{"gpu_type": "H100", "idle_power_w": 70.0,
    "environment": "reserved/aws/us-east-1/a/H100",
    "gpus": [{"uuid": "GPU-0", "index": 0, "name": "H100", "memory_bytes": 85899345920,
              "power_limit_w": 700.0}]}"#;
const MODEL: &str = r#"{"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "torch_dtype": "bfloat16", "max_position_embeddings": 4096, "model_type": "llama",
    "tie_word_embeddings": false}"#;

/// A simulated host with one running replica.
struct Running {
    host: Host,
    probe: SimProbe,
    replica: ReplicaProcess,
    address: SocketAddr,
}

async fn start(index: u32) -> Running {
    let host = Host::new();
    let gpus = host.root().join("gpus");
    std::fs::create_dir_all(gpus.join("model")).unwrap();
    std::fs::create_dir_all(&host.0.state_root).unwrap();
    std::fs::write(gpus.join("gpus.json"), INVENTORY).unwrap();
    std::fs::write(gpus.join("model/config.json"), MODEL).unwrap();
    let probe = SimProbe::open(&gpus).unwrap();
    assert_eq!(free(&probe), Ok(()));
    let mut spec = host.spec(0, "");
    let first = 21100 + 10 * index as u16;
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let ledger = host.root().join("ports.json");
    let held = PortLedger::open(&ledger, first..=first + 9, loopback)
        .lease(&spec.meta.replica_id, 2)
        .unwrap();
    let engine = EngineLaunch {
        engine: EngineName::Sim,
        model: gpus.join("model").display().to_string(),
        served_model_name: "tiny".to_owned(),
        engine_args: vec!["--max-num-seqs=64".to_owned()],
        host: loopback.to_string(),
        port: held.lease.api,
        secondary_ports: held.lease.secondary.clone(),
        gpu_uuids: vec!["GPU-0".to_owned()],
        extra_env: BTreeMap::from([("KOI_SIM_LOAD_BYTES_PER_SEC".to_owned(), "1e12".to_owned())]),
    };
    let sim = SimSettings {
        program: program("koi-engine-sim"),
        gpu_dir: gpus,
    };
    let settings = EngineSettings {
        vllm: None,
        sim: Some(sim),
    };
    let rendered = command(&settings, &engine, &host.0.folder(&spec.meta.replica_id)).unwrap();
    (spec.argv, spec.env) = (rendered.argv, rendered.env);
    let address = SocketAddr::new(loopback, held.hand_over().api);
    let replica = launch(&host.0, &spec).await.unwrap();
    let ready = Instant::now();
    while let Err(error) = probe_token(address, "tiny", Duration::from_secs(5)).await {
        assert!(ready.elapsed() < Duration::from_secs(40), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Running {
        host,
        probe,
        replica,
        address,
    }
}

fn free(probe: &SimProbe) -> Result<(), Vec<GateRefusal>> {
    gate(
        &probe.read().unwrap(),
        &["GPU-0".to_owned()],
        &BTreeSet::new(),
    )
}

#[tokio::test]
async fn a_simulated_engine_is_ready_measured_and_stopped() {
    let running = start(0).await;
    let page = scrape(running.address).await.unwrap();
    assert!(page.contains("vllm:num_requests_running"));
    let members = OwnedTree::of(&running.replica.identity)
        .members(Depth::Marked)
        .unwrap();
    assert!(listens(&members, running.address.port()).unwrap());
    let held = free(&running.probe).unwrap_err();
    let ours: BTreeSet<u32> = members.iter().map(|m| m.process.pid).collect();
    assert!(
        matches!(&held[0], GateRefusal::Held { pid, .. } if ours.contains(pid)),
        "{held:?}"
    );
    let look = running.probe.read().unwrap();
    assert_eq!(gate(&look, &["GPU-0".to_owned()], &ours), Ok(()));
    let wrong = probe_token(running.address, "other", Duration::from_secs(5)).await;
    assert!(wrong.is_err());
    running.replica.terminate(Some(10)).await.unwrap();
    let exit = wait_for("the end", || {
        running
            .replica
            .exit_record()
            .unwrap()
            .filter(|e| e.group_gone_at.is_some())
    })
    .await;
    assert_eq!(
        (exit.code, exit.requested),
        (Some(0), StopRequest::Terminate)
    );
    assert_eq!(free(&running.probe), Ok(()));
    assert_eq!(
        running.replica.proof_of_exit().await.unwrap(),
        ExitProof::Gone
    );
}

#[tokio::test]
async fn hazard_e8_memory_is_free_soon_after_the_parent_alone_is_killed() {
    let running = start(1).await;
    let killed = Instant::now();
    assert!(signal_exactly(
        running.replica.identity.engine,
        Signal::KILL
    ));
    wait_for("free memory", || free(&running.probe).ok()).await;
    assert!(
        killed.elapsed() < Duration::from_secs(3),
        "{:?}",
        killed.elapsed()
    );
    let found = wait_for("the shim's record", || {
        running
            .replica
            .exit_record()
            .unwrap()
            .filter(|e| e.group_gone_at.is_some())
    });
    assert_eq!(found.await.signal, Some(9));
    let found = adopt_one(&running.host.0, &running.replica.state_dir).await;
    assert!(matches!(found, Adopted::Ended(..)), "{found:?}");
}

#[tokio::test]
async fn hazard_e7_a_killed_engine_core_is_told_within_three_seconds() {
    let running = start(2).await;
    let replica = &running.replica;
    let engine = replica.identity.engine;
    let members = OwnedTree::of(&replica.identity)
        .members(Depth::Descent)
        .unwrap();
    let core = members
        .iter()
        .find(|m| m.process != engine && is_engine_core(m))
        .unwrap();
    let mut watch = replica.watch().await.unwrap();
    tokio::time::sleep(Duration::from_millis(3500)).await;
    let killed = Instant::now();
    assert!(signal_exactly(core.process, Signal::KILL));
    let told = watch.next().await.unwrap();
    assert!(
        killed.elapsed() < Duration::from_secs(3),
        "{:?}",
        killed.elapsed()
    );
    match told {
        WatchEvent::Lost(lost) => assert_eq!(lost.member.process, core.process),
        WatchEvent::Exited(exit) => assert_eq!(exit.engine, Some(engine)),
        other => panic!("{other:?}"),
    }
    wait_for("free memory", || free(&running.probe).ok()).await;
    assert!(killed.elapsed() < Duration::from_secs(10));
}
