//! What the kernel alone says of a launch, whatever its shim says or cannot say.
//!
//! A shim on a full disk or a stopped one reports nothing, and its engine is dead all the same. A
//! pid with its start time, in the boot that recorded it, is proof; silence is not. Only what the
//! record names or what descends from it is ever signalled (spec §14; reliability D3, D5, D7).

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use koi_shim::files::try_lock;
use koi_shim::process::{NonceMark, boot_id, is_alive, nonce_mark};
use koi_shim::record::{Identity, Member, ProcessRef};
use koi_shim::tree::{Depth, OwnedTree, open_exactly, signal_exactly};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::supervise::ReplicaProcess;

/// Between looks at a process of which the kernel gives no handle.
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// Longest wait for killed processes to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(3);

/// Waits until exactly this process has ended; returns at once when it has. Asks nobody but the
/// kernel, and wakes at the moment of the end.
pub async fn ended(process: ProcessRef) {
    loop {
        let handle = open_exactly(process);
        if !is_alive(process) {
            return;
        }
        let handle = handle.and_then(readable_at_the_end);
        match &handle {
            // It becomes readable at the end; the next round makes sure.
            Some(handle) if handle.readable().await.is_ok() => {}
            _ => tokio::time::sleep(LOOK_PAUSE).await,
        }
        if is_alive(process) {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

#[expect(
    unsafe_code,
    reason = "the runtime has no safe way to wait for a process handle"
)]
fn readable_at_the_end(handle: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is the same open descriptor until it is dropped, and the `AsyncFd`, which
    // owns it, gives up its registration before that.
    unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) }.ok()
}

/// True when the first process of a recorded launch is provably gone.
///
/// # Errors
/// When the kernel does not say which boot this is.
pub fn has_ended(identity: &Identity) -> io::Result<bool> {
    Ok(identity.boot_id != boot_id()? || !is_alive(identity.engine))
}

/// Every process that belongs to a launch, by descent, session or mark.
///
/// # Errors
/// When `/proc` cannot be read.
pub async fn members(identity: &Identity) -> io::Result<Vec<Member>> {
    let tree = OwnedTree::of(identity);
    tokio::task::spawn_blocking(move || tree.members(Depth::Marked))
        .await
        .map_err(io::Error::other)?
}

async fn kill_members(identity: &Identity) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let left = members(identity).await?;
        if left.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > KILL_LIMIT {
            return Err(io::Error::other(format!(
                "{} processes do not die; the first is {}",
                left.len(),
                left[0].process.pid
            )));
        }
        for member in left {
            // One that ended meanwhile is not signalled.
            let _sent = signal_exactly(member.process, Signal::KILL);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl ReplicaProcess {
    /// True when the engine's first process is provably gone.
    ///
    /// # Errors
    /// When the kernel does not say which boot this is.
    pub fn has_ended(&self) -> io::Result<bool> {
        has_ended(&self.newest_identity())
    }

    /// True while a shim holds the state folder; a folder that cannot be looked at has none.
    #[must_use]
    pub fn is_held(&self) -> bool {
        match try_lock(&self.state_dir) {
            Ok(Some(lock)) => lock.release().is_err(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Asks the shim to stop the engine. Where no shim takes the order, does the same itself: TERM
    /// to exactly the recorded process, KILL to what is left of its tree after the grace.
    ///
    /// # Errors
    /// When the kernel cannot be asked or processes do not die.
    pub async fn stop(&self, grace_s: u32) -> io::Result<()> {
        let Err(error) = self.terminate(Some(grace_s)).await else {
            return Ok(());
        };
        tracing::debug!(replica = %self.meta.replica_id, %error, "the shim did not take the stop");
        let identity = self.newest_identity();
        let is_another = nonce_mark(identity.engine.pid, &identity.nonce) == NonceMark::Other;
        if identity.boot_id != boot_id()? || is_another {
            return Ok(());
        }
        if signal_exactly(identity.engine, Signal::TERM) {
            let grace = Duration::from_secs(u64::from(grace_s));
            // Time that runs out leads to the kill like an end does.
            drop(tokio::time::timeout(grace, ended(identity.engine)).await);
        }
        kill_members(&identity).await
    }

    /// Removes what an engine left behind whose end is proven: the rest of its tree, and then a
    /// shim that holds the folder and does not answer. Does nothing while the engine lives.
    ///
    /// # Errors
    /// When the kernel cannot be asked or processes do not die.
    pub async fn clear_away(&self) -> io::Result<()> {
        let identity = self.newest_identity();
        if identity.boot_id != boot_id()? || is_alive(identity.engine) {
            return Ok(());
        }
        kill_members(&identity).await?;
        if self.is_held() && self.ping().await.is_err() {
            let id = &self.meta.replica_id;
            let killed = signal_exactly(identity.shim, Signal::KILL);
            tracing::warn!(replica = %id, pid = identity.shim.pid, killed, "its shim hangs");
        }
        Ok(())
    }
}
