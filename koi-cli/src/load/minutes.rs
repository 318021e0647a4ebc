//! Results by UTC minute: one open minute in memory, closed minutes in files of their own, so that the
//! last N minutes can be asked for and memory stays bounded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::buckets::{Latency, TPOT_EDGES_S, TTFT_EDGES_S};
use super::request::Timing;
use crate::secrets::write_whole;

/// One minute in microseconds.
pub(super) const MINUTE_US: i64 = 60_000_000;
/// Closed minutes kept per job.
const KEPT_MINUTES: usize = 180;

/// What happened in one minute, or in several added up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Minute {
    /// Start in microseconds since the Unix epoch; a whole minute.
    pub(super) start_us: i64,
    /// Requests sent; a retried one counts once.
    pub(super) sent: u64,
    /// Requests answered whole.
    pub(super) finished: u64,
    /// Requests that failed, by kind.
    pub(super) failed: BTreeMap<String, u64>,
    /// Requests sent a second time.
    pub(super) retried: u64,
    /// Requests shortened to fit the context.
    pub(super) shortened: u64,
    /// Prompt tokens of answered requests.
    pub(super) prompt_tokens: u64,
    /// Generated tokens, of failed requests too.
    pub(super) generated_tokens: u64,
    /// Send to first token, by the minute of the first token.
    pub(super) ttft: Latency,
    /// Time per output token, by the minute of the last token.
    pub(super) tpot: Latency,
}

impl Minute {
    /// Counts an answered or failed request.
    pub(super) fn finish(&mut self, timing: &Timing, prompt_tokens: u32) {
        self.generated_tokens += timing.tokens;
        if let Some(ttft) = timing.ttft {
            self.ttft.observe(&TTFT_EDGES_S, ttft.as_secs_f64());
        }
        if let Some(tpot) = timing.tpot {
            self.tpot.observe(&TPOT_EDGES_S, tpot.as_secs_f64());
        }
        match timing.failure {
            Some(kind) => *self.failed.entry(kind.name().to_owned()).or_default() += 1,
            None => {
                self.finished += 1;
                self.prompt_tokens += u64::from(prompt_tokens);
            }
        }
    }

    /// Requests that failed, of every kind.
    pub(super) fn n_failed(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Adds another minute; keeps the earlier start.
    pub(super) fn add(&mut self, other: &Self) {
        self.start_us = if self.start_us == 0 {
            other.start_us
        } else {
            self.start_us.min(other.start_us)
        };
        self.sent += other.sent;
        self.finished += other.finished;
        for (kind, n) in &other.failed {
            *self.failed.entry(kind.clone()).or_default() += n;
        }
        self.retried += other.retried;
        self.shortened += other.shortened;
        self.prompt_tokens += other.prompt_tokens;
        self.generated_tokens += other.generated_tokens;
        self.ttft.add(&other.ttft);
        self.tpot.add(&other.tpot);
    }

    /// The counts without the latencies.
    pub(super) fn counts(&self) -> Self {
        Self {
            ttft: Latency::default(),
            tpot: Latency::default(),
            ..self.clone()
        }
    }
}

/// The open minute of a job and the folder of its closed ones.
#[derive(Debug)]
pub(super) struct Minutes {
    folder: PathBuf,
    /// The open minute.
    pub(super) open: Minute,
    /// Counts of all closed minutes of this run.
    pub(super) closed: Minute,
}

impl Minutes {
    /// Starts in a folder, which is made.
    pub(super) fn new(folder: PathBuf, now_us: i64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let open = Minute {
            start_us: floor(now_us),
            ..Minute::default()
        };
        Ok(Self {
            folder,
            open,
            closed: Minute::default(),
        })
    }

