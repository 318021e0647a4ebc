//! A dead shim is replaced; the engine does not notice.

use std::process::Command;

use koi_shim::files::{EXIT_FILE, IDENTITY_FILE, write_json};
use koi_shim::process::{is_alive, reference};
use koi_shim::record::{Identity, Operation, Reply, ShimPhase, StopRequest};
use koi_shim::spec::FORMAT;

use super::{Folder, file_exists, gone, kill9};

#[test]
fn hazard_d3_shim_killed_engine_lives() {
    let folder = Folder::new();
    let first =
        folder.run_script("trap 'exit 5' TERM; sleep 1000 & touch up; while :; do sleep .05; done");
    file_exists(&folder.path.join("up"));
    for adoptions in 1..=3 {
        kill9(folder.identity().shim);
        assert!(is_alive(first.engine));
        let out = folder.shim("adopt");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        let now = folder.identity();
        assert_eq!((now.engine, now.adoptions), (first.engine, adoptions));
        assert_ne!(now.shim, first.shim);
        assert_eq!(folder.status().phase, ShimPhase::Running);
    }
    assert_eq!(folder.ask(Operation::Term { grace_s: Some(10) }), Reply::Ok);
    let exit = folder.finished();
    assert_eq!(
        (exit.code, exit.signal),
        (None, None),
        "not our child, so not seen"
    );
    assert_eq!(
        (exit.requested, exit.leftovers_killed),
        (StopRequest::Terminate, 1)
    );
    gone(first.engine);
}

#[test]
fn hazard_d3_an_engine_that_died_with_its_shim_is_buried() {
    let folder = Folder::new();
    let identity = folder.run_script("(setsid sleep 1000 &); sleep 1001");
    let members = folder.members(3);
    kill9(identity.shim);
    kill9(identity.engine);
    let out = folder.shim("adopt");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let exit = folder.exit().unwrap();
    assert!(exit.group_gone_at.is_some());
    assert_eq!(exit.leftovers_killed, 2);
    assert!(members.iter().all(|m| !is_alive(m.process)));
}

#[test]
fn hazard_d6_a_lost_identity_file_still_finds_the_tree_by_its_nonce() {
    let folder = Folder::new();
    let identity = folder.run_script("sleep 1000 & wait");
    let members = folder.members(2);
    kill9(identity.shim);
    std::fs::remove_file(folder.path.join(IDENTITY_FILE)).unwrap();
    assert!(folder.shim("adopt").status.success());
    assert!(members.iter().all(|m| !is_alive(m.process)));
    assert!(folder.exit().unwrap().group_gone_at.is_some());
}

/// A record whose pids now belong to somebody else.
fn record_of_a_stranger(
    folder: &Folder,
    change: impl FnOnce(&mut Identity),
) -> std::process::Child {
    let first = folder.run(&folder.spec(&["/bin/true"]));
    folder.finished();
    gone(first.shim);
    std::fs::remove_file(folder.path.join(EXIT_FILE)).unwrap();
    let stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut identity = first;
    identity.engine = reference(stranger.id()).unwrap();
    identity.pgid = stranger.id();
    change(&mut identity);
    write_json(&folder.path.join(IDENTITY_FILE), &identity).unwrap();
    stranger
}

#[test]
fn hazard_d7_a_stranger_with_the_recorded_pid_is_not_touched() {
    let changes: [fn(&mut Identity); 3] = [
        |i| i.engine.start_ticks -= 1,
        |i| i.boot_id = "another boot".to_owned(),
        |_| {},
    ];
    let expected = [0, 4, 4];
    for (change, code) in changes.into_iter().zip(expected) {
        let folder = Folder::new();
        let mut stranger = record_of_a_stranger(&folder, change);
        assert_eq!(folder.shim("adopt").status.code(), Some(code));
        assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

#[test]
fn hazard_d2_a_newer_identity_file_is_left_alone() {
    let folder = Folder::new();
    let identity = folder.run(&folder.spec(&["/bin/sleep", "1000"]));
    kill9(identity.shim);
    let newer = Identity {
        format: FORMAT + 1,
        ..identity.clone()
    };
    write_json(&folder.path.join(IDENTITY_FILE), &newer).unwrap();
    assert_eq!(folder.shim("adopt").status.code(), Some(1));
    assert!(is_alive(identity.engine));
}
