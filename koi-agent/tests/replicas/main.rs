//! Replicas through the agent's own interface, with real shims and real processes.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]

mod damage;
mod orphans;
mod second_agent;
mod silent;
mod simulated;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use koi_agent::supervise::adoption::{Adopted, adopt_all, adopt_one, forget};
use koi_agent::supervise::binaries::find_binary;
use koi_agent::supervise::control::{ControlError, WatchEvent};
use koi_agent::supervise::launch::{LaunchError, LaunchSpec, launch};
use koi_agent::supervise::{
    ExitProof, REPLICA_FILE, ReplicaMeta, ReplicaProcess, Supervision, new_nonce,
};
use koi_core::job::EngineName;
use koi_shim::files::{IDENTITY_FILE, read_json, write_json};
use koi_shim::process::{is_alive, now};
use koi_shim::record::{Identity, ProcessRef, StopRequest};
use koi_shim::tree::{Depth, OwnedTree, signal_exactly};
use rustix::process::Signal;

/// A program of this build; built here when only this package's tests are run.
fn program(name: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _turn = BUILDING.lock().unwrap();
    if std::env::var_os("KOI_BIN_DIR").is_none() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", name])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success());
    }
    find_binary(name).unwrap()
}

fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| program("koi-shim"))
}

/// A host's state root that takes its processes with it.
struct Host(Supervision);

impl Host {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // Longer than a socket address may be, as a data directory easily is.
        let deep = "a-data-directory-with-a-long-name/".repeat(4);
        let root = std::env::temp_dir().join(format!("koi-agent-it-{}-{n}", std::process::id()));
        Self(Supervision {
            state_root: root.join(deep),
            shim: shim().to_owned(),
            cluster_id: Some("test-cluster".to_owned()),
        })
    }

    fn spec(&self, index: u32, script: &str) -> LaunchSpec {
        let meta = ReplicaMeta {
            replica_id: format!("chat.g1.r0.{index}").parse().unwrap(),
            nonce: new_nonce().unwrap(),
            engine: EngineName::Sim,
            served_model_name: "tiny".to_owned(),
            host: "127.0.0.1".to_owned(),
            port: 20000,
            secondary_ports: vec![20001],
            gpu_uuids: vec!["GPU-0".to_owned()],
            launched_at: now(),
            labels: BTreeMap::from([("slot".to_owned(), "7".to_owned())]),
        };
        LaunchSpec {
            meta,
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            log_max_bytes: 1 << 20,
            grace_s: 5,
        }
    }

    async fn launch(&self, script: &str) -> ReplicaProcess {
        launch(&self.0, &self.spec(0, script)).await.unwrap()
    }

    fn root(&self) -> PathBuf {
        let depth = 4;
        self.0.state_root.ancestors().nth(depth).unwrap().to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let folders = std::fs::read_dir(&self.0.state_root).into_iter().flatten();
        for folder in folders.filter_map(|f| Some(f.ok()?.path())) {
            let Ok(Some(identity)) = read_json::<Identity>(&folder.join(IDENTITY_FILE)) else {
                continue;
            };
            let _sent = signal_exactly(identity.shim, Signal::KILL);
            for member in OwnedTree::of(&identity)
                .members(Depth::Marked)
                .unwrap_or_default()
            {
                let _sent = signal_exactly(member.process, Signal::KILL);
            }
        }
        drop(std::fs::remove_dir_all(self.root()));
    }
}

async fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited 20 s for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn kill9(process: ProcessRef) {
    assert!(signal_exactly(process, Signal::KILL));
    wait_for("a process to be gone", || {
        (!is_alive(process)).then_some(())
    })
    .await;
}

fn same_engine(found: &Adopted, replica: &ReplicaProcess) -> bool {
    let (Adopted::Running(process) | Adopted::Reshimmed(process)) = found else {
        return false;
    };
    process.meta == replica.meta && process.identity.engine == replica.identity.engine
}

