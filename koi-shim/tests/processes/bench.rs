//! What a shim costs while nothing happens.

use std::time::Duration;

use super::{Folder, wait_for};

fn status_kib(pid: u32, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap();
    line.split_ascii_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn cpu_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let rest = text.rsplit_once(')').unwrap().1;
    rest.split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|n| n.parse::<u64>().unwrap())
        .sum()
}

#[test]
fn an_idle_shim_is_small_and_quiet() {
    let folder = Folder::new();
    let identity = folder.run(&folder.spec(&["/bin/sleep", "1000"]));
    wait_for("a look", || {
        (folder.status().members.len() == 1).then_some(())
    });
    let pid = identity.shim.pid;
    let before = cpu_ticks(pid);
    std::thread::sleep(Duration::from_secs(5));
    let ticks = cpu_ticks(pid) - before;
    let (rss, anon) = (status_kib(pid, "VmRSS:"), status_kib(pid, "RssAnon:"));
    println!("idle shim: {rss} KiB resident, {anon} KiB of its own, {ticks} ticks in 5 s");
    assert!(anon <= 1024, "{anon} KiB");
    // The debug build maps more of its text than the release build, whose bound is 3 MiB.
    assert!(
        rss <= if cfg!(debug_assertions) {
            5 * 1024
        } else {
            3 * 1024
        },
        "{rss} KiB"
    );
    assert!(ticks <= 10, "{ticks} ticks of 10 ms in 5 s");
}
