//! What a study found, as tables.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::LearningArgs;
use super::claims::Kind;
use super::course::Rule;
use super::record::Count;
use super::seeds::Outcome;
use crate::Global;
use crate::report::{Bound, Report, Table, number, percent};
use crate::statistics::median;

/// Ticks before the first recalibration.
const BEFORE_META: usize = 20;

/// One mechanism of one seed under one rule.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    seed: u64,
    rule: Rule,
    id: String,
    kind: Kind,
    is_seed: bool,
    edges: Vec<String>,
    /// What the finite differences of the truth say of each edge.
    truth: Vec<String>,
    false_edge: Option<String>,
    /// Belief after 1, 20, 50, 100, 150 and all ticks.
    beliefs: Vec<f64>,
    /// Tick from which on the bar stays met.
    converged_at: Option<usize>,
    met: bool,
    decided: u32,
    exercised: u32,
    v_diverged: u32,
    /// Share of decided rows with a variable that diverged by CUSUM, before and after recalibration.
    fired_before: Option<f64>,
    fired_after: Option<f64>,
}

/// Ticks after which beliefs are printed.
fn columns(ticks: usize) -> Vec<usize> {
    let mut at: Vec<usize> = [1, 20, 50, 100, 150]
        .into_iter()
        .filter(|t| *t < ticks)
        .collect();
    at.push(ticks);
    at
}

pub(super) fn lines(outcomes: &[Outcome]) -> Vec<Line> {
    outcomes.iter().flat_map(lines_of).collect()
}

fn lines_of(outcome: &Outcome) -> Vec<Line> {
    let course = &outcome.course;
    let empty: Vec<f64> = Vec::new();
    outcome
        .claims
        .iter()
        .map(|claim| {
            let beliefs = course.beliefs.get(&claim.id).unwrap_or(&empty);
            let counts = course.counts.get(&claim.id).map_or(&[][..], Vec::as_slice);
            let split = BEFORE_META.min(counts.len());
            let total = |of: fn(&Count) -> u32| counts.iter().map(of).sum::<u32>();
            let at = columns(beliefs.len());
            Line {
                seed: outcome.seed,
                rule: outcome.rule,
                id: claim.id.clone(),
                kind: claim.kind,
                is_seed: claim.is_seed,
                edges: claim.edges.clone(),
                truth: claim.truth.clone(),
                false_edge: claim.false_edge.clone(),
                beliefs: at
                    .iter()
                    .filter_map(|t| beliefs.get(t.checked_sub(1)?).copied())
                    .collect(),
                converged_at: converged_at(beliefs, claim.kind),
                met: beliefs.last().is_some_and(|c| claim.kind.is_met(*c)),
                decided: total(|c| c.decided),
                exercised: total(|c| c.exercised),
                v_diverged: total(|c| c.v_diverged),
                fired_before: fired(&counts[..split]),
                fired_after: fired(&counts[split..]),
            }
        })
        .collect()
}

/// First tick, from 1, after which the bar is never left again.
fn converged_at(beliefs: &[f64], kind: Kind) -> Option<usize> {
    let last_miss = beliefs.iter().rposition(|c| !kind.is_met(*c));
    let at = last_miss.map_or(1, |i| i + 2);
    (at <= beliefs.len()).then_some(at)
}

fn fired(counts: &[Count]) -> Option<f64> {
    let decided: u32 = counts.iter().map(|c| c.decided).sum();
    let fired: u32 = counts.iter().map(|c| c.fired).sum();
    (decided > 0).then(|| f64::from(fired) / f64::from(decided))
}

/// Figures of one kind under one rule.
#[derive(Debug, Clone, Serialize)]
struct Summary {
    rule: Rule,
    kind: Kind,
    n: usize,
    median: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    share_met: f64,
    median_ticks: Option<f64>,
    exercised_share: Option<f64>,
    fired_before: Option<f64>,
    fired_after: Option<f64>,
}

