//! The kills and the planned changes: each does one thing to a running cluster and times what follows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::cluster::{Cluster, Replica, now_us};
use super::inputs::{BUSY, SIDE};
use super::process::Process;

/// Between looks.
const LOOK: Duration = Duration::from_millis(30);
/// Longest wait for what a kill leads to.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for a changed ladder: start, canary window, drain.
const CHANGE_LIMIT: Duration = Duration::from_secs(180);

/// One thing done to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// SIGKILL to koi-server.
    Server,
    /// SIGKILL to the agent of a host that serves.
    Agent,
    /// SIGKILL to the shim of a replica.
    Shim,
    /// SIGKILL to the engine's API process.
    EngineParent,
    /// SIGKILL to the engine's core process.
    EngineChild,
    /// SIGKILL to the database's first process.
    Postgres,
    /// Cancel one job beside another.
    Cancel,
    /// Cordon and drain a host, and run a tick that moves what it serves.
    Drain,
}

/// A time that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure {
    /// What happened.
    pub(super) name: &'static str,
    /// Seconds from the kill, or from what the name says.
    pub(super) seconds: f64,
    /// Longest it may take, where that is promised.
    pub(super) bound_s: Option<f64>,
}

fn figure(name: &'static str, seconds: f64, bound_s: f64) -> Figure {
    Figure {
        name,
        seconds,
        bound_s: Some(bound_s),
    }
}

impl Scenario {
    /// Every one, in the order they are run.
    pub(super) const ALL: [Self; 8] = [
        Self::Server,
        Self::Agent,
        Self::Shim,
        Self::EngineParent,
        Self::EngineChild,
        Self::Postgres,
        Self::Cancel,
        Self::Drain,
    ];

    /// Name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
            Self::Shim => "shim",
            Self::EngineParent => "engine-parent",
            Self::EngineChild => "engine-child",
            Self::Postgres => "postgres",
            Self::Cancel => "cancel",
            Self::Drain => "drain",
        }
    }

    /// True where requests in flight in the killed engine may be lost.
    pub(super) const fn may_lose_in_flight(self) -> bool {
        matches!(self, Self::EngineParent | Self::EngineChild)
    }

    /// Does it.
    ///
    /// # Errors
    /// When something did not happen in time, or happened that must not.
    pub(super) fn run(self, cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
        match self {
            Self::Server => server(cluster),
            Self::Agent => agent(cluster),
            Self::Shim => shim(cluster),
            Self::EngineParent => engine(cluster, false),
            Self::EngineChild => engine(cluster, true),
            Self::Postgres => postgres(cluster),
            Self::Cancel => cancel(cluster),
            Self::Drain => drain(cluster),
        }
    }
}

