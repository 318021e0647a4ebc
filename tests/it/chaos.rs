//! Whole clusters of real processes: SIGKILL to every part under load, changes by plan, what a
//! stranger does to `koi up`, and what a hostile client sends.
//!
//! The kills are measured by `koi-bench kills`, once for all tests here, on two hosts with simulated
//! devices; the same command measures three times each on the demo fleet. Needs the programs:
//! `scripts/test.sh` builds them first.

mod hostile;
mod kills;
mod koi;
mod prices;
mod second_server;
mod stranger;

use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Folder of the programs, which must be of this build.
fn programs() -> PathBuf {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let find = |name| runtime.block_on(koi_cli::up::binaries::find_same_build(name));
    // `koi` compares the others with itself, so a stale one is found out at the start.
    let server =
        find("koi-server").expect("the programs are built: `cargo build` or scripts/test.sh");
    server.parent().unwrap().to_path_buf()
}

/// Waits for a process; ends it after the limit.
fn wait(child: &mut Child, limit: Duration) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > limit {
            child.kill().unwrap();
            panic!("not over within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Pids of every process that carries the id of a cluster.
fn of_cluster(id: &str) -> Vec<u32> {
    let marker = format!("KOI_CLUSTER_ID={id}");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let marked = |pid: &u32| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|b| *b == 0).any(|v| v == marker.as_bytes())
    };
    pids.filter(marked).collect()
}