fn summaries(lines: &[Line]) -> Vec<Summary> {
    let mut groups: BTreeMap<(Rule, Kind), Vec<&Line>> = BTreeMap::new();
    // A seed whose scope meets no job of the fleet was never judged: it shows nothing.
    for line in lines.iter().filter(|l| l.decided > 0) {
        groups.entry((line.rule, line.kind)).or_default().push(line);
    }
    groups
        .into_iter()
        .map(|((rule, kind), lines)| summary(rule, kind, &lines))
        .collect()
}

fn summary(rule: Rule, kind: Kind, lines: &[&Line]) -> Summary {
    let last: Vec<f64> = lines
        .iter()
        .filter_map(|l| l.beliefs.last().copied())
        .collect();
    let met = lines.iter().filter(|l| l.met).count();
    let ticks: Vec<f64> = lines
        .iter()
        .filter_map(|l| l.converged_at.map(|t| t as f64))
        .collect();
    let of = |f: &dyn Fn(&Line) -> Option<f64>| {
        median(&lines.iter().filter_map(|l| f(l)).collect::<Vec<f64>>())
    };
    Summary {
        rule,
        kind,
        n: lines.len(),
        median: median(&last),
        min: last.iter().copied().min_by(f64::total_cmp),
        max: last.iter().copied().max_by(f64::total_cmp),
        share_met: met as f64 / lines.len().max(1) as f64,
        median_ticks: median(&ticks),
        exercised_share: of(&|l| {
            (l.decided > 0).then(|| f64::from(l.exercised) / f64::from(l.decided))
        }),
        fired_before: of(&|l| l.fired_before),
        fired_after: of(&|l| l.fired_after),
    }
}

fn summary_table(summaries: &[Summary]) -> Table {
    let mut table = Table::new(&[
        "RULE",
        "KIND",
        "N",
        "MEDIAN c",
        "MIN",
        "MAX",
        "BAR MET",
        "TICKS",
        "EXERCISED",
        "FIRED <20",
        "FIRED >20",
    ]);
    for s in summaries {
        table.row([
            s.rule.title().to_owned(),
            s.kind.title().to_owned(),
            s.n.to_string(),
            number(s.median, 2),
            number(s.min, 2),
            number(s.max, 2),
            percent(Some(s.share_met)),
            number(s.median_ticks, 0),
            percent(s.exercised_share),
            percent(s.fired_before),
            percent(s.fired_after),
        ]);
    }
    table
}

fn line_table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "SEED",
        "RULE",
        "KIND",
        "EDGES",
        "BELIEF OVER TICKS",
        "ROWS",
        "EXERCISED",
        "V DIVERGED",
        "FIRED <20",
        ">20",
        "TICKS",
    ]);
    for l in lines {
        let beliefs: Vec<String> = l.beliefs.iter().map(|c| format!("{c:.2}")).collect();
        let edges = if l.is_seed {
            l.id.clone()
        } else {
            l.edges.join(" ")
        };
        table.row([
            l.seed.to_string(),
            l.rule.title().to_owned(),
            l.kind.title().to_owned(),
            edges,
            beliefs.join(" "),
            l.decided.to_string(),
            l.exercised.to_string(),
            l.v_diverged.to_string(),
            percent(l.fired_before),
            percent(l.fired_after),
            number(l.converged_at.map(|t| t as f64), 0),
        ]);
    }
    table
}

/// What the truth says of every edge of every claim.
fn truth_table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new(&["SEED", "KIND", "EDGE IN THE TRUTH"]);
    let mut seen = BTreeSet::new();
    for outcome in outcomes.iter().filter(|o| seen.insert(o.seed)) {
        for claim in &outcome.claims {
            for truth in &claim.truth {
                table.row([
                    outcome.seed.to_string(),
                    claim.kind.title().to_owned(),
                    truth.clone(),
                ]);
            }
        }
        for hidden in &outcome.hidden {
            table.row([
                outcome.seed.to_string(),
                "hidden".to_owned(),
                format!(
                    "{}->{} {:+.2} in place {} alone",
                    hidden.knob,
                    hidden.mediator.name(),
                    hidden.slope,
                    hidden.place
                ),
            ]);
        }
    }
    table
}

