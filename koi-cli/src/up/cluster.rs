//! The running cluster as its supervisor holds it: lock, state, messages, tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::events::Events;
use super::ports::{PortRange, ServerPort};
use super::process::Process;
use super::state::{Child, UpState};
use crate::failure::{ExitCode, Failure};
use crate::paths::DataDir;
use crate::secrets::new_token;

/// A cluster that this process supervises.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Its files.
    pub(super) data: DataDir,
    /// Value of `KOI_CLUSTER_ID`.
    pub(super) id: String,
    /// What the supervisor says.
    pub(super) events: Events,
    /// Set when nothing is to be restarted any more.
    pub(super) stopping: CancellationToken,
    state: Mutex<UpState>,
    exits: Mutex<BTreeMap<String, u32>>,
    tasks: Mutex<JoinSet<()>>,
    /// Children that no restart brings up.
    hopeless: Mutex<BTreeSet<String>>,
    ports: Mutex<Option<(ServerPort, Vec<PortRange>)>>,
    /// Held for as long as this process lives; the system lets go of it even after SIGKILL.
    _lock: OwnedFd,
}

/// Counters and lists stay whole when a holder panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Takes the data directory; a second `koi up` on it is refused.
    pub(super) fn open(data: DataDir) -> anyhow::Result<Self> {
        make_data_dir(data.path())?;
        let held = take_lock(&data)?;
        let leftover = UpState::read(&data)?;
        // Letters and digits only: it stands in environments and is searched for there.
        let id: String = new_token()?.chars().take(22).collect();
        let state = UpState {
            cluster_id: id.clone(),
            supervisor: Process::me(),
            children: vec![],
            agent_settings: vec![],
            server: String::new(),
            stage: "starting".to_owned(),
            is_started: false,
            earlier: leftover.map(Box::new),
        };
        // Nothing starts that nobody could find again; from here on an earlier run is in this note.
        state.write(&data)?;
        Ok(Self {
            data,
            id,
            events: Events::default(),
            stopping: CancellationToken::new(),
            state: Mutex::new(state),
            exits: Mutex::new(BTreeMap::new()),
            tasks: Mutex::new(JoinSet::new()),
            hopeless: Mutex::new(BTreeSet::new()),
            ports: Mutex::new(None),
            _lock: held,
        })
    }

    /// Changes the state and writes it.
    pub(super) fn update(&self, change: impl FnOnce(&mut UpState)) {
        let state = {
            let mut state = lock(&self.state);
            change(&mut state);
            state.clone()
        };
        if let Err(e) = state.write(&self.data) {
            self.events.say(&format!("state not written: {e:#}"));
        }
    }

    /// The state now.
    pub(super) fn state(&self) -> UpState {
        lock(&self.state).clone()
    }

    /// Keeps the server's and the hosts' ports claimed for as long as the cluster is supervised.
    pub(super) fn hold(&self, server: ServerPort, ranges: Vec<PortRange>) {
        *lock(&self.ports) = Some((server, ranges));
    }

    /// Notes a started child.
    pub(super) fn add_child(&self, child: Child) {
        self.update(|state| {
            state.children.retain(|c| c.name != child.name);
            state.children.push(child);
        });
    }

    /// Notes that a child ended; returns how often it has.
    pub(super) fn child_ended(&self, name: &str) -> u32 {
        self.update(|state| state.children.retain(|c| c.name != name));
        let mut exits = lock(&self.exits);
        let n = exits.entry(name.to_owned()).or_default();
        *n += 1;
        *n
    }

    /// How often a child has ended by itself.
    pub(super) fn n_exits(&self, name: &str) -> u32 {
        lock(&self.exits).get(name).copied().unwrap_or(0)
    }

    /// Notes that a child said that no restart will bring it up.
    pub(super) fn give_up_on(&self, name: &str) {
        lock(&self.hopeless).insert(name.to_owned());
    }

    /// True when a child said so.
    pub(super) fn is_hopeless(&self, name: &str) -> bool {
        lock(&self.hopeless).contains(name)
    }

    /// Runs a task until the cluster is stopped.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.tasks).spawn(task);
    }

    /// Waits for every task.
    pub(super) async fn join(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }
}

/// Makes the folder, for its owner alone. Of a folder that is there no right is taken away.
///
/// Root's private Postgres runs as another user, who must be able to pass through.
fn make_data_dir(path: &Path) -> anyhow::Result<()> {
    let passable = if rustix::process::geteuid().is_root() {
        0o011
    } else {
        0
    };
    let context = || format!("make the data directory {}", path.display());
    let is_new = !path.exists();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700 | passable)
        .create(path)
        .with_context(context)?;
    let mode = std::fs::metadata(path).with_context(context)?.permissions();
    let wanted = if is_new {
        0o700 | passable
    } else {
        mode.mode() & 0o7777 | passable
    };
    if mode.mode() & 0o7777 == wanted {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(wanted)).with_context(context)
}

/// The lock of a data directory.
pub(super) fn take_lock(data: &DataDir) -> anyhow::Result<OwnedFd> {
    let path = data.join("up.lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::from_raw_mode(0o600))
        .with_context(|| format!("open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => {
            let pid = UpState::read(data)
                .ok()
                .flatten()
                .map_or_else(String::new, |s| format!(" (pid {})", s.supervisor.pid));
            let message = format!(
                "another koi up{pid} runs in {}; stop it with `koi down`, or name another folder with --data-dir",
                data.path().display()
            );
            Err(Failure::new(ExitCode::Conflict, message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_supervisor_is_refused() {
        let dir = std::env::temp_dir().join(format!("koi-cluster-{}", std::process::id()));
        let first = Cluster::open(DataDir::resolve(Some(&dir))).unwrap();
        first.update(|_| {});
        let error = Cluster::open(DataDir::resolve(Some(&dir))).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.code, ExitCode::Conflict);
        assert!(
            failure
                .message
                .contains(&format!("pid {}", std::process::id())),
            "{failure}"
        );
        drop(first);
        let second = Cluster::open(DataDir::resolve(Some(&dir))).unwrap();
        drop(second);
        let third = Cluster::open(DataDir::resolve(Some(&dir))).unwrap();
        let noted = UpState::read(&third.data).unwrap().unwrap();
        assert_eq!(
            noted.chain().count(),
            3,
            "what killed supervisors left stays noted: {noted:?}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn no_right_is_taken_from_a_folder_that_was_there() {
        let dir = std::env::temp_dir().join(format!("koi-mode-{}", std::process::id()));
        make_data_dir(&dir).unwrap();
        let mode = |dir: &Path| std::fs::metadata(dir).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&dir) & 0o766, 0o700);
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o1777)).unwrap();
        make_data_dir(&dir).unwrap();
        assert_eq!(mode(&dir), 0o1777);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
