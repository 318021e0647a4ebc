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
        let ended = child.try_wait()?;
        let state = UpState::read(data)
            .ok()
            .flatten()
            .filter(|s| s.supervisor.pid == pid);
        // Until the data directory is its own, the log's lines may be another supervisor's.
        let lost_race = ended.is_some_and(is_conflict);
        if state.is_some() || ended.is_some() && !lost_race {
            seen = relay(&log, seen)?;
        }
        if let Some(status) = ended {
            return Err(why_it_ended(data, status, &log));
        }
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

fn is_conflict(status: std::process::ExitStatus) -> bool {
    status.code() == Some(ExitCode::Conflict as i32)
}

/// Of two that start at once, one finds the lock taken: its error is that of the lock.
fn why_it_ended(data: &DataDir, status: std::process::ExitStatus, log: &Path) -> anyhow::Error {
    if is_conflict(status)
        && let Err(taken) = take_lock(data)
    {
        return taken;
    }
    let message = format!(
        "the cluster did not start ({status}); its log is {}",
        log.display()
    );
    Failure::new(ExitCode::Failed, message).into()
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

/// As a word for a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/-_.~+:@,".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

fn next_steps(data: &DataDir, pid: u32, log: &Path) -> String {
    let is_default =
        data.path() == DataDir::resolve(None).path() || std::env::var_os("KOI_DATA_DIR").is_some();
    let option = if is_default {
        String::new()
    } else {
        format!(" --data-dir {}", quoted(&data.path().display().to_string()))
    };
    format!(
        "\nthe cluster runs in the background (pid {pid}, log {}); next:\n  \
         koi{option} status\n  koi{option} explain chat\n  koi{option} load report --minutes 5\n  koi{option} down",
        log.display()
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn who_loses_a_race_hears_that_another_runs() {
        let dir = std::env::temp_dir().join(format!("koi-detach-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let data = DataDir::resolve(Some(&dir));
        let held = take_lock(&data).unwrap();
        let ended =
            |code: i32| why_it_ended(&data, ExitStatus::from_raw(code << 8), Path::new("l"));
        let code = |e: &anyhow::Error| e.downcast_ref::<Failure>().unwrap().code;
        let lost = ended(6);
        assert_eq!(code(&lost), ExitCode::Conflict);
        assert!(lost.to_string().contains("another koi up"), "{lost}");
        assert!(ended(1).to_string().contains("its log is l"));
        drop(held);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn next_steps_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("/tmp/koi-1"), "/tmp/koi-1");
        assert_eq!(quoted("/tmp/a b"), "'/tmp/a b'");
        assert_eq!(quoted("/tmp/it's"), "'/tmp/it'\\''s'");
    }
}
