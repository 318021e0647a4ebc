//! Keeps children running: starts them, notes who they are, starts them again with a back-off.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::cluster::Cluster;
use super::process::{CLUSTER_ID_VARIABLE, Process};
use super::state::{Child, Role};

/// First pause before a restart; a server is back and planning within 20 s.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A child that ran this long starts over with the first pause.
const STEADY: Duration = Duration::from_secs(60);
/// A log longer than this is moved away at the next start.
const MAX_LOG_BYTES: u64 = 32 * 1024 * 1024;
/// Time between looks for orphans that have ended.
const REAP_INTERVAL: Duration = Duration::from_secs(5);

/// How to start a child.
#[derive(Debug, Clone)]
pub(super) struct ChildSpec {
    /// Name in messages and of its log.
    pub(super) name: String,
    /// What it is.
    pub(super) role: Role,
    /// Executable.
    pub(super) program: PathBuf,
    /// Arguments.
    pub(super) args: Vec<OsString>,
}

/// Starts a child and keeps it running until the cluster stops.
pub(super) fn keep(cluster: &Arc<Cluster>, spec: ChildSpec) {
    let task = run(Arc::clone(cluster), spec);
    cluster.spawn(task);
}

async fn run(cluster: Arc<Cluster>, spec: ChildSpec) {
    let mut pause = FIRST_PAUSE;
    while !cluster.stopping.is_cancelled() {
        let started = Instant::now();
        let ended = match start(&cluster, &spec) {
            Ok(mut child) => match child.wait().await {
                Ok(status) => status.to_string(),
                Err(e) => e.to_string(),
            },
            Err(e) => format!("{e:#}"),
        };
        if cluster.stopping.is_cancelled() {
            return;
        }
        cluster.child_ended(&spec.name);
        pause = if started.elapsed() >= STEADY {
            FIRST_PAUSE
        } else {
            pause
        };
        cluster.events.say(&format!(
            "{} ended ({ended}); starting it again in {} ms",
            spec.name,
            pause.as_millis()
        ));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = cluster.stopping.cancelled() => return,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn start(cluster: &Cluster, spec: &ChildSpec) -> anyhow::Result<tokio::process::Child> {
    let log = log_of(&cluster.data.logs(), &spec.name);
    let mut command = tokio::process::Command::new(&spec.program);
    command.args(&spec.args).stdin(Stdio::null());
    into_log(&mut command, &log)?;
    in_cluster(&mut command, &cluster.id);
    let child = command
        .spawn()
        .with_context(|| format!("start {}", spec.program.display()))?;
    // A child that is gone already is noted with no start time and never signalled.
    let pid = child.id().unwrap_or(0);
    let process = Process::of(pid).unwrap_or(Process {
        pid,
        start_time_ticks: 0,
    });
    cluster.add_child(Child {
        name: spec.name.clone(),
        role: spec.role,
        process,
    });
    Ok(child)
}

/// Marks a command as part of the cluster. In a process group of its own, it does not get the
/// terminal's interrupt: the supervisor stops everything in order.
pub(super) fn in_cluster(command: &mut tokio::process::Command, cluster_id: &str) {
    command
        .env(CLUSTER_ID_VARIABLE, cluster_id)
        .process_group(0);
    let folder = std::env::current_exe()
        .ok()
        .and_then(|e| e.parent().map(Path::to_path_buf));
    if let (None, Some(folder)) = (std::env::var_os("KOI_BIN_DIR"), folder) {
        command.env("KOI_BIN_DIR", folder);
    }
}

/// The log of a child.
pub(super) fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

/// Sends a command's output to the end of a log.
pub(super) fn into_log(command: &mut tokio::process::Command, log: &Path) -> anyhow::Result<()> {
    let context = || format!("open {}", log.display());
    if std::fs::metadata(log).is_ok_and(|m| m.len() > MAX_LOG_BYTES) {
        std::fs::rename(log, log.with_extension("log.1")).with_context(context)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)
        .with_context(context)?;
    command
        .stdout(file.try_clone().with_context(context)?)
        .stderr(file);
    Ok(())
}

/// The last lines of a log, for people.
pub(super) fn tail(log: &Path, n_lines: usize) -> String {
    const MAX_TAIL_BYTES: u64 = 16 * 1024;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(log)?;
        let start = file.metadata()?.len().saturating_sub(MAX_TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![];
        file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let text = String::from_utf8_lossy(&read().unwrap_or_default()).into_owned();
    let lines: Vec<String> = text.lines().map(crate::output::escape).collect();
    lines[lines.len().saturating_sub(n_lines)..].join("\n")
}

/// Makes orphans of the cluster children of this process and takes note of their end, so that none
/// stays behind as a zombie.
pub(super) fn adopt_orphans(cluster: &Arc<Cluster>) {
    let me = rustix::process::getpid();
    if let Err(e) = rustix::process::set_child_subreaper(Some(me)) {
        cluster
            .events
            .say(&format!("orphans will not be adopted: {e}"));
        return;
    }
    let cluster_of_task = Arc::clone(cluster);
    cluster.spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(REAP_INTERVAL) => reap(&cluster_of_task),
                () = cluster_of_task.stopping.cancelled() => return,
            }
        }
    });
}