#[tokio::test]
async fn a_replica_lives_and_ends_in_order() {
    let host = Host::new();
    let replica = host
        .launch("trap 'exit 0' TERM; echo $KOI_CLUSTER_ID; touch up; while :; do sleep .05; done")
        .await;
    wait_for("the engine", || {
        replica.state_dir.join("up").exists().then_some(())
    })
    .await;
    let status = replica.status().await.unwrap();
    assert_eq!(status.identity, replica.identity);
    assert!(matches!(
        replica.proof_of_exit().await.unwrap(),
        ExitProof::Survivors(_)
    ));
    let mut watch = replica.watch().await.unwrap();
    replica.terminate(Some(10)).await.unwrap();
    let WatchEvent::Exited(exit) = watch.next().await.unwrap() else {
        panic!("no exit")
    };
    assert_eq!(
        (exit.code, exit.requested),
        (Some(0), StopRequest::Terminate)
    );
    let WatchEvent::Gone(exit) = watch.next().await.unwrap() else {
        panic!("not gone")
    };
    assert_eq!(replica.exit_record().unwrap(), Some(*exit));
    assert_eq!(replica.proof_of_exit().await.unwrap(), ExitProof::Gone);
    assert_eq!(
        std::fs::read_to_string(replica.log_path()).unwrap(),
        "test-cluster\n"
    );
    assert!(matches!(
        replica.ping().await,
        Err(ControlError::NotServed { .. })
    ));
    forget(&replica.state_dir).unwrap();
    assert_eq!(adopt_all(&host.0).await.unwrap(), []);
}

