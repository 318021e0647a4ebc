//! Probes: a few swaps a tick that are made for what they teach, beside the swap budget.
//!
//! Says which scored options are probes; who scores them is the planner's business, and how much
//! an edge knows the contrasts'. Spec §9, probe allowance.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, TickId};
use crate::params::Params;
use crate::time::UtcMicros;

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;
/// Micro-units of one USD.
const MICROS_PER_USD: f64 = 1e6;

/// Probes made so far, as far as they limit the next ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeLedger {
    /// Tick of the newest probe of each job, while it bars another.
    pub last_tick: BTreeMap<JobId, TickId>,
    /// Day of the spending, counted from 1970-01-01 UTC.
    pub day: i64,
    /// Spent on that day, in millionths of a USD.
    pub spent_usd_micro: i64,
}

/// A swap that a plan makes as a probe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedProbe {
    /// Whose.
    pub job: JobId,
    /// What it costs: the change, and what the ladder costs more until the next probe may follow.
    pub usd: f64,
    /// Information that it is to bring.
    pub information_gain: f64,
}

/// An option of a running job, as far as it may be a probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeOption {
    /// Whose.
    pub job: JobId,
    /// Position among the job's options.
    pub option: usize,
    /// Expected information gain; only options that have one can be probes.
    pub information_gain: f64,
    /// Gain over what runs without the information and without the cost of the change, which the
    /// day's USD bound: negative when the job is worse off.
    pub gain: f64,
    /// σ of what runs, the measure of what is given up.
    pub sigma_current: f64,
    /// Breach probability.
    pub breach_probability: f64,
    /// Breach probability that the job allows.
    pub tau: f64,
    /// What it costs, USD.
    pub usd: f64,
    /// An edge of a mechanism that the option commits lacks power, and the option gives it some.
    pub tests_unpowered_edge: bool,
}

/// What limits the probes of a tick.
#[derive(Debug, Clone, Copy)]
pub struct ProbeLimits<'a> {
    /// The tick.
    pub tick: TickId,
    /// Its time: spending counts by the day.
    pub now: UtcMicros,
    /// Jobs that run.
    pub active_jobs: u32,
    /// Probes made so far.
    pub ledger: &'a ProbeLedger,
}

impl ProbeLedger {
    /// The ledger after these probes, with what bars nothing any more left out.
    #[must_use]
    pub fn after<'a>(
        &self,
        (tick, now): (TickId, UtcMicros),
        probes: impl IntoIterator<Item = &'a PlannedProbe>,
        params: &Params,
    ) -> Self {
        let mut next = self.at(now);
        let period = i64::from(params.probe_period_ticks);
        next.last_tick
            .retain(|_, last| tick.0.saturating_sub(last.0) < period);
        for probe in probes {
            next.last_tick.insert(probe.job, tick);
            let usd_micro = (probe.usd.max(0.0) * MICROS_PER_USD).ceil() as i64;
            next.spent_usd_micro = next.spent_usd_micro.saturating_add(usd_micro);
        }
        next
    }

    /// The ledger at a moment: a new day has spent nothing.
    fn at(&self, now: UtcMicros) -> Self {
        let mut ledger = self.clone();
        let day = now.0.div_euclid(DAY_US);
        if day != self.day {
            (ledger.day, ledger.spent_usd_micro) = (day, 0);
        }
        ledger
    }

    /// True when the job may be probed in this tick.
    #[must_use]
    pub fn is_free(&self, job: JobId, tick: TickId, params: &Params) -> bool {
        let period = i64::from(params.probe_period_ticks);
        let last = self.last_tick.get(&job);
        last.is_none_or(|last| tick.0.saturating_sub(last.0) >= period)
    }

    /// USD that may still be spent on the day.
    #[must_use]
    pub fn usd_left(&self, now: UtcMicros, params: &Params) -> f64 {
        let spent = self.at(now).spent_usd_micro as f64 / MICROS_PER_USD;
        (params.probe_usd_per_day - spent).max(0.0)
    }
}

/// Probes allowed in a tick.
///
/// # Formula
/// max(1, ⌈active / 24⌉); 0 when no job runs or no USD may be spent
///
/// # Source
/// Spec §9
#[must_use]
pub fn allowance(active_jobs: u32, params: &Params) -> u32 {
    if active_jobs == 0 || params.probe_usd_per_day <= 0.0 {
        return 0;
    }
    active_jobs
        .div_ceil(params.probe_period_ticks.max(1))
        .max(1)
}