/// What contrasts say of the edges of every claim, by environment.
fn slope_table(outcomes: &[Outcome]) -> Table {
    let head = [
        "SEED", "RULE", "EDGE", "PLACE", "N", "SLOPE", "ERROR", "S0", "NOISE", "VERDICT",
    ];
    let mut table = Table::new(&head);
    for outcome in outcomes {
        let edges: BTreeSet<&String> = outcome.claims.iter().flat_map(|c| &c.edges).collect();
        let slopes = outcome.course.slopes.iter();
        for slope in slopes.filter(|s| edges.contains(&s.edge)) {
            let effect = slope.judgement.effect;
            table.row([
                outcome.seed.to_string(),
                outcome.rule.title().to_owned(),
                slope.edge.clone(),
                slope.environment.clone(),
                slope.judgement.n.to_string(),
                number(effect.map(|e| e.slope), 3),
                number(effect.map(|e| e.standard_error), 3),
                number(Some(slope.claim.surrogate_error), 3),
                number(Some(slope.claim.noise), 3),
                format!("{:?}", slope.judgement.verdict),
            ]);
        }
    }
    table
}

/// The bars of the study, for its own rule.
fn bounds(summaries: &[Summary]) -> Vec<Bound> {
    summaries
        .iter()
        .filter(|s| s.rule == Rule::Contrast)
        .map(|s| {
            let bar = if s.kind == Kind::OnePlace { 0.90 } else { 0.95 };
            let what = format!("share of '{}' that meets its bar", s.kind.title());
            Bound::at_least(what, Some(s.share_met), bar, "")
        })
        .collect()
}

/// The whole report.
pub(super) fn report(
    args: &LearningArgs,
    global: &Global,
    outcomes: &[Outcome],
) -> anyhow::Result<Report> {
    let lines = lines(outcomes);
    let summaries = summaries(&lines);
    let seconds: f64 = outcomes.iter().map(|o| o.seconds).sum();
    let mut notes = vec![format!(
        "{} seeds from {}, {} ticks, {} jobs, {} environments; {:.0} s of processor in {} runs",
        args.seeds,
        global.seed,
        args.ticks,
        args.jobs,
        args.environments,
        seconds,
        outcomes.len()
    )];
    for outcome in outcomes {
        let c = &outcome.course;
        let mean = |xs: &[f64]| xs.iter().sum::<f64>() / xs.len().max(1) as f64;
        let swaps: u32 = c.swaps.iter().sum();
        notes.push(format!(
            "seed {}, {}: {} rows, {} swaps, Q1 {:.2}, variables diverged {:.2}, hidden effects {}",
            outcome.seed,
            outcome.rule.title(),
            c.rows,
            swaps,
            mean(&c.q1_share),
            mean(&c.diverged_share),
            outcome.hidden.len(),
        ));
    }
    notes.extend(super::remarks::remarks(args, outcomes));
    if args.claims {
        notes.push(line_table(&lines).text());
        notes.push(truth_table(outcomes).text());
        notes.push(slope_table(outcomes).text());
    }
    Ok(Report {
        bench: "learning",
        notes,
        table: summary_table(&summaries),
        data: serde_json::json!({ "summary": summaries, "mechanisms": lines }),
        bounds: [bounds(&summaries), super::bars::bounds(args, outcomes)].concat(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_counts_from_where_it_is_never_left_again() {
        let at = |beliefs: &[f64]| converged_at(beliefs, Kind::True);
        assert_eq!(at(&[0.95, 0.96]), Some(1));
        assert_eq!(at(&[0.5, 0.95, 0.8, 0.91, 0.92]), Some(4));
        assert_eq!(at(&[0.95, 0.5]), None);
        assert_eq!(converged_at(&[0.3, 0.1], Kind::WrongSign), Some(2));
        assert_eq!(converged_at(&[0.3, 0.34], Kind::OnePlace), Some(1));
    }

    #[test]
    fn columns_end_with_the_last_tick() {
        assert_eq!(columns(200), [1, 20, 50, 100, 150, 200]);
        assert_eq!(columns(30), [1, 20, 30]);
    }
}
