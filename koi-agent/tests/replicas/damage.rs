//! Damaged and missing records: moved aside, written anew from another proof, no proof of life.

use koi_shim::files::{EXIT_FILE, SPEC_FILE};
use koi_shim::record::ExitRecord;
use koi_shim::spec::ShimSpec;

use super::*;

fn aside(replica: &ReplicaProcess, name: &str) -> Vec<u8> {
    std::fs::read(replica.state_dir.join(format!("{name}.damaged"))).unwrap()
}

#[tokio::test]
async fn hazard_d6_a_damaged_identity_is_told_again_by_the_living_shim() {
    let host = Host::new();
    let replica = host.launch("exec sleep 1000").await;
    let path = replica.state_dir.join(IDENTITY_FILE);
    std::fs::write(&path, b"{garbage").unwrap();
    let found = adopt_one(&host.0, &replica.state_dir).await;
    assert!(
        matches!(&found, Adopted::Running(p) if **p == replica),
        "{found:?}"
    );
    assert_eq!(read_json(&path).unwrap(), Some(replica.identity.clone()));
    assert_eq!(aside(&replica, IDENTITY_FILE), b"{garbage");
}

#[tokio::test]
async fn hazard_d6_an_engine_is_known_by_its_mark_when_shim_and_identity_are_lost() {
    let host = Host::new();
    // Without its environment, as after a change of its title, the folder and the log tell.
    for script in ["exec sleep 1000", "exec env -i sleep 1000"] {
        let replica = host.launch(script).await;
        let name =
            || std::fs::read_to_string(format!("/proc/{}/comm", replica.identity.engine.pid));
        wait_for("the engine", || {
            (name().ok()?.trim() == "sleep").then_some(())
        })
        .await;
        kill9(replica.identity.shim).await;
        std::fs::write(replica.state_dir.join(IDENTITY_FILE), b"").unwrap();
        let again = launch(&host.0, &host.spec(0, "true")).await;
        assert!(
            matches!(again, Err(LaunchError::Unfinished(_))),
            "{again:?}"
        );
        let found = adopt_one(&host.0, &replica.state_dir).await;
        assert!(
            matches!(found, Adopted::Reshimmed(_)) && same_engine(&found, &replica),
            "{found:?}"
        );
        replica.kill().await.unwrap();
        wait_for("the end", || replica.exit_record().unwrap()?.group_gone_at).await;
        assert_eq!(replica.proof_of_exit().await.unwrap(), ExitProof::Gone);
    }
}

#[tokio::test]
async fn hazard_d6_damaged_notes_of_the_agent_are_written_anew_from_their_copy() {
    let host = Host::new();
    let replica = host.launch("exec sleep 1000").await;
    let path = replica.state_dir.join(REPLICA_FILE);
    for damage in [Some(&b"{"[..]), Some(&b"\0\0\0"[..]), None] {
        match damage {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let found = adopt_one(&host.0, &replica.state_dir).await;
        assert!(
            matches!(&found, Adopted::Running(p) if **p == replica),
            "{found:?}"
        );
        assert_eq!(read_json(&path).unwrap(), Some(replica.meta.clone()));
    }
    assert_eq!(aside(&replica, REPLICA_FILE), b"\0\0\0");
}

#[tokio::test]
async fn damaged_records_of_an_ended_launch_do_not_keep_the_next_one() {
    let host = Host::new();
    for damaged in [IDENTITY_FILE, EXIT_FILE, REPLICA_FILE] {
        let replica = host.launch("exit 1").await;
        wait_for("the end", || replica.exit_record().unwrap()?.group_gone_at).await;
        wait_for("the shim", || {
            (!is_alive(replica.identity.shim)).then_some(())
        })
        .await;
        std::fs::write(replica.state_dir.join(damaged), b"{").unwrap();
        let next = host.launch("exec sleep 1000").await;
        assert!(is_alive(next.identity.engine), "{damaged}");
        next.kill().await.unwrap();
        wait_for("the end", || next.exit_record().unwrap()?.group_gone_at).await;
        wait_for("the shim", || (!next.is_held()).then_some(())).await;
    }
}

#[tokio::test]
async fn a_launch_without_a_recorded_end_is_over_when_nothing_of_it_runs() {
    let host = Host::new();
    // A child that outlives its parent keeps the launch from being over.
    let replica = host
        .launch("setsid sleep 1000 & touch up; exec sleep 1001")
        .await;
    wait_for("the engine", || {
        replica.state_dir.join("up").exists().then_some(())
    })
    .await;
    kill9(replica.identity.shim).await;
    kill9(replica.identity.engine).await;
    let exit: Option<ExitRecord> = read_json(&replica.state_dir.join(EXIT_FILE)).unwrap();
    assert_eq!(exit, None);
    let early = launch(&host.0, &host.spec(0, "true")).await;
    assert!(
        matches!(early, Err(LaunchError::Unfinished(_))),
        "{early:?}"
    );
    replica.clear_away().await.unwrap();
    let next = host.launch("exec sleep 1000").await;
    assert!(is_alive(next.identity.engine));
}

#[tokio::test]
async fn hazard_d6_ports_of_what_runs_are_not_given_again_when_their_ledger_is_lost() {
    let host = Host::new();
    let mut spec = host.spec(0, "exec sleep 1000");
    (spec.meta.port, spec.meta.secondary_ports) = (23000, (23001..=23008).collect());
    let replica = launch(&host.0, &spec).await.unwrap();
    let ledger = host.root().join("ports.json");
    std::fs::write(&ledger, b"").unwrap();
    let launcher = super::silent::launcher(host.0.clone(), &host.root());
    let adopted = koi_agent::run::adopt(&launcher).await.unwrap();
    assert_eq!(adopted, std::slice::from_ref(&replica));
    let mut ports = launcher.ports.lock().unwrap();
    let id = &replica.meta.replica_id;
    let kept = ports.of(id).unwrap().clone();
    assert_eq!(
        (kept.api, &kept.secondary),
        (23000, &spec.meta.secondary_ports)
    );
    let next = ports.lease(&"chat.g2.r0.0".parse().unwrap(), 8).unwrap();
    let given = std::iter::once(next.lease.api).chain(next.lease.secondary.iter().copied());
    let twice: Vec<u16> = given.filter(|port| *port <= 23008).collect();
    assert_eq!(twice, Vec::<u16>::new());
    let stored: BTreeMap<String, serde_json::Value> = read_json(&ledger).unwrap().unwrap();
    assert!(stored.contains_key(&id.to_string()), "{stored:?}");
}

/// Takes away what a lost `replica.json` could be written anew from.
pub(crate) fn without_copy(replica: &ReplicaProcess) {
    let path = replica.state_dir.join(SPEC_FILE);
    let mut spec: ShimSpec = read_json(&path).unwrap().unwrap();
    spec.agent_note.clear();
    write_json(&path, &spec).unwrap();
}
