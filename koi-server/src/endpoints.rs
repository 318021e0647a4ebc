//! Ready endpoints for gateways: a file per job, replaced by rename, and a channel for watchers.
//!
//! The files are for others to read, so they are looked at again and again: what was removed, changed
//! or could not be written is put right, whoever or whatever did it.

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use koi_core::rollout::EndpointSet;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use file::{file_of, holds, remove, text_of, write};

/// Changes a slow watcher may be behind before it has to start anew.
const BACKLOG: usize = 256;
/// Between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// The board where endpoint sets are posted.
#[derive(Debug)]
pub struct EndpointBoard {
    dir: PathBuf,
    posts: Mutex<Posts>,
    changes: broadcast::Sender<EndpointSet>,
}

/// What should lie in the folder. Its lock is held while a file of it is written or removed, so that
/// an older set never comes after a newer one.
#[derive(Debug, Default)]
struct Posts {
    newest: BTreeMap<String, EndpointSet>,
    /// Jobs that are over and whose file may still be there.
    leaving: BTreeSet<String>,
    /// Jobs whose file could not be put right, and why: said once.
    failing: BTreeMap<String, String>,
}

impl EndpointBoard {
    /// A board over a folder, which is made if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let (changes, _) = broadcast::channel(BACKLOG);
        Ok(Self {
            dir,
            posts: Mutex::default(),
            changes,
        })
    }

    /// Removes files of jobs that are not live: they ended while no server ran, or under one that
    /// forgot them.
    pub fn sweep(&self, is_live: impl Fn(&str) -> bool) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let job = name.to_str().and_then(|n| n.strip_suffix(".json"));
            if let Some(job) = job.filter(|job| !job.starts_with('.') && !is_live(job)) {
                tracing::info!(path = %entry.path().display(), "stale endpoints go");
                let mut posts = self.posts();
                posts.leaving.insert(job.to_owned());
                posts.put_right(&self.dir, job);
            }
        }
    }

    /// Posts a set: file first, then watchers.
    pub fn publish(&self, set: EndpointSet) {
        let mut posts = self.posts();
        posts.leaving.remove(&set.job);
        posts.newest.insert(set.job.clone(), set.clone());
        posts.put_right(&self.dir, &set.job);
        drop(posts);
        // No watcher is not an error.
        drop(self.changes.send(set));
    }

    /// Takes down the set of a job that is over: no file is left, so that clients stop sending, and
    /// watchers see the set empty.
    pub fn retire(&self, set: EndpointSet) {
        let mut posts = self.posts();
        posts.newest.remove(&set.job);
        posts.leaving.insert(set.job.clone());
        posts.put_right(&self.dir, &set.job);
        drop(posts);
        // No watcher is not an error.
        drop(self.changes.send(set));
    }

    /// Puts right whatever in the folder is not as it should be. The lock is given back between two
    /// files: nothing waits for a whole look.
    pub fn repair(&self) {
        let posts = self.posts();
        let jobs: BTreeSet<String> = posts.newest.keys().chain(&posts.leaving).cloned().collect();
        drop(posts);
        for job in jobs {
            let mut posts = self.posts();
            let failed_before = posts.failing.contains_key(&job);
            if posts.is_right(&self.dir, &job) {
                posts.settled(&job);
                continue;
            }
            posts.put_right(&self.dir, &job);
            if !posts.failing.contains_key(&job) {
                tracing::warn!(job, failed_before, "its endpoint file was put right");
            }
        }
    }

    /// The newest set of a job, and every change from now on.
    #[must_use]
    pub fn watch(&self, job: &str) -> (Option<EndpointSet>, broadcast::Receiver<EndpointSet>) {
        let posts = self.posts();
        (posts.newest.get(job).cloned(), self.changes.subscribe())
    }

    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Posts {
    /// True when the file of a job is as it should be, or should not be there and is not.
    fn is_right(&self, dir: &Path, job: &str) -> bool {
        let path = file_of(dir, job);
        match self.newest.get(job) {
            Some(set) => text_of(set).is_ok_and(|text| holds(&path, &text).unwrap_or(false)),
            None => path
                .symlink_metadata()
                .is_err_and(|error| error.kind() == io::ErrorKind::NotFound),
        }
    }

    fn settled(&mut self, job: &str) {
        self.failing.remove(job);
        self.leaving.remove(job);
    }

    /// Writes or removes the file of a job; a failure is said once and made up for at a later look.
    fn put_right(&mut self, dir: &Path, job: &str) {
        let done = match self.newest.get(job) {
            Some(set) => write(dir, set),
            None => remove(dir, job),
        };
        match done {
            Ok(()) => self.settled(job),
            Err(error) => {
                let error = error.to_string();
                if self.failing.get(job) != Some(&error) {
                    tracing::error!(error, job, "cannot put its endpoint file right; trying on");
                }
                self.failing.insert(job.to_owned(), error);
            }
        }
    }
}

/// Looks at the files every few seconds until the server stops.
pub fn keep(board: Arc<EndpointBoard>, shutdown: CancellationToken) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut timer = tokio::time::interval(LOOK_EVERY);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = timer.tick() => {}
            }
            let board = board.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || board.repair()).await {
                tracing::error!(%error, "a look at the endpoint files ended badly");
            }
        }
    })
}

#[cfg(test)]
mod tests;
