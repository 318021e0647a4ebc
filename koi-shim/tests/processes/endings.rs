//! How engines end, and what the record says.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use koi_shim::files::{SPEC_FILE, write_json};
use koi_shim::process::{is_alive, reference};
use koi_shim::record::{Operation, Reply, ShimPhase, StopRequest};
use rustix::process::{Signal, kill_process_group};

use super::{Folder, SHIM, file_exists, gone, kill9, read_reply, wait_for};

#[test]
fn an_engine_that_ends_by_itself_leaves_its_exit_code() {
    let folder = Folder::new();
    let identity = folder.run_script("echo bye; exit 7");
    let exit = folder.finished();
    assert_eq!(
        (exit.code, exit.signal, exit.requested),
        (Some(7), None, StopRequest::None)
    );
    assert_eq!(exit.engine, Some(identity.engine));
    assert_eq!(folder.log(), "bye\n");
    gone(identity.shim);
    assert!(folder.connect().is_err());
}

#[test]
fn hazard_d1_the_engine_outlives_the_kill_of_its_starter_and_its_group() {
    let folder = Folder::new();
    write_json(
        &folder.path.join(SPEC_FILE),
        &folder.spec(&["/bin/sleep", "1000"]),
    )
    .unwrap();
    let mut agent = Command::new("/bin/sh")
        .args([
            "-c",
            "\"$0\" run --state-dir \"$1\"; touch started; exec sleep 1000",
            SHIM,
        ])
        .arg(&folder.path)
        .current_dir(&folder.path)
        .process_group(0)
        .spawn()
        .unwrap();
    file_exists(&folder.path.join("started"));
    let group = rustix::process::Pid::from_raw(agent.id() as i32).unwrap();
    kill_process_group(group, Signal::KILL).unwrap();
    agent.wait().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let identity = folder.identity();
    assert!(is_alive(identity.engine) && is_alive(identity.shim));
    assert_eq!(folder.ask(Operation::Ping), Reply::Ok);
    let stat = koi_shim::process::stat(identity.engine.pid).unwrap();
    assert_eq!(
        (stat.pgid, stat.sid),
        (identity.engine.pid, identity.shim.pid)
    );
}

#[test]
fn hazard_e8_killing_the_parent_alone_leaves_nothing_behind() {
    let folder = Folder::new();
    let identity = folder.run_script("sleep 1000 & (setsid sleep 1001 &) ; wait");
    let before = folder.members(3);
    let at = Instant::now();
    assert!(koi_shim::tree::signal_exactly(
        identity.engine,
        Signal::KILL
    ));
    let exit = folder.finished();
    assert!(at.elapsed() < Duration::from_secs(3));
    assert_eq!((exit.code, exit.signal), (None, Some(9)));
    assert_eq!(exit.leftovers_killed, 2);
    assert!(before.iter().all(|m| !is_alive(m.process)));
}

#[test]
fn hazard_e7_a_lost_child_is_told_at_once_while_the_parent_lives() {
    let folder = Folder::new();
    let identity = folder.run_script("sleep 1000 & wait; exec sleep 1001");
    let members = folder.members(2);
    let child = members
        .iter()
        .map(|m| m.process)
        .find(|p| *p != identity.engine)
        .unwrap();
    let mut watcher = folder.watch();
    std::thread::sleep(Duration::from_millis(4200));
    let at = Instant::now();
    kill9(child);
    let Some(Reply::Lost(lost)) = read_reply(&mut watcher) else {
        panic!("no word")
    };
    assert!(
        at.elapsed() < Duration::from_millis(500),
        "{:?}",
        at.elapsed()
    );
    assert_eq!(
        (lost.member.process, lost.member.name.as_str()),
        (child, "sleep")
    );
    assert_eq!(folder.status().lost, [*lost]);
    assert!(is_alive(identity.engine));
}

#[test]
fn term_ends_an_engine_that_listens() {
    let folder = Folder::new();
    folder.run_script("trap 'echo drained; exit 0' TERM; touch up; while :; do sleep .05; done");
    file_exists(&folder.path.join("up"));
    let mut watcher = folder.watch();
    assert_eq!(folder.ask(Operation::Term { grace_s: Some(10) }), Reply::Ok);
    let Some(Reply::Exited(told)) = read_reply(&mut watcher) else {
        panic!("no word")
    };
    assert_eq!(
        (told.code, told.requested),
        (Some(0), StopRequest::Terminate)
    );
    assert_eq!(read_reply(&mut watcher), None);
    assert_eq!(folder.finished().code, Some(0));
    assert_eq!(folder.log(), "drained\n");
}

