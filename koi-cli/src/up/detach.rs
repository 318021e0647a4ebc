//! `koi up --detach`: the same command in the background, its start relayed to this terminal.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

use super::cluster::take_lock;
use super::state::UpState;
use super::supervise::into_log;
use crate::args::UpArgs;
use crate::failure::{ExitCode, Failure};
use crate::output::print;
use crate::paths::DataDir;

/// What the start may take beyond the wait for running jobs.
const START_LIMIT: Duration = Duration::from_secs(150);
/// Bytes of the log relayed at a time.
const MAX_RELAY_BYTES: u64 = 64 * 1024;

/// Starts the background process and waits until its start is over.
pub(super) async fn run(data: &DataDir, args: &UpArgs) -> anyhow::Result<()> {
    // Wrong input and a second supervisor are reported here, not in a log.
    super::plan::Plan::read(args)?;
    std::fs::create_dir_all(data.logs())
        .with_context(|| format!("make {}", data.logs().display()))?;
    drop(take_lock(data)?);
    let log = data.logs().join("up.log");
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command
        .args(std::env::args_os().skip(1))
        .arg("--in-background")
        .stdin(Stdio::null());
    into_log(&mut command, &log)?;
    let mut seen = std::fs::metadata(&log).map_or(0, |m| m.len());
    let mut child = command.spawn().context("start the background process")?;
    let pid = child.id().unwrap_or(0);
    let deadline = Instant::now() + START_LIMIT + Duration::from_secs(u64::from(args.wait_s));
    loop {
        seen = relay(&log, seen)?;
        if let Some(status) = child.try_wait()? {
            relay(&log, seen)?;
            let message = format!(
                "the cluster did not start ({status}); its log is {}",
                log.display()
            );
            return Err(Failure::new(ExitCode::Failed, message).into());
        }
        let state = UpState::read(data)
            .ok()
            .flatten()
            .filter(|s| s.supervisor.pid == pid);
        if state.is_some_and(|s| s.is_started) {
            relay(&log, seen)?;
            return print(&next_steps(data, pid, &log));
        }
        if Instant::now() >= deadline {
            let message = format!(
                "the start takes too long; it goes on as pid {pid}, its log is {}",
                log.display()
            );
            return Err(Failure::new(ExitCode::Unavailable, message).into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Prints what the log has gained; returns how far it was read.
fn relay(log: &Path, from: u64) -> anyhow::Result<u64> {
    let mut file = std::fs::File::open(log)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = vec![];
    file.take(MAX_RELAY_BYTES).read_to_end(&mut bytes)?;
    let whole = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |end| end + 1);
    for line in String::from_utf8_lossy(&bytes[..whole]).lines() {
        print(&crate::output::escape(line))?;
    }
    Ok(from + whole as u64)
}

fn next_steps(data: &DataDir, pid: u32, log: &Path) -> String {
    let is_default =
        data.path() == DataDir::resolve(None).path() || std::env::var_os("KOI_DATA_DIR").is_some();
    let option = if is_default {
        String::new()
    } else {
        format!(" --data-dir {}", data.path().display())
    };
    format!(
        "\nthe cluster runs in the background (pid {pid}, log {}); next:\n  \
         koi{option} status\n  koi{option} explain chat\n  koi{option} load report --minutes 5\n  koi{option} down",
        log.display()
    )
}
