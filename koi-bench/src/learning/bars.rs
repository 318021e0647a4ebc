//! The stated bounds of the study beside those on beliefs: a regime change, convergence, coverage.

use std::collections::BTreeMap;

use super::LearningArgs;
use super::claims::Kind;
use super::course::Rule;
use super::record::Course;
use super::seeds::Outcome;
use crate::report::Bound;
use crate::statistics::median;

/// Ticks over which coverage is counted.
pub(super) const COVERAGE_TICKS: usize = 200;
/// Share of rows with a diverged pace in which a change counts as noticed.
const NOTICED_SHARE: f64 = 0.5;
/// Ticks over which coverage after a change is taken.
const RECOVERY_WINDOW: usize = 10;
/// Range of realized coverage.
const COVERAGE: (f64, f64) = (0.88, 0.92);

/// First tick after `at`, from 1, in which a change of pace is noticed.
pub(super) fn noticed(course: &Course, at: usize) -> Option<usize> {
    let after = course.pace_diverged.get(at..)?;
    let first = after.iter().position(|share| *share > NOTICED_SHARE)?;
    Some(first + 1)
}

/// Ticks before `at` in which as much diverged without a change, of the last hundred.
fn false_alarms(course: &Course, at: usize) -> usize {
    let quiet = &course.pace_diverged[at.saturating_sub(100)..at];
    quiet.iter().filter(|s| **s > NOTICED_SHARE).count()
}

/// Median belief in true claims after a tick.
pub(super) fn true_belief(outcome: &Outcome, at: usize) -> Option<f64> {
    let true_claims = outcome.claims.iter().filter(|c| c.kind == Kind::True);
    let beliefs: Vec<f64> = true_claims
        .filter_map(|c| outcome.course.beliefs.get(&c.id)?.get(at).copied())
        .collect();
    median(&beliefs)
}

/// Share inside the band by outcome over some ticks.
pub(super) fn coverage(
    courses: &[&Course],
    ticks: std::ops::Range<usize>,
) -> BTreeMap<&'static str, f64> {
    let mut sums: BTreeMap<&'static str, (u32, u32)> = BTreeMap::new();
    for course in courses {
        let all = course.coverage.get(ticks.clone()).into_iter().flatten();
        for (name, (inside, judged)) in all.flatten() {
            let sum = sums.entry(*name).or_default();
            sum.0 += inside;
            sum.1 += judged;
        }
    }
    let judged = sums.into_iter().filter(|(_, (_, n))| *n > 0);
    judged
        .map(|(name, (inside, n))| (name, f64::from(inside) / f64::from(n)))
        .collect()
}

/// Ticks after `at` until every outcome's coverage over ten ticks is back above the lower bound.
fn recovered(course: &Course, at: usize) -> Option<usize> {
    let last = course.coverage.len().checked_sub(RECOVERY_WINDOW)?;
    let is_back = |from: usize| {
        let now = coverage(&[course], from..from + RECOVERY_WINDOW);
        now.values().all(|share| *share >= COVERAGE.0)
    };
    (at..=last)
        .find(|from| is_back(*from))
        .map(|from| from - at)
}

/// First tick, from 1, after which every bullet of Assumption 2 holds.
fn converged(course: &Course) -> Option<usize> {
    let first = course.converged.iter().position(|c| c.holds())?;
    Some(first + 1)
}

/// Ticks after `at` in which convergence ends; `None` where it did not hold before, or lasts.
fn ended(course: &Course, at: usize) -> Option<usize> {
    course
        .converged
        .get(at.checked_sub(1)?)?
        .holds()
        .then_some(())?;
    let after = course.converged.get(at..)?;
    Some(after.iter().position(|c| !c.holds())? + 1)
}

/// The largest of all runs; infinite where one has none.
fn worst(values: impl Iterator<Item = Option<usize>>) -> Option<f64> {
    values
        .map(|v| v.map_or(f64::INFINITY, |v| v as f64))
        .max_by(f64::total_cmp)
}