#[tokio::test]
async fn hazard_d1_a_new_agent_finds_every_replica_again() {
    let host = Host::new();
    let mut launched = Vec::new();
    for index in 0..3 {
        launched.push(
            launch(&host.0, &host.spec(index, "exec sleep 1000"))
                .await
                .unwrap(),
        );
    }
    let began = Instant::now();
    let found = adopt_all(&host.0).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(found.len(), 3);
    for (outcome, replica) in found.iter().zip(&launched) {
        assert!(
            matches!(&outcome.found, Adopted::Running(p) if **p == *replica),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn hazard_d3_a_lost_shim_is_noticed_and_replaced_around_the_same_engine() {
    let host = Host::new();
    let replica = host.launch("exec sleep 1000").await;
    for _ in 0..3 {
        let Adopted::Running(now) = adopt_one(&host.0, &replica.state_dir).await else {
            panic!("not running")
        };
        let mut watch = now.watch().await.unwrap();
        kill9(now.identity.shim).await;
        assert_eq!(watch.next().await.unwrap(), WatchEvent::ShimLost);
        let found = adopt_one(&host.0, &replica.state_dir).await;
        assert!(matches!(found, Adopted::Reshimmed(_)) && same_engine(&found, &replica));
    }
    let again = launch(&host.0, &host.spec(0, "true")).await;
    assert!(matches!(again, Err(LaunchError::AlreadyRuns(_))));
    let Adopted::Running(now) = adopt_one(&host.0, &replica.state_dir).await else {
        panic!()
    };
    kill9(now.identity.shim).await;
    let again = launch(&host.0, &host.spec(0, "true")).await;
    assert!(matches!(again, Err(LaunchError::Unfinished(_))));
    assert!(is_alive(replica.identity.engine));
}

#[tokio::test]
async fn hazard_e8_a_killed_parent_is_told_at_once_and_takes_its_children_along() {
    let host = Host::new();
    let replica = host
        .launch("(setsid sleep 1000 &); sleep 1001 & touch up; wait")
        .await;
    wait_for("the engine", || {
        replica.state_dir.join("up").exists().then_some(())
    })
    .await;
    let mut watch = replica.watch().await.unwrap();
    let began = Instant::now();
    assert!(signal_exactly(replica.identity.engine, Signal::KILL));
    let WatchEvent::Exited(exit) = watch.next().await.unwrap() else {
        panic!("no exit")
    };
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "unpublish at once"
    );
    assert_eq!((exit.signal, exit.requested), (Some(9), StopRequest::None));
    let WatchEvent::Gone(exit) = watch.next().await.unwrap() else {
        panic!("not gone")
    };
    assert_eq!(exit.leftovers_killed, 2);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(replica.proof_of_exit().await.unwrap(), ExitProof::Gone);
}

#[tokio::test]
async fn hazard_d5_a_replica_of_another_boot_is_reported_and_never_signalled() {
    let host = Host::new();
    let replica = host.launch("exec sleep 1000").await;
    kill9(replica.identity.shim).await;
    let path = replica.state_dir.join(IDENTITY_FILE);
    let older = Identity {
        boot_id: "another boot".to_owned(),
        ..replica.identity.clone()
    };
    write_json(&path, &older).unwrap();
    let found = adopt_one(&host.0, &replica.state_dir).await;
    assert!(matches!(found, Adopted::OtherBoot(_)), "{found:?}");
    assert!(is_alive(replica.identity.engine));
    write_json(&path, &replica.identity).unwrap();
}

#[tokio::test]
async fn hazard_d6_a_lost_note_of_the_agent_kills_nothing_and_hides_no_neighbour() {
    let host = Host::new();
    let broken = host.launch("exec sleep 1000").await;
    let sound = launch(&host.0, &host.spec(1, "exec sleep 1000"))
        .await
        .unwrap();
    damage::without_copy(&broken);
    std::fs::write(broken.state_dir.join(REPLICA_FILE), b"{").unwrap();
    let found = adopt_all(&host.0).await.unwrap();
    assert!(
        matches!(found[0].found, Adopted::Unusable(_)),
        "{:?}",
        found[0]
    );
    assert!(same_engine(&found[1].found, &sound));
    assert!(is_alive(broken.identity.engine));
}

#[tokio::test]
async fn an_ended_replica_can_be_launched_again_and_keeps_the_old_log_apart() {
    let host = Host::new();
    let first = host.launch("echo first; exit 1").await;
    wait_for("the end", || first.exit_record().unwrap()?.group_gone_at).await;
    wait_for("the shim", || {
        (!is_alive(first.identity.shim)).then_some(())
    })
    .await;
    let found = adopt_one(&host.0, &first.state_dir).await;
    assert!(
        matches!(&found, Adopted::Ended(_, exit) if exit.code == Some(1)),
        "{found:?}"
    );
    let second = host.launch("echo second; exec sleep 1000").await;
    assert_ne!(first.meta.nonce, second.meta.nonce);
    assert_eq!(second.exit_record().unwrap(), None);
    let log = || {
        std::fs::read_to_string(second.log_path())
            .ok()
            .filter(|l| !l.is_empty())
    };
    assert_eq!(wait_for("the log", log).await, "second\n");
    let previous = second.state_dir.join("engine.log.prev");
    assert_eq!(std::fs::read_to_string(previous).unwrap(), "first\n");
}

#[tokio::test]
async fn a_program_that_is_missing_is_a_refusal_with_its_reason() {
    let host = Host::new();
    let mut spec = host.spec(0, "");
    spec.argv = vec!["/nonexistent/vllm".to_owned()];
    match launch(&host.0, &spec).await {
        Err(LaunchError::Refused { message, .. }) => assert!(message.contains("/nonexistent/vllm")),
        other => panic!("{other:?}"),
    }
    spec.argv = vec!["/bin/true".to_owned()];
    launch(&host.0, &spec).await.unwrap();
}

/// A lock that one launch looks at must not leak into the children another one forks.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn launches_side_by_side_do_not_disturb_each_other() {
    let host = Host::new();
    let launches: Vec<_> = (0..8)
        .map(|index| {
            let (supervision, spec) = (host.0.clone(), host.spec(index, "exec sleep 1000"));
            tokio::spawn(async move { launch(&supervision, &spec).await })
        })
        .collect();
    for launched in launches {
        launched.await.unwrap().unwrap();
    }
    let found = adopt_all(&host.0).await.unwrap();
    assert!(
        found.iter().all(|o| matches!(o.found, Adopted::Running(_))),
        "{found:?}"
    );
    assert_eq!(found.len(), 8);
}