/// Waits for ended children that nobody else waits for.
pub(super) fn reap(cluster: &Cluster) {
    let own: Vec<u32> = cluster
        .state()
        .children
        .iter()
        .map(|c| c.process.pid)
        .collect();
    for pid in zombies_of(std::process::id())
        .into_iter()
        .filter(|p| !own.contains(p))
    {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // Gone between the look and the wait is as good as waited for.
            waitpid(Some(pid), WaitOptions::NOHANG).ok();
        }
    }
}

fn zombies_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    let is_zombie_child = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let mut fields = after.split_whitespace();
        fields.next() == Some("Z") && fields.next().and_then(|p| p.parse().ok()) == Some(parent)
    };
    pids.filter(is_zombie_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::DataDir;

    #[tokio::test]
    async fn a_child_that_dies_is_started_again_and_noted() {
        let dir = std::env::temp_dir().join(format!("koi-supervise-{}", std::process::id()));
        let cluster = Arc::new(Cluster::open(DataDir::resolve(Some(&dir))).unwrap());
        std::fs::create_dir_all(cluster.data.logs()).unwrap();
        let spec = ChildSpec {
            name: "server".into(),
            role: Role::Server,
            program: "/bin/sh".into(),
            args: vec!["-c".into(), "echo up $KOI_CLUSTER_ID; exec sleep 60".into()],
        };
        keep(&cluster, spec);
        let running = || cluster.state().of_role(Role::Server).first().copied();
        let wait = async |not: Option<Process>| {
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
                if let Some(p) = running().filter(|p| Some(*p) != not) {
                    return p;
                }
            }
            panic!("no child was started");
        };
        let first = wait(None).await;
        assert!(first.signal(rustix::process::Signal::KILL));
        let second = wait(Some(first)).await;
        assert!(second.is_alive() && cluster.n_exits("server") == 1);
        assert!(cluster.events.recent()[0].contains("starting it again"));
        cluster.stopping.cancel();
        // The file on disk names the process that runs now.
        let on_disk = crate::up::state::UpState::read(&cluster.data)
            .unwrap()
            .unwrap();
        assert_eq!(on_disk.of_role(Role::Server), [second]);
        // Both children have written into one log; the second one is given the time to.
        let n_ups = || {
            let log = tail(&log_of(&cluster.data.logs(), "server"), 10);
            let up = format!("up {}", cluster.id);
            log.lines().filter(|l| *l == up).count()
        };
        for _ in 0..200 {
            if n_ups() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        second.signal(rustix::process::Signal::KILL);
        cluster.join().await;
        assert_eq!(n_ups(), 2);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
