//! The end of one engine: told by its shim, and by the kernel where the shim cannot tell.

use std::sync::atomic::Ordering;
use std::time::Duration;

use koi_core::agent::AgentInput;
use koi_shim::record::ExitRecord;

use crate::host::{Event, send};
use crate::logs::{classify, escape, tail};
use crate::supervise::ReplicaProcess;
use crate::supervise::adoption::{Adopted, adopt_one};
use crate::supervise::control::{WatchEvent, is_engine_core};
use crate::supervise::evidence::ended;
use crate::worker::Parts;

/// Between tries to take over from a lost shim.
const ADOPT_PAUSE: Duration = Duration::from_secs(1);
/// Time that a shim has to say how its engine ended, once the kernel has said that it did. Clients
/// are still sent to the dead engine meanwhile.
const WORD_LIMIT: Duration = Duration::from_secs(1);
/// End of the log that explains an exit.
const TAIL_BYTES: u64 = 4096;

/// Sees the end of the engine at once; survives the loss of its shim, and needs no shim at all to
/// know that the process is gone.
pub(super) async fn watch(mut parts: Parts) {
    let (id, events) = (parts.process.meta.replica_id.clone(), parts.events.clone());
    let (engine, seen_by) = (parts.process.identity.engine, parts.process.clone());
    let unseen = async {
        ended(engine).await;
        tokio::time::sleep(WORD_LIMIT).await;
        let status = format!("pid {} is gone, its shim has not said how", engine.pid);
        in_words(&seen_by, &status)
    };
    let reason = tokio::select! {
        reason = follow(&mut parts) => reason,
        reason = unseen => reason,
    };
    send(&events, Event::Input(AgentInput::Exited { id, reason })).await;
}

/// Watches through one shim after another; returns how the engine ended.
async fn follow(parts: &mut Parts) -> String {
    let mut said = String::new();
    loop {
        if let Some(reason) = watch_one_shim(parts).await {
            return reason;
        }
        let supervision = &parts.launcher.supervision;
        let why = match adopt_one(supervision, &parts.process.state_dir).await {
            Adopted::Running(process) | Adopted::Reshimmed(process) => {
                parts.process = (*process).clone();
                send(&parts.events, Event::Reshimmed(process)).await;
                continue;
            }
            Adopted::Ended(_, exit) => return reason_of(&parts.process, &exit),
            Adopted::Unserved(_, why) | Adopted::Unusable(why) => why,
            Adopted::OtherBoot(_) => "its record is of another boot".to_owned(),
        };
        if why != said {
            tracing::warn!(replica = %parts.process.meta.replica_id, why, "no shim serves it");
            said = why;
        }
        tokio::time::sleep(ADOPT_PAUSE).await;
    }
}

/// `None` when the shim is lost and the engine may live.
async fn watch_one_shim(parts: &Parts) -> Option<String> {
    let mut watch = parts.process.watch().await.ok()?;
    loop {
        match watch.next().await {
            Ok(WatchEvent::Lost(lost))
                if parts.ready.load(Ordering::Relaxed) && is_engine_core(&lost.member) =>
            {
                // The API process would end by itself in seconds; nothing it says is of use.
                if let Err(error) = parts.process.kill().await {
                    tracing::debug!(%error, "the shim did not take the kill");
                }
                return Some(format!(
                    "{} (pid {}) died",
                    lost.member.name, lost.member.process.pid
                ));
            }
            Ok(WatchEvent::Lost(_)) => {}
            Ok(WatchEvent::Exited(exit) | WatchEvent::Gone(exit)) => {
                return Some(reason_of(&parts.process, &exit));
            }
            Ok(WatchEvent::ShimLost) | Err(_) => return None,
        }
    }
}

/// How it ended, in words: status, class of the crash, last lines of its log.
fn reason_of(process: &ReplicaProcess, exit: &ExitRecord) -> String {
    let status = match (exit.code, exit.signal, &exit.spawn_error) {
        (_, _, Some(error)) => format!("could not be started: {error}"),
        (Some(code), _, _) => format!("exit code {code}"),
        (_, Some(signal), _) => format!("killed by signal {signal}"),
        (None, None, None) => "ended unseen".to_owned(),
    };
    in_words(process, &status)
}

fn in_words(process: &ReplicaProcess, status: &str) -> String {
    let log = tail(&process.log_path(), TAIL_BYTES).unwrap_or_default();
    let class = classify(&log).name();
    let lines: Vec<&str> = log
        .lines()
        .rev()
        .filter(|l| !l.trim().is_empty())
        .take(3)
        .collect();
    let last = lines.into_iter().rev().collect::<Vec<_>>().join(" | ");
    format!("{status} ({class}): {}", escape(&last))
}
