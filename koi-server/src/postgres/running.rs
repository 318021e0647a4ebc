//! A running server: start with recovery from whatever the last one left, stop, watch.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::account::command;
use super::process::{PidFile, exists, is_postmaster_of, send, someone_works_in};
use super::{PostgresError, PrivateCluster};

/// Pause between looks at a starting or stopping server.
const POLL: Duration = Duration::from_millis(10);
/// How long an immediate shutdown (SIGQUIT) may take before SIGKILL.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the log an error carries.
const TAIL_BYTES: u64 = 4_000;

/// Ends the server when its owner dies, however it dies: the pipe closes. The line `keep` says that
/// there is nothing to do. $1 the server, $2 its data folder, $3 a folder to remove or nothing.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
read -r word
if [ "$word" = keep ]; then exit 0; fi
if [ "$(head -n 1 "$2/postmaster.pid" 2>/dev/null)" = "$1" ]; then kill -INT "$1"; fi
n=0
while kill -0 "$1" 2>/dev/null && [ "$n" -lt 100 ]; do n=$((n + 1)); sleep 0.1; done
if [ -n "$3" ]; then rm -rf "$3"; rmdir "$(dirname "$3")" 2>/dev/null; fi
"#;

/// The server process.
#[derive(Debug)]
pub struct RunningPostgres {
    child: Child,
    watchdog: Child,
    cluster: PrivateCluster,
    log_start: u64,
    /// The process is gone and waited for.
    over: bool,
    /// It once accepted connections; a failed start leaves a throwaway cluster for the next try.
    was_ready: bool,
}