/// Looks until there is something to see; the seconds since `begun` and what was seen.
fn wait<T>(
    what: &str,
    begun: Instant,
    limit: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> anyhow::Result<(f64, T)> {
    loop {
        if let Some(seen) = look() {
            return Ok((begun.elapsed().as_secs_f64(), seen));
        }
        ensure!(
            begun.elapsed() < limit,
            "{what}: not within {} s",
            limit.as_secs()
        );
        std::thread::sleep(LOOK);
    }
}

/// Waits until no ladder is on its way: what is published is what runs, two replicas at least.
///
/// # Errors
/// When it does not come to that.
pub(super) fn calm(cluster: &Cluster) -> anyhow::Result<()> {
    let is_calm = || {
        let (_, published) = cluster.endpoints(BUSY);
        let running = of_job(cluster, BUSY);
        let same =
            published.len() == running.len() && running.iter().all(|r| published.contains(&r.id));
        (same && published.len() >= 2 && !of_job(cluster, SIDE).is_empty()).then_some(())
    };
    wait(
        "two ready replicas and nothing on its way",
        Instant::now(),
        CHANGE_LIMIT,
        is_calm,
    )
    .map(|_| ())
}

fn of_job(cluster: &Cluster, job: &str) -> Vec<Replica> {
    let mut replicas = cluster.replicas();
    replicas.retain(|r| r.id.split('.').next() == Some(job));
    replicas
}

/// A replica of the busy job; the one whose engine is oldest, so that no replica is killed so often
/// that its agent gives up on it, as it should.
fn first_busy(cluster: &Cluster) -> anyhow::Result<Replica> {
    of_job(cluster, BUSY)
        .into_iter()
        .min_by_key(|r| r.started_at_us)
        .context("no replica of the busy job runs")
}

/// Engines by replica, to see that none was touched.
fn engines(cluster: &Cluster) -> BTreeMap<String, u32> {
    let replicas = cluster.replicas().into_iter();
    replicas.map(|r| (r.id, r.engine_pid)).collect()
}

/// Replicas may come and go by plan; the engine of one that stays must be the same.
fn ensure_untouched(before: &BTreeMap<String, u32>, cluster: &Cluster) -> anyhow::Result<()> {
    let after = engines(cluster);
    for (id, pid) in before {
        let now = after.get(id);
        ensure!(
            now.is_none_or(|now| now == pid),
            "the engine of {id} was process {pid} and is now {now:?}"
        );
    }
    Ok(())
}

fn has_tick_since(cluster: &Cluster, since_us: i64) -> Option<()> {
    let mut ticks = cluster.ticks().into_iter();
    ticks
        .any(|t| t.opened_at_us > since_us && t.closed_at_us.is_some())
        .then_some(())
}

fn server(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    let engines = engines(cluster);
    let (begun, begun_us) = (Instant::now(), now_us());
    cluster.child("server")?.kill()?;
    let tick = || has_tick_since(cluster, begun_us);
    let (seconds, ()) = wait("a tick after the kill", begun, LIMIT, tick)?;
    ensure_untouched(&engines, cluster)?;
    Ok(vec![figure("first new tick", seconds, 20.0)])
}

fn agent(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    let name = format!("agent-{}", first_busy(cluster)?.host);
    let n_connections = || cluster.log(&name).matches("\"connected\"").count();
    let (engines, (version, _)) = (engines(cluster), cluster.endpoints(BUSY));
    let n_before = n_connections();
    let begun = Instant::now();
    cluster.child(&name)?.kill()?;
    let again = || (n_connections() > n_before).then_some(());
    let (seconds, ()) = wait("a new session of the agent", begun, LIMIT, again)?;
    std::thread::sleep(Duration::from_secs(1));
    ensure_untouched(&engines, cluster)?;
    ensure!(
        cluster.endpoints(BUSY).0 == version,
        "endpoints changed although every engine served on"
    );
    Ok(vec![figure("re-adopted", seconds, 5.0)])
}

fn shim(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    let replica = first_busy(cluster)?;
    let (engines, (version, _)) = (engines(cluster), cluster.endpoints(BUSY));
    let begun = Instant::now();
    let old = replica.shim.context("its shim does not run")?;
    old.kill()?;
    let new = || {
        let now = cluster
            .replicas()
            .into_iter()
            .find(|r| r.id == replica.id)?;
        now.shim.filter(|shim| *shim != old)
    };
    let (seconds, _) = wait("a new shim", begun, LIMIT, new)?;
    ensure_untouched(&engines, cluster)?;
    ensure!(
        cluster.endpoints(BUSY).0 == version,
        "endpoints changed although the engine served on"
    );
    Ok(vec![figure("re-attached", seconds, 10.0)])
}

fn engine(cluster: &Cluster, child: bool) -> anyhow::Result<Vec<Figure>> {
    let replica = first_busy(cluster)?;
    let parent = Process::of(replica.engine_pid).context("the engine does not run")?;
    let children = parent.children();
    let held = cluster.holders(&replica.host);
    let tree: Vec<Process> = children.iter().copied().chain([parent]).collect();
    let holders: Vec<Process> = tree
        .iter()
        .copied()
        .filter(|p| held.contains(&p.pid))
        .collect();
    ensure!(
        !holders.is_empty(),
        "no process of {} holds a device",
        replica.id
    );
    let victim = if child { holders[0] } else { parent };
    ensure!(
        victim != parent || !child,
        "the engine has no core process of its own"
    );
    let n_published = cluster.endpoints(BUSY).1.len();
    let begun = Instant::now();
    victim.kill()?;
    let (mut unpublished, mut freed, mut restarted) = (None, None, None);
    let look = || {
        let seconds = begun.elapsed().as_secs_f64();
        let all_published = cluster.endpoints(BUSY).1;
        let published = all_published.contains(&replica.id);
        if !published {
            unpublished.get_or_insert(seconds);
        }
        if holders.iter().all(|p| !p.is_alive()) {
            freed.get_or_insert(seconds);
        }
        let now = cluster.replicas().into_iter().find(|r| r.id == replica.id);
        if now.as_ref().is_none_or(|r| r.engine_pid != parent.pid) {
            restarted.get_or_insert(seconds);
        }
        let (out, free, new) = (unpublished?, freed?, restarted?);
        // A plan of that moment may give the job another ladder: then that one has to serve as well.
        let replaced_by_others = now.is_none() && all_published.len() >= n_published;
        (published || replaced_by_others).then_some((out, free, new))
    };
    let (replaced, (unpublished, freed, restarted)) = wait("a replacement", begun, LIMIT, look)?;
    ensure!(
        tree.iter().all(|p| !p.is_alive()),
        "processes of the old engine live on"
    );
    ensure!(
        freed <= restarted,
        "started again after {restarted:.2} s, before its memory was free ({freed:.2} s)"
    );
    Ok(vec![
        figure("unpublished", unpublished, 3.0),
        figure("memory gone", freed, 10.0),
        Figure {
            name: "serves again",
            seconds: replaced,
            bound_s: None,
        },
    ])
}

fn postgres(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    let engines = engines(cluster);
    let old = cluster.postmaster().context("the database does not run")?;
    let begun_us = now_us();
    Process::of(old)
        .context("the database does not run")?
        .kill()?;
    let back = || cluster.postmaster().filter(|pid| *pid != old);
    let (away_s, _) = wait("the database", Instant::now(), LIMIT, back)?;
    let tick = || has_tick_since(cluster, begun_us);
    let (seconds, ()) = wait("a tick after the kill", Instant::now(), LIMIT, tick)?;
    ensure_untouched(&engines, cluster)?;
    Ok(vec![
        figure("tick after its return", seconds, 15.0),
        Figure {
            name: "away",
            seconds: away_s,
            bound_s: None,
        },
    ])
}

fn cancel(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    let begun = Instant::now();
    cluster.koi(&["cancel", SIDE])?;
    let gone = || {
        let is_gone = of_job(cluster, SIDE).is_empty() && cluster.endpoints(SIDE).1.is_empty();
        is_gone.then_some(())
    };
    let (seconds, ()) = wait("the end of its engines", begun, CHANGE_LIMIT, gone)?;
    let file = cluster.inputs.job(SIDE);
    cluster.koi(&["submit", &file.to_string_lossy()])?;
    cluster.koi(&["tick", "run"])?;
    let back = || (!cluster.endpoints(SIDE).1.is_empty()).then_some(());
    wait("the same job again", Instant::now(), LIMIT, back)?;
    Ok(vec![Figure {
        name: "engines gone",
        seconds,
        bound_s: None,
    }])
}

fn drain(cluster: &Cluster) -> anyhow::Result<Vec<Figure>> {
    let host = first_busy(cluster)?.host;
    let begun = Instant::now();
    cluster.koi(&["cordon", &host])?;
    cluster.koi(&["drain", &host])?;
    cluster.koi(&["tick", "run"])?;
    let empty = || {
        let is_empty = cluster.replicas().iter().all(|r| r.host != host);
        is_empty.then_some(())
    };
    let moved = wait("an empty host", begun, CHANGE_LIMIT, empty);
    // Also when it failed: the next scenario needs the host.
    cluster.koi(&["uncordon", &host])?;
    let (seconds, ()) = moved?;
    Ok(vec![Figure {
        name: "host empty",
        seconds,
        bound_s: None,
    }])
}
