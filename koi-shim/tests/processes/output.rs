//! The engine's words, environment and output.

use std::collections::BTreeMap;

use super::{Folder, wait_for};

#[test]
fn hazard_k6_hostile_words_reach_the_engine_literally() {
    let folder = Folder::new();
    let hostile = [
        "$(touch pwned)",
        "; touch pwned",
        "`id`",
        "a\nb",
        "--x=\"'\\",
        "",
        "*",
        "é\u{202e}",
    ];
    let mut argv = vec![
        "/bin/sh",
        "-c",
        "for w; do printf '%s\\0' \"$w\"; done",
        "sh",
    ];
    argv.extend(hostile);
    folder.run(&folder.spec(&argv));
    folder.finished();
    let said = folder.log();
    let words: Vec<&str> = said.strip_suffix('\0').unwrap().split('\0').collect();
    assert_eq!(words, hostile);
    assert!(!folder.path.join("pwned").exists());
}

#[test]
fn hazard_k7_the_environment_is_exactly_the_given_one() {
    let folder = Folder::new();
    let mut spec = folder.spec(&["/usr/bin/env", "-0"]);
    spec.env.insert("HOSTILE".to_owned(), "$(id)\n;".to_owned());
    folder.run(&spec);
    folder.finished();
    let said = folder.log();
    let mut found: BTreeMap<&str, &str> = said
        .split_terminator('\0')
        .map(|e| e.split_once('=').unwrap())
        .collect();
    found.remove("KOI_CLUSTER_ID");
    let nonce = folder.nonce.clone();
    let expected = BTreeMap::from([
        ("PATH", "/usr/bin:/bin"),
        ("HOSTILE", "$(id)\n;"),
        ("KOI_REPLICA", "chat.g1.r0.0"),
        ("KOI_NONCE", nonce.as_str()),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn the_engine_starts_with_an_empty_signal_mask_and_no_stray_files() {
    let folder = Folder::new();
    folder.run_script("grep SigBlk /proc/self/status; ls /proc/$$/fd");
    folder.finished();
    let log = folder.log();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines[0], "SigBlk:\t0000000000000000");
    assert_eq!(&lines[1..], ["0", "1", "2"]);
}

#[test]
fn hazard_d16_a_flooded_log_stays_bounded_and_keeps_the_newest_lines() {
    let folder = Folder::new();
    let script = "i=0; while [ $i -lt 40 ]; do head -c 20000 /dev/zero | tr '\\0' x; echo; \
                  i=$((i+1)); sleep .1; done; echo last; sleep 1000";
    let mut spec = folder.spec(&["/bin/sh", "-c", script]);
    spec.log_max_bytes = 64 * 1024;
    folder.run(&spec);
    wait_for("the last line", || {
        folder.log().ends_with("last\n").then_some(())
    });
    let status = folder.status();
    assert!(status.log_rotations >= 1, "{status:?}");
    let kept = std::fs::metadata(folder.path.join("engine.log.1"))
        .unwrap()
        .len();
    let current = std::fs::metadata(folder.path.join("engine.log"))
        .unwrap()
        .len();
    assert!(kept <= 64 * 1024, "{kept}");
    assert!(current <= 64 * 1024 + 500_000, "{current}");
}
