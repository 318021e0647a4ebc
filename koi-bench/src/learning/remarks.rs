//! What else a run shows beside its beliefs: invariance of false edges, coverage of the bands, a regime
//! change, convergence.

use koi_core::validation::Icp;

use super::LearningArgs;
use super::bars::{self, COVERAGE_TICKS};
use super::claims::Kind;
use super::course::Rule;
use super::record::Course;
use super::seeds::Outcome;
use crate::report::{number, percent};

/// One line for each remark on all runs.
pub(super) fn remarks(args: &LearningArgs, outcomes: &[Outcome]) -> Vec<String> {
    let mut notes = Vec::new();
    for rule in Rule::ALL {
        let of_rule: Vec<&Outcome> = outcomes.iter().filter(|o| o.rule == rule).collect();
        if of_rule.is_empty() {
            continue;
        }
        notes.push(format!(
            "{}: edges that hold in one environment, by ICP: {}",
            rule.title(),
            invariance(&of_rule, Kind::OnePlace, false)
        ));
        notes.push(format!(
            "{}: edges of true claims, by ICP: {}",
            rule.title(),
            invariance(&of_rule, Kind::True, true)
        ));
        notes.push(format!(
            "{}: coverage over the last {COVERAGE_TICKS} ticks: {}",
            rule.title(),
            coverage(&of_rule)
        ));
        if args.regime_change {
            for outcome in &of_rule {
                notes.push(regime(args, outcome));
            }
        }
        if args.stationary {
            for outcome in &of_rule {
                notes.extend(convergence(outcome));
            }
        }
    }
    notes
}

fn invariance(outcomes: &[&Outcome], kind: Kind, all_edges: bool) -> String {
    let mut counts = [0_u32; 3];
    for outcome in outcomes {
        for claim in outcome.claims.iter().filter(|c| c.kind == kind) {
            let verdicts = outcome.course.invariance.get(&claim.id);
            let edges: Vec<&String> = if all_edges {
                claim.edges.iter().collect()
            } else {
                claim.false_edge.iter().collect()
            };
            for edge in edges {
                let verdict = verdicts.and_then(|v| v.get(edge)).copied();
                let slot = match verdict.unwrap_or(Icp::Undecided) {
                    Icp::Accept => 0,
                    Icp::Reject => 1,
                    Icp::Undecided => 2,
                };
                counts[slot] += 1;
            }
        }
    }
    format!(
        "{} accepted, {} rejected, {} undecided",
        counts[0], counts[1], counts[2]
    )
}

fn coverage(outcomes: &[&Outcome]) -> String {
    let courses: Vec<&Course> = outcomes.iter().map(|o| &o.course).collect();
    let ticks = courses.iter().map(|c| c.coverage.len()).max().unwrap_or(0);
    let shares = bars::coverage(&courses, ticks.saturating_sub(COVERAGE_TICKS)..ticks);
    let of = |(name, share): (&str, f64)| format!("{name} {}", percent(Some(share)));
    let all: Vec<String> = shares.into_iter().map(of).collect();
    all.join(", ")
}

/// When a new engine version is noticed, and what it does to the beliefs in true claims.
fn regime(args: &LearningArgs, outcome: &Outcome) -> String {
    let at = args.ticks as usize;
    let course = &outcome.course;
    let before = &course.pace_diverged[at.saturating_sub(20)..at];
    let usual = before.iter().sum::<f64>() / before.len().max(1) as f64;
    let noticed = bars::noticed(course, at);
    let lowest = (at..course.pace_diverged.len())
        .filter_map(|t| bars::true_belief(outcome, t))
        .min_by(f64::total_cmp);
    format!(
        "seed {}, {}: decode 30 % slower after tick {at}: pace diverged in {} of rows before, noticed in tick {} after it; median belief in true claims {} before, {} at the lowest, {} at the end",
        outcome.seed,
        outcome.rule.title(),
        percent(Some(usual)),
        noticed.map_or_else(|| "-".to_owned(), |t| t.to_string()),
        number(bars::true_belief(outcome, at.saturating_sub(1)), 3),
        number(lowest, 3),
        number(
            bars::true_belief(outcome, course.pace_diverged.len().saturating_sub(1)),
            3
        ),
    )
}

/// Every bullet of Assumption 2: its number at the end, and since when it holds.
fn convergence(outcome: &Outcome) -> Vec<String> {
    let all = &outcome.course.converged;
    let Some(last) = all.last() else {
        return Vec::new();
    };
    let since = |index: usize| {
        let miss = all
            .iter()
            .rposition(|c| !c.criteria.get(index).is_some_and(|b| b.holds));
        let at = miss.map_or(1, |m| m + 2);
        if at <= all.len() {
            format!("since tick {at}")
        } else {
            "does not hold".to_owned()
        }
    };
    let bullets: Vec<String> = last
        .criteria
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let side = if c.name.is_floor() { "≥" } else { "≤" };
            format!(
                "{} {} ({side} {}), {}",
                c.name.name(),
                number(c.value, 3),
                c.bound,
                since(i)
            )
        })
        .collect();
    vec![format!(
        "seed {}, {}: convergence: {}",
        outcome.seed,
        outcome.rule.title(),
        bullets.join("; ")
    )]
}
