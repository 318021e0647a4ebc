//! What enumeration refused and why, one line per place and reason: the first half of `explain`.

use std::collections::BTreeMap;

use crate::ids::JobId;
use crate::plan::Considered;
use crate::planner::pools::PoolKey;
use crate::surrogate::MemoryBreakdown;

/// Lines kept per job.
const LINES_MAX: usize = 24;
const GIB: f64 = (1_u64 << 30) as f64;

/// Refusals of one job.
#[derive(Debug)]
pub(super) struct Refusals {
    job: JobId,
    lines: BTreeMap<(String, String), String>,
    /// The split of a pool that came nearest to fitting: missing bytes and line.
    nearest: BTreeMap<String, (f64, String)>,
}

fn place_name(key: &PoolKey) -> String {
    format!("{} on {}", key.environment, key.instance_type)
}

impl Refusals {
    pub(super) const fn new(job: JobId) -> Self {
        Self {
            job,
            lines: BTreeMap::new(),
            nearest: BTreeMap::new(),
        }
    }

    /// A place, or a shape there, is refused for a reason; the first reason of a code stays.
    pub(super) fn place(&mut self, key: &PoolKey, code: &str, reason: String) {
        self.lines
            .entry((code.to_owned(), place_name(key)))
            .or_insert(reason);
    }

    /// A split does not fit the device memory.
    pub(super) fn memory(&mut self, key: &PoolKey, gpus: u32, memory: &MemoryBreakdown) {
        let request = memory.request_bytes();
        let needed =
            memory.weights_bytes + memory.activation_bytes + memory.reserved_bytes + request;
        let missing = needed - memory.allowed_bytes;
        let best = self
            .nearest
            .entry(place_name(key))
            .or_insert((f64::INFINITY, String::new()));
        if missing >= best.0 {
            return;
        }
        let line = format!(
            "over {gpus} GPUs each needs {:.1} GiB (weights {:.1}, activations {:.1}, one longest \
             request {:.1}) of {:.1} allowed: {:.1} GiB too much; more GPUs a chain, a larger GPU \
             or shorter requests would help",
            needed / GIB,
            memory.weights_bytes / GIB,
            memory.activation_bytes / GIB,
            request / GIB,
            memory.allowed_bytes / GIB,
            missing / GIB,
        );
        *best = (missing, line);
    }

    /// One line per place and code, bounded.
    pub(super) fn into_considered(self) -> Vec<Considered> {
        let job = self.job;
        let line = |code: &str, option: String, reason: String| Considered {
            job,
            option,
            sigma: None,
            gain: None,
            outcomes: None,
            usd_per_hour: None,
            code: code.to_owned(),
            reason,
        };
        let memory = self
            .nearest
            .into_iter()
            .map(|(place, (_, r))| line("NO-FIT", place, r));
        let others = self
            .lines
            .into_iter()
            .map(|((code, place), r)| line(&code, place, r));
        memory.chain(others).take(LINES_MAX).collect()
    }
}