#[test]
fn hazard_e19_an_engine_that_ignores_term_is_killed_after_the_grace() {
    let folder = Folder::new();
    folder.run_script("trap '' TERM; touch up; while :; do sleep .05; done");
    file_exists(&folder.path.join("up"));
    let at = Instant::now();
    assert_eq!(folder.ask(Operation::Term { grace_s: Some(1) }), Reply::Ok);
    assert_eq!(folder.status().phase, ShimPhase::Stopping);
    let exit = folder.finished();
    assert!(at.elapsed() >= Duration::from_secs(1) && at.elapsed() < Duration::from_secs(4));
    assert_eq!(
        (exit.signal, exit.requested),
        (Some(9), StopRequest::Escalated)
    );
}

#[test]
fn kill_takes_the_whole_tree() {
    let folder = Folder::new();
    folder.run_script("sleep 1000 & sleep 1001 & wait");
    let before = folder.members(3);
    assert_eq!(folder.ask(Operation::Kill), Reply::Ok);
    let exit = folder.finished();
    assert_eq!((exit.signal, exit.requested), (Some(9), StopRequest::Kill));
    assert!(before.iter().all(|m| !is_alive(m.process)));
}

#[test]
fn hazard_d14_orphans_are_reaped_and_gone_before_the_end_is_reported() {
    let folder = Folder::new();
    let identity = folder.run_script("(sleep .2 & ) ; (sleep .2 &) ; sleep 1000");
    folder.members(4);
    folder.members(2);
    let zombies = || {
        let all = koi_shim::process::scan().unwrap();
        all.iter()
            .filter(|s| s.sid == identity.session.pid && s.state == 'Z')
            .count()
    };
    wait_for("reaping", || (zombies() == 0).then_some(()));
    assert_eq!(folder.ask(Operation::Kill), Reply::Ok);
    folder.finished();
    gone(identity.shim);
}

#[test]
fn a_term_to_the_shim_ends_the_engine_in_order() {
    let folder = Folder::new();
    let identity = folder.run_script("trap 'exit 3' TERM; touch up; while :; do sleep .05; done");
    file_exists(&folder.path.join("up"));
    assert!(koi_shim::tree::signal_exactly(identity.shim, Signal::TERM));
    assert_eq!(folder.finished().code, Some(3));
}

#[test]
fn a_request_with_another_nonce_is_refused() {
    let folder = Folder::new();
    let identity = folder.run(&folder.spec(&["/bin/sleep", "1000"]));
    for bad in ["", "00", "0123456789abcdef0123456789abcdef"] {
        assert!(matches!(
            folder.ask_as(Operation::Kill, bad),
            Reply::Error { .. }
        ));
    }
    let mut raw = folder.connect().unwrap();
    raw.get_mut().write_all(b"not json\n").unwrap();
    assert!(matches!(read_reply(&mut raw), Some(Reply::Error { .. })));
    let mut flood = folder.connect().unwrap();
    drop(flood.get_mut().write_all(&[b'x'; 20_000]));
    assert!(matches!(read_reply(&mut flood), Some(Reply::Error { .. })));
    assert!(is_alive(identity.engine));
    assert_eq!(folder.status().phase, ShimPhase::Running);
}

#[test]
fn a_program_that_does_not_exist_is_said_at_once() {
    let folder = Folder::new();
    write_json(
        &folder.path.join(SPEC_FILE),
        &folder.spec(&["/nonexistent/engine"]),
    )
    .unwrap();
    let out = folder.shim("run");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nonexistent/engine"));
    assert!(folder.finished().spawn_error.is_some());
}

#[test]
fn a_bad_specification_is_refused_before_anything_runs() {
    let folder = Folder::new();
    let mut spec = folder.spec(&[]);
    spec.nonce = "short".to_owned();
    write_json(&folder.path.join(SPEC_FILE), &spec).unwrap();
    let out = folder.shim("run");
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("argv") && said.contains("nonce"), "{said}");
}

#[test]
fn two_shims_never_serve_one_folder() {
    let folder = Folder::new();
    let identity = folder.run(&folder.spec(&["/bin/sleep", "1000"]));
    assert_eq!(folder.shim("run").status.code(), Some(1));
    assert_eq!(folder.shim("adopt").status.code(), Some(3));
    assert_eq!(folder.identity(), identity);
    assert_eq!(folder.ask(Operation::Ping), Reply::Ok);
    assert_eq!(reference(identity.engine.pid), Some(identity.engine));
}