/// The bounds that these runs can judge, for the study's own rule.
pub(super) fn bounds(args: &LearningArgs, outcomes: &[Outcome]) -> Vec<Bound> {
    let own: Vec<&Outcome> = outcomes
        .iter()
        .filter(|o| o.rule == Rule::Contrast)
        .collect();
    let at = args.ticks as usize;
    let mut bounds = Vec::new();
    if own.is_empty() {
        return bounds;
    }
    if args.regime_change {
        bounds.extend(regime(&own, at));
    }
    if args.stationary {
        bounds.extend(stationary(&own, at));
    }
    if args.stationary && args.regime_change {
        let ticks = worst(own.iter().map(|o| ended(&o.course, at)));
        let what = "ticks in which a shift ends convergence, worst seed";
        bounds.push(Bound::at_most(what.to_owned(), ticks, 3.0, "ticks"));
    }
    bounds
}

fn regime(own: &[&Outcome], at: usize) -> Vec<Bound> {
    let noticed_after = worst(own.iter().map(|o| noticed(&o.course, at)));
    let alarms = worst(own.iter().map(|o| Some(false_alarms(&o.course, at))));
    let beliefs = own.iter().filter_map(|o| {
        let last = o.course.pace_diverged.len().checked_sub(1)?;
        true_belief(o, last)
    });
    let back = worst(own.iter().map(|o| recovered(&o.course, at)));
    vec![
        Bound::at_most(
            "ticks until a slower engine version is noticed, worst seed".to_owned(),
            noticed_after,
            3.0,
            "ticks",
        ),
        Bound::at_most(
            "quiet ticks of the last 100 that look like it, worst seed".to_owned(),
            alarms,
            0.0,
            "ticks",
        ),
        Bound::at_least(
            "median belief in true claims 100 ticks later, worst seed".to_owned(),
            beliefs.min_by(f64::total_cmp),
            0.9,
            "",
        ),
        Bound::at_most(
            "ticks until coverage is back, worst seed".to_owned(),
            back,
            30.0,
            "ticks",
        ),
    ]
}

fn stationary(own: &[&Outcome], at: usize) -> Vec<Bound> {
    let ticks = worst(own.iter().map(|o| converged(&o.course)));
    let what = "ticks until every bullet of Assumption 2 holds, worst seed";
    let mut bounds = vec![Bound::at_most(what.to_owned(), ticks, 500.0, "ticks")];
    let courses: Vec<&Course> = own.iter().map(|o| &o.course).collect();
    let from = at.saturating_sub(COVERAGE_TICKS);
    for (name, share) in coverage(&courses, from..at) {
        let what = format!("coverage of {name} over the last {COVERAGE_TICKS} ticks");
        bounds.push(Bound::within(what, Some(share), COVERAGE));
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_where_most_rows_diverge_and_one_run_that_misses_it_counts() {
        let course = |pace: &[f64]| Course {
            pace_diverged: pace.to_vec(),
            ..Course::default()
        };
        let seen = course(&[0.0, 0.6, 0.1, 0.2, 0.7, 0.1]);
        assert_eq!((noticed(&seen, 3), false_alarms(&seen, 3)), (Some(2), 1));
        assert_eq!(noticed(&course(&[0.1; 6]), 3), None);
        assert_eq!(worst([Some(2), None].into_iter()), Some(f64::INFINITY));
        assert_eq!(worst([Some(2), Some(1)].into_iter()), Some(2.0));
    }

    #[test]
    fn coverage_is_back_once_every_outcome_is() {
        let tick = |inside: u32| BTreeMap::from([("a", (90, 100)), ("b", (inside, 100))]);
        let course = Course {
            coverage: [vec![tick(90); 5], vec![tick(40); 4], vec![tick(90); 20]].concat(),
            ..Course::default()
        };
        let all = coverage(&[&course], 0..5);
        assert!((all["b"] - 0.9).abs() < 1e-12);
        assert_eq!(recovered(&course, 5), Some(4));
    }
}