/// What an option gives up against what runs, as a share of it.
///
/// # Formula
/// max(0, −gain) / max(|σ of what runs|, 1)
#[must_use]
pub fn regret_share(option: &ProbeOption) -> f64 {
    (-option.gain).max(0.0) / option.sigma_current.abs().max(1.0)
}

/// The probes of a tick: options of highest information gain, at most one per job, none of a job
/// that was probed lately, each within the regret allowed, the job's tau and what is left of the
/// day's USD. Ties by job, then by option.
///
/// # Source
/// Spec §9
#[must_use]
pub fn pick(
    options: &[ProbeOption],
    limits: &ProbeLimits<'_>,
    params: &Params,
) -> Vec<ProbeOption> {
    pick_by(options, limits, params, |option, _| option.information_gain)
}

/// The same where a probe adds less once another is picked that tests the same.
///
/// # Shapes
/// `adds(option, picked)` is what an option adds to all that were picked so far, the newest of which
/// is `picked` when it has not been told yet; it never grows.
///
/// # Formula
/// greedy over what each adds; an addition that has not been looked at since the last pick is an upper
/// bound, so only the best is ever looked at again
///
/// # Source
/// Spec §7, saturation, and §9; Minoux, Accelerated greedy algorithms, 1978
#[must_use]
pub fn pick_by(
    options: &[ProbeOption],
    limits: &ProbeLimits<'_>,
    params: &Params,
    mut adds: impl FnMut(&ProbeOption, Option<&ProbeOption>) -> f64,
) -> Vec<ProbeOption> {
    let mut left = limits.ledger.usd_left(limits.now, params);
    let admitted = |o: &&ProbeOption| {
        let numbers = [o.information_gain, o.gain, o.sigma_current, o.usd];
        o.tests_unpowered_edge
            && numbers.iter().all(|x| x.is_finite())
            && o.information_gain > 0.0
            && regret_share(o) <= params.probe_regret_max
            && o.breach_probability <= o.tau
            && limits.ledger.is_free(o.job, limits.tick, params)
    };
    let ranked = options.iter().filter(admitted).copied();
    let mut waiting: BinaryHeap<Waiting> = ranked.map(|o| Waiting { option: o, at: 0 }).collect();
    let most = allowance(limits.active_jobs, params) as usize;
    let (mut picked, mut told): (Vec<ProbeOption>, usize) = (Vec::new(), 0);
    while let Some(mut best) = waiting.pop().filter(|_| picked.len() < most) {
        let is_second = picked.iter().any(|p| p.job == best.option.job);
        if is_second || best.option.usd > left {
            continue;
        }
        if best.at < picked.len() {
            let news = picked.get(told);
            let gain = adds(&best.option, news).min(best.option.information_gain);
            (told, best.at) = (picked.len(), picked.len());
            best.option.information_gain = gain;
            if gain > 0.0 {
                waiting.push(best);
            }
            continue;
        }
        left -= best.option.usd.max(0.0);
        picked.push(best.option);
    }
    picked
}

