//! What a part of the space came to: counts and the best candidates. Parts are merged in any order
//! to the same result, because candidates have a total order. Spec §10.1.

use std::cmp::Ordering;

use serde::Serialize;

/// Candidates kept of each kind.
pub const KEPT_MAX: usize = 64;

/// Why a candidate was not scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Weights and one longest request exceed the device memory.
    NoFit,
    /// Engine, surrogate or catalog cannot do it.
    Unsupported,
    /// Its environment could not hold it if it were empty.
    Capacity,
    /// Dearer than the job allows, or without a price that the job limits.
    Price,
    /// No objective can be compared, or a change cannot be priced.
    NotScored,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::NoFit,
        Self::Unsupported,
        Self::Capacity,
        Self::Price,
        Self::NotScored,
    ];
}

/// A candidate with what it is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scored {
    /// Position in the space.
    pub candidate: u64,
    /// σ.
    pub sigma: f64,
    /// Probability that a limit breaks.
    pub breach_probability: f64,
    /// GPUs of all replicas.
    pub n_gpus: u32,
}

impl Scored {
    /// Larger σ first, then fewer GPUs, then the earlier position.
    fn by_sigma(&self, other: &Self) -> Ordering {
        let by_sigma = other.sigma.total_cmp(&self.sigma);
        by_sigma
            .then(self.n_gpus.cmp(&other.n_gpus))
            .then(self.candidate.cmp(&other.candidate))
    }

    /// Smaller risk first, then as by σ.
    fn by_risk(&self, other: &Self) -> Ordering {
        let by_risk = self.breach_probability.total_cmp(&other.breach_probability);
        by_risk.then_with(|| self.by_sigma(other))
    }
}

/// What a part of the space came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// Candidates looked at.
    pub n_candidates: u64,
    /// Candidates predicted, checked and scored.
    pub n_scored: u64,
    /// Predictions behind them: candidates that differ in price alone share one.
    pub n_predictions: u64,
    /// Candidates with headroom at peak and breach probability as wanted.
    pub n_meeting: u64,
    /// Candidates not scored, by [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// The best that meet the limits and are free now, best σ first.
    pub meeting: Vec<Scored>,
    /// Those of least risk that are free now: what is left when nothing meets the limits.
    pub least_risk: Vec<Scored>,
}

impl Default for Found {
    fn default() -> Self {
        Self {
            n_candidates: 0,
            n_scored: 0,
            n_predictions: 0,
            n_meeting: 0,
            refused: [0; Refusal::ALL.len()],
            meeting: Vec::with_capacity(KEPT_MAX),
            least_risk: Vec::with_capacity(KEPT_MAX),
        }
    }
}

impl Found {
    /// Candidates refused for a reason.
    #[must_use]
    pub fn n_refused(&self, refusal: Refusal) -> u64 {
        self.refused.get(refusal as usize).copied().unwrap_or(0)
    }

    pub(super) fn refuse(&mut self, refusal: Refusal, n: u64) {
        if let Some(count) = self.refused.get_mut(refusal as usize) {
            *count += n;
        }
    }

    /// Counts a scored candidate and keeps it while it is among the best.
    pub(super) fn add(&mut self, scored: Scored, meets: bool, is_free: bool) {
        self.n_scored += 1;
        self.n_meeting += u64::from(meets);
        if !is_free || !scored.sigma.is_finite() {
            return;
        }
        if meets {
            keep(&mut self.meeting, scored, Scored::by_sigma);
        }
        keep(&mut self.least_risk, scored, Scored::by_risk);
    }

    /// Both parts together.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        self.n_candidates += other.n_candidates;
        self.n_scored += other.n_scored;
        self.n_predictions += other.n_predictions;
        self.n_meeting += other.n_meeting;
        for (count, more) in self.refused.iter_mut().zip(other.refused) {
            *count += more;
        }
        for scored in &other.meeting {
            keep(&mut self.meeting, *scored, Scored::by_sigma);
        }
        for scored in &other.least_risk {
            keep(&mut self.least_risk, *scored, Scored::by_risk);
        }
        self
    }

    /// The candidate to take: the best that meets the limits, else that of least risk.
    #[must_use]
    pub fn best(&self) -> Option<&Scored> {
        self.meeting.first().or_else(|| self.least_risk.first())
    }
}

/// Puts a candidate where it belongs; the worst drops out of a full list.
fn keep(list: &mut Vec<Scored>, scored: Scored, order: fn(&Scored, &Scored) -> Ordering) {
    if list.len() == KEPT_MAX {
        let beats_last = |last: &Scored| order(&scored, last).is_lt();
        if !list.last().is_some_and(beats_last) {
            return;
        }
        list.pop();
    }
    let at = list.partition_point(|kept| order(kept, &scored).is_lt());
    list.insert(at, scored);
}