    /// Takes out the open minute when it is over (or at the end of the run) and starts the next.
    pub(super) fn roll(&mut self, now_us: i64, ends: bool) -> Option<Minute> {
        let start = floor(now_us);
        if start == self.open.start_us && !ends {
            return None;
        }
        let next = Minute {
            start_us: start,
            ..Minute::default()
        };
        let closed = std::mem::replace(&mut self.open, next);
        self.closed.add(&closed.counts());
        Some(closed)
    }

    /// The folder of closed minutes.
    pub(super) fn folder(&self) -> PathBuf {
        self.folder.clone()
    }
}

const fn floor(us: i64) -> i64 {
    us - us.rem_euclid(MINUTE_US)
}

fn file_of(folder: &Path, start_us: i64) -> PathBuf {
    folder.join(format!("{:013}.json", start_us / MINUTE_US))
}

/// Writes a closed minute, added to what an earlier run left of the same minute, and drops the oldest.
pub(super) fn store(folder: &Path, minute: &Minute) -> anyhow::Result<()> {
    let path = file_of(folder, minute.start_us);
    let mut whole = minute.clone();
    if let Some(earlier) = load(&path) {
        whole.add(&earlier);
    }
    write_whole(&path, &serde_json::to_vec(&whole)?, 0o644)?;
    let files = files(folder)?;
    for old in files.iter().rev().skip(KEPT_MINUTES) {
        std::fs::remove_file(old).with_context(|| format!("remove {}", old.display()))?;
    }
    Ok(())
}

fn load(path: &Path) -> Option<Minute> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Files of closed minutes, oldest first.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "json"))
        .collect();
    paths.sort();
    Ok(paths)
}

/// The newest `n` whole minutes before `now_us` of a job, oldest first.
pub(super) fn newest(folder: &Path, n: u32, now_us: i64) -> anyhow::Result<Vec<Minute>> {
    let end = floor(now_us);
    let first = end - i64::from(n) * MINUTE_US;
    let inside = |m: &Minute| m.start_us >= first && m.start_us < end;
    Ok(files(folder)?
        .iter()
        .filter_map(|p| load(p))
        .filter(inside)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::load::request::FailureKind;

    fn timing(ttft_ms: u64, failure: Option<FailureKind>) -> Timing {
        let tpot = failure.is_none().then_some(Duration::from_millis(20));
        Timing {
            ttft: Some(Duration::from_millis(ttft_ms)),
            tpot,
            tokens: 5,
            failure,
        }
    }

    #[test]
    fn minutes_close_are_stored_and_add_up() {
        let dir = std::env::temp_dir().join(format!("koi-minutes-{}", std::process::id()));
        let t0 = 28_000_000 * MINUTE_US;
        let mut minutes = Minutes::new(dir.clone(), t0 + 5).unwrap();
        minutes.open.sent = 2;
        minutes.open.finish(&timing(100, None), 10);
        minutes
            .open
            .finish(&timing(200, Some(FailureKind::Cut)), 10);
        assert_eq!(minutes.roll(t0 + MINUTE_US - 1, false), None);
        let closed = minutes.roll(t0 + MINUTE_US, false).unwrap();
        assert_eq!(
            (closed.start_us, closed.finished, closed.n_failed()),
            (t0, 1, 1)
        );
        store(&dir, &closed).unwrap();
        // A second run in the same minute adds to it.
        store(&dir, &closed).unwrap();
        let all = newest(&dir, 1, t0 + MINUTE_US + 1).unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(
            (
                all[0].sent,
                all[0].ttft.count(),
                all[0].tpot.count(),
                all[0].prompt_tokens
            ),
            (4, 4, 2, 20)
        );
        assert!(
            newest(&dir, 1, t0 + 1).unwrap().is_empty(),
            "the open minute is not whole"
        );
        for i in 1..=200 {
            store(
                &dir,
                &Minute {
                    start_us: t0 + i * MINUTE_US,
                    ..Minute::default()
                },
            )
            .unwrap();
        }
        assert_eq!(files(&dir).unwrap().len(), KEPT_MINUTES);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
