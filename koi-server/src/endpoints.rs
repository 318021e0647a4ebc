//! Ready endpoints for gateways: a file per job, replaced by rename, and a channel for watchers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use koi_core::rollout::EndpointSet;
use tokio::sync::broadcast;

/// Changes a slow watcher may be behind before it has to start anew.
const BACKLOG: usize = 256;

/// The board where endpoint sets are posted.
#[derive(Debug)]
pub struct EndpointBoard {
    dir: PathBuf,
    newest: Mutex<BTreeMap<String, EndpointSet>>,
    changes: broadcast::Sender<EndpointSet>,
}

impl EndpointBoard {
    /// A board over a folder, which is made if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(dir: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let (changes, _) = broadcast::channel(BACKLOG);
        Ok(Self {
            dir,
            newest: Mutex::new(BTreeMap::new()),
            changes,
        })
    }

    /// Removes files of jobs that are not live: they ended while no server ran, or under one that
    /// forgot them.
    pub fn sweep(&self, is_live: impl Fn(&str) -> bool) {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let job = name.to_str().and_then(|n| n.strip_suffix(".json"));
            if job.is_some_and(|job| !job.starts_with('.') && !is_live(job)) {
                match std::fs::remove_file(entry.path()) {
                    Ok(()) => {
                        tracing::info!(path = %entry.path().display(), "stale endpoints removed")
                    }
                    Err(error) => tracing::error!(%error, "cannot remove a stale endpoint file"),
                }
            }
        }
    }

    /// Posts a set: file first, then watchers.
    pub fn publish(&self, set: EndpointSet) {
        if let Err(error) = self.write(&set) {
            tracing::error!(%error, job = set.job, "cannot write the endpoint file");
        }
        self.newest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .insert(set.job.clone(), set.clone());
        // No watcher is not an error.
        drop(self.changes.send(set));
    }

    /// Takes down the set of a job that is over: no file is left, so that clients stop sending, and
    /// watchers see the set empty.
    pub fn retire(&self, set: EndpointSet) {
        match std::fs::remove_file(self.dir.join(format!("{}.json", set.job))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::error!(%error, job = set.job, "cannot remove the endpoint file");
            }
            Ok(()) | Err(_) => {}
        }
        self.newest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(&set.job);
        // No watcher is not an error.
        drop(self.changes.send(set));
    }

    fn write(&self, set: &EndpointSet) -> std::io::Result<()> {
        let path = self.dir.join(format!("{}.json", set.job));
        let temporary = self.dir.join(format!(".{}.json.new", set.job));
        let text = serde_json::to_vec_pretty(set)?;
        std::fs::write(&temporary, text)?;
        std::fs::rename(&temporary, &path)
    }

    /// The newest set of a job, and every change from now on.
    #[must_use]
    pub fn watch(&self, job: &str) -> (Option<EndpointSet>, broadcast::Receiver<EndpointSet>) {
        let newest = self
            .newest
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        (newest.get(job).cloned(), self.changes.subscribe())
    }
}