impl RunningPostgres {
    pub(super) fn start(cluster: &PrivateCluster) -> Result<Self, PostgresError> {
        let deadline = Instant::now() + cluster.settings.start_timeout;
        loop {
            clear_the_way(&cluster.data, deadline)?;
            match Self::try_start(cluster, deadline) {
                Err(PostgresError::StartFailed { tail, .. })
                    if is_passing(&tail) && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(200));
                }
                done => return done,
            }
        }
    }

    fn try_start(cluster: &PrivateCluster, deadline: Instant) -> Result<Self, PostgresError> {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(&cluster.log);
        let log = log.map_err(PostgresError::io("open", &cluster.log))?;
        let log_start = log.metadata().map_or(0, |m| m.len());
        let second = log
            .try_clone()
            .map_err(PostgresError::io("open", &cluster.log))?;
        let mut server = server_command(cluster);
        server.stdin(Stdio::null()).stdout(log).stderr(second);
        let program = cluster.binaries.tool("postgres");
        let mut child = server.spawn().map_err(PostgresError::io("run", program))?;
        let watchdog = match spawn_watchdog(cluster, child.id()) {
            Ok(watchdog) => watchdog,
            Err(error) => {
                send(child.id(), Signal::QUIT);
                let _status = child.wait();
                return Err(error);
            }
        };
        let mut running = Self {
            child,
            watchdog,
            cluster: cluster.clone(),
            log_start,
            over: false,
            was_ready: false,
        };
        running.wait_until_ready(deadline)?;
        running.was_ready = true;
        Ok(running)
    }

    fn wait_until_ready(&mut self, deadline: Instant) -> Result<(), PostgresError> {
        let want = PidFile {
            pid: self.child.id(),
            ready: true,
        };
        loop {
            if PidFile::read(&self.cluster.data).as_ref() == Some(&want) {
                return Ok(());
            }
            if let Some(status) = self.exit_status()? {
                let (status, tail) = (status.to_string(), self.log_tail());
                return Err(PostgresError::StartFailed { status, tail });
            }
            if Instant::now() > deadline {
                let seconds = self.cluster.settings.start_timeout.as_secs();
                return Err(PostgresError::StartTimeout {
                    seconds,
                    tail: self.log_tail(),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Connection URL of the database.
    #[must_use]
    pub fn url(&self) -> String {
        self.cluster.url()
    }

    /// How the server ended, if it has.
    ///
    /// # Errors
    /// [`PostgresError::Io`] when the process cannot be waited for.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>, PostgresError> {
        let status = self.child.try_wait();
        let status = status.map_err(PostgresError::io("wait for", &self.cluster.data))?;
        self.over |= status.is_some();
        Ok(status)
    }

    /// What the server wrote since this start, its end.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let read = || {
            let mut file = fs::File::open(&self.cluster.log)?;
            let from = self
                .log_start
                .max(file.metadata()?.len().saturating_sub(TAIL_BYTES));
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        read().unwrap_or_else(|e| format!("(log not readable: {e})"))
    }

    /// Fast shutdown; after the time limit immediate shutdown; then SIGKILL. Blocks.
    ///
    /// # Errors
    /// [`PostgresError::Io`] when the process cannot be waited for.
    pub fn stop(mut self) -> Result<(), PostgresError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), PostgresError> {
        let fast = self.cluster.settings.stop_timeout;
        let steps = [
            (Signal::INT, fast),
            (Signal::QUIT, QUIT_TIMEOUT),
            (Signal::KILL, QUIT_TIMEOUT),
        ];
        for (signal, limit) in steps {
            if self.over {
                break;
            }
            send(self.child.id(), signal);
            let deadline = Instant::now() + limit;
            while self.exit_status()?.is_none() && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
        self.release_watchdog();
        Ok(())
    }

    fn release_watchdog(&mut self) {
        use std::io::Write;
        if let Some(mut pipe) = self.watchdog.stdin.take() {
            let keep = self.over && !(self.was_ready && self.cluster.settings.remove_after);
            // A watchdog that is gone needs no word.
            let _gone = pipe.write_all(if keep { b"keep\n" } else { b"\n" });
        }
        let _status = self.watchdog.wait();
    }
}

impl Drop for RunningPostgres {
    fn drop(&mut self) {
        if self.watchdog.stdin.is_some() {
            // Nobody is left to tell; the watchdog does what could not be done here.
            let _unstoppable = self.end();
        }
    }
}

/// Failures that pass by themselves: the last server's backends are still on their way out.
fn is_passing(tail: &str) -> bool {
    tail.contains("pre-existing shared memory block") || tail.contains("lock file \"")
}

/// Waits for a server that is on its way out, and removes a lock file whose process number now
/// belongs to somebody else (common in containers): PostgreSQL would take it for a live server.
fn clear_the_way(data: &Path, deadline: Instant) -> Result<(), PostgresError> {
    while let Some(file) = PidFile::read(data) {
        let ours = is_postmaster_of(file.pid, data);
        if !ours && !someone_works_in(data) {
            if exists(file.pid) {
                let stale = data.join("postmaster.pid");
                fs::remove_file(&stale).map_err(PostgresError::io("remove", &stale))?;
            }
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(PostgresError::AlreadyRunning {
                data: data.to_path_buf(),
                pid: file.pid,
            });
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn server_command(cluster: &PrivateCluster) -> Command {
    let program = cluster.binaries.tool("postgres");
    let mut server = command(&program, cluster.account.as_ref(), &cluster.base);
    server
        .arg("-D")
        .arg(&cluster.data)
        .arg("-k")
        .arg(&cluster.socket_dir);
    let durable: &[&str] = if cluster.settings.durable {
        &[]
    } else {
        &[
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
        ]
    };
    for setting in SETTINGS.iter().chain(durable) {
        server.arg("-c").arg(setting);
    }
    // Ctrl-C in the owner's terminal is the owner's business.
    server.process_group(0);
    server
}

/// Small memory, one machine, no replication, quiet when idle.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "max_connections=60",
    "shared_buffers=64MB",
    "jit=off",
    "autovacuum=on",
    "wal_level=minimal",
    "max_wal_senders=0",
    "min_wal_size=32MB",
    "max_wal_size=256MB",
    "checkpoint_timeout=15min",
    "max_parallel_workers_per_gather=0",
    "max_logical_replication_workers=0",
    "log_checkpoints=off",
    "timezone=UTC",
];

fn spawn_watchdog(cluster: &PrivateCluster, pid: u32) -> Result<Child, PostgresError> {
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", WATCHDOG, "koi-postgres-watchdog"])
        .arg(pid.to_string());
    shell.arg(&cluster.data);
    if cluster.settings.remove_after {
        shell.arg(&cluster.base);
    }
    shell.process_group(0).current_dir("/");
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    shell.spawn().map_err(PostgresError::io("run", "/bin/sh"))
}
