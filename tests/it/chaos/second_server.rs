//! A second server on the database of one that serves: it does no harm when it cannot serve itself, and
//! when it can, one of the two leads and the other says so.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::koi::{Koi, LIMIT};
use super::{programs, wait};

/// Exit code of a server that lost the lead.
const LEAD_LOST: i32 = 75;

fn serve(config: &Path, log: &Path) -> Child {
    Command::new(programs().join("koi-server"))
        .arg("serve")
        .arg("--config")
        .arg(config)
        .env_remove("KOI_DATABASE_URL")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log).unwrap())
        .spawn()
        .unwrap()
}

/// The epoch under which a tick runs now.
fn epoch(koi: &Koi) -> i64 {
    let ran = koi.run(["tick", "run"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    koi.json("ticks")[0]["epoch"].as_i64().unwrap()
}

/// The cluster's settings with addresses and a folder of its own.
fn settings_elsewhere(koi: &Koi) -> PathBuf {
    let text = std::fs::read_to_string(koi.data().join("server.toml")).unwrap();
    let elsewhere = koi.data().join("second");
    std::fs::create_dir_all(&elsewhere).unwrap();
    let line = |line: &str| match line.split_once(" = ").map(|(key, _)| key) {
        Some(key @ ("listen" | "metrics_listen")) => format!("{key} = \"127.0.0.1:0\""),
        Some(key @ ("data_dir" | "endpoints_dir")) => format!("{key} = {elsewhere:?}"),
        _ => line.to_owned(),
    };
    let lines: Vec<String> = text.lines().map(line).collect();
    let path = elsewhere.join("server.toml");
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

#[test]
fn hazard_a11_a_second_server_that_cannot_serve_does_not_unseat_the_first() {
    let koi = Koi::new("second-server");
    let up = koi.up_with(&["--no-jobs".into(), "--tick-interval".into(), "5s".into()]);
    assert_eq!(up.code, Some(0), "{}{}", up.out, up.err);
    let before = epoch(&koi);
    let log = koi.data().join("second.log");

    let mut twin = serve(&koi.data().join("server.toml"), &log);
    assert_eq!(wait(&mut twin, LIMIT).code(), Some(1));
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("in use"), "{said}");
    assert!(!said.contains("this server leads"), "{said}");
    assert_eq!(epoch(&koi), before, "the first server still leads");

    // One that can serve takes the lead. The first ends, is started again and takes it back.
    let mut other = serve(&settings_elsewhere(&koi), &log);
    let ended = wait(&mut other, LIMIT).code();
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(ended, Some(LEAD_LOST), "{said}");
    assert!(
        said.contains("another server leads this database"),
        "{said}"
    );
    assert!(epoch(&koi) > before + 1);
    let events = std::fs::read_to_string(koi.data().join("logs/server.log")).unwrap();
    assert!(events.contains("it has epoch"), "{events}");
}