/// An option with what it added when so many were picked; the largest first, ties by job and option.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    option: ProbeOption,
    at: usize,
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.option, &other.option);
        let by_gain = a.information_gain.total_cmp(&b.information_gain);
        by_gain
            .then(b.job.cmp(&a.job))
            .then(b.option.cmp(&a.option))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn job(n: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(n))
    }

    fn option(n: u128, position: usize, information_gain: f64) -> ProbeOption {
        ProbeOption {
            job: job(n),
            option: position,
            information_gain,
            gain: 0.0,
            sigma_current: -0.3,
            breach_probability: 0.05,
            tau: 0.1,
            usd: 1.0,
            tests_unpowered_edge: true,
        }
    }

    fn limits(ledger: &ProbeLedger, active_jobs: u32) -> ProbeLimits<'_> {
        ProbeLimits {
            tick: TickId(100),
            now: UtcMicros(DAY_US * 20_000),
            active_jobs,
            ledger,
        }
    }

    fn jobs_of(picked: &[ProbeOption]) -> Vec<(JobId, usize)> {
        picked.iter().map(|p| (p.job, p.option)).collect()
    }

    #[test]
    fn the_allowance_grows_with_the_fleet_and_ends_with_the_money() {
        let params = Params::default();
        let of = |n| allowance(n, &params);
        assert_eq!([of(0), of(1), of(24), of(25), of(240)], [0, 1, 1, 2, 10]);
        let off = Params {
            probe_usd_per_day: 0.0,
            ..params
        };
        assert_eq!(allowance(240, &off), 0);
        let ledger = ProbeLedger::default();
        assert!(pick(&[option(1, 0, 2.0)], &limits(&ledger, 24), &off).is_empty());
    }

    #[test]
    fn the_highest_gain_wins_and_every_rule_holds() {
        let params = Params::default();
        let ledger = ProbeLedger {
            last_tick: BTreeMap::from([(job(9), TickId(77)), (job(8), TickId(76))]),
            ..ProbeLedger::default()
        };
        let costly = ProbeOption {
            gain: -0.021,
            ..option(3, 0, 9.0)
        };
        let risky = ProbeOption {
            breach_probability: 0.11,
            ..option(4, 0, 9.0)
        };
        let known = ProbeOption {
            tests_unpowered_edge: false,
            ..option(5, 0, 9.0)
        };
        let dear = ProbeOption {
            usd: params.probe_usd_per_day + 1.0,
            ..option(6, 0, 9.0)
        };
        let nan = ProbeOption {
            information_gain: f64::NAN,
            ..option(7, 0, 9.0)
        };
        let lately = option(9, 0, 8.0);
        let long_ago = option(8, 0, 7.0);
        let options = [
            costly,
            risky,
            known,
            dear,
            nan,
            lately,
            long_ago,
            option(1, 0, 1.0),
            option(1, 1, 2.0),
            option(2, 0, 2.0),
        ];
        let picked = pick(&options, &limits(&ledger, 72), &params);
        assert_eq!(jobs_of(&picked), [(job(8), 0), (job(1), 1), (job(2), 0)]);
    }

    #[test]
    fn spending_counts_by_the_day() {
        let params = Params::default();
        let now = UtcMicros(DAY_US * 20_000);
        let probe = PlannedProbe {
            job: job(1),
            usd: params.probe_usd_per_day - 0.5,
            information_gain: 1.0,
        };
        let spent = ProbeLedger::default().after((TickId(1), now), &[probe], &params);
        assert!(!spent.is_free(job(1), TickId(24), &params));
        assert!(spent.is_free(job(1), TickId(25), &params));
        assert!((spent.usd_left(now, &params) - 0.5).abs() < 1e-6);
        let tomorrow = now.plus_seconds(86_400);
        assert!((spent.usd_left(tomorrow, &params) - params.probe_usd_per_day).abs() < 1e-9);
        let later = spent.after((TickId(26), tomorrow), &[], &params);
        assert!(later.last_tick.is_empty());
        assert_eq!(later.spent_usd_micro, 0);
    }

    proptest! {
        #[test]
        fn probes_stay_within_allowance_and_money(
            offers in prop::collection::vec((0..12_u128, 0..4_usize, -0.1..3.0_f64, -0.1..0.1_f64, 0.0..40.0_f64), 0..80),
            active in 0..300_u32,
            spent in 0..60_000_000_i64,
        ) {
            let params = Params::default();
            let ledger = ProbeLedger { day: 20_000, spent_usd_micro: spent, ..ProbeLedger::default() };
            let options: Vec<ProbeOption> = offers.into_iter().map(|(n, position, eig, gain, usd)| ProbeOption {
                gain, usd, ..option(n, position, eig)
            }).collect();
            let limits = limits(&ledger, active);
            let picked = pick(&options, &limits, &params);
            prop_assert!(picked.len() <= allowance(active, &params) as usize);
            let jobs: std::collections::BTreeSet<_> = picked.iter().map(|p| p.job).collect();
            prop_assert_eq!(jobs.len(), picked.len());
            let usd: f64 = picked.iter().map(|p| p.usd).sum();
            prop_assert!(usd <= ledger.usd_left(limits.now, &params) + 1e-9);
            prop_assert!(picked.iter().all(|p| p.information_gain > 0.0 && regret_share(p) <= params.probe_regret_max));
        }
    }
}
