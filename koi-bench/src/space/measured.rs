//! Floors and searches in turn, and what comes of their times.

use std::time::Instant;

use anyhow::ensure;
use koi_core::planner::enumerate::label;
use koi_core::planner::space::{Found, Refusal};
use serde::Serialize;

use super::search::Question;
use super::{ENVIRONMENTS, HISTORY, SpaceArgs};
use crate::allocations::{Asked, counted};
use crate::floor::Floor;
use crate::report::Bound;
use crate::statistics::median;

const MAX_RATIO: f64 = 4.0;
const MIN_SPEED_UP_SHARE: f64 = 0.9;
const MAX_GROWTH: f64 = 1.2;
const MAX_MEMORY_MIB: f64 = 64.0;

/// One kind of run.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) what: String,
    pub(super) threads: u32,
    pub(super) n_candidates: u64,
    pub(super) n_scored: u64,
    pub(super) n_predictions: u64,
    pub(super) median_ms: Option<f64>,
    pub(super) ns_each: Option<f64>,
    pub(super) ratio_to_floors: Option<f64>,
}

/// Milliseconds by round of everything that runs in turn.
#[derive(Default)]
struct Times {
    floor: Vec<f64>,
    floor_threads: Vec<f64>,
    search: Vec<f64>,
    search_threads: Vec<f64>,
    more_history: Vec<f64>,
    more_environments: Vec<f64>,
}

/// Everything that came out.
pub(super) struct Measured {
    times: Times,
    /// Of the fleet, with more history, with more environments.
    pub(super) found: [Found; 3],
    /// The ladder to take, in one line.
    pub(super) best: Option<String>,
    /// Allocations of looking at all candidates beyond those of looking at none.
    growing: usize,
    /// What a whole search asks of the heap.
    whole: Asked,
}

impl Measured {
    pub(super) fn of(
        args: &SpaceArgs,
        seed: u64,
        questions: &[Question<'_>; 3],
    ) -> anyhow::Result<Self> {
        let [plain, seen, spread] = questions;
        let (first, whole) = counted(|| plain.answer(1));
        let (found, best) = first?;
        let growing = plain.with_space(|space| {
            let (_, empty) = counted(|| space.evaluate(0..0));
            let (_, whole) = counted(|| space.evaluate(0..u64::MAX));
            Ok(whole.allocations.saturating_sub(empty.allocations))
        })?;
        let (on_threads, _) = plain.answer(args.threads)?;
        ensure!(on_threads == found, "the result depends on the threads");
        let found = [found, seen.answer(1)?.0, spread.answer(1)?.0];
        let floor = Floor::new(seed);
        let mut times = Times::default();
        for _ in 0..args.rounds {
            let n = found[0].n_scored;
            times.floor.push(ms(|| floor.run(n, 1)));
            times.search.push(searched(plain, 1)?);
            times.floor_threads.push(ms(|| floor.run(n, args.threads)));
            times.search_threads.push(searched(plain, args.threads)?);
            times.more_history.push(searched(seen, 1)?);
            times.more_environments.push(searched(spread, 1)?);
        }
        Ok(Self {
            times,
            found,
            best: best.map(|option| label(&option.ladder)),
            growing,
            whole,
        })
    }

    pub(super) fn lines(&self, threads: u32) -> Vec<Line> {
        let [plain, seen, spread] = &self.found;
        let t = &self.times;
        let floors = Found {
            n_candidates: plain.n_scored,
            n_scored: plain.n_scored,
            ..Found::default()
        };
        let floor_each = each_ns(&t.floor, plain.n_scored);
        let line = |what: &str, threads, found: &Found, times: &[f64]| {
            let ns_each = each_ns(times, found.n_scored);
            Line {
                what: what.to_owned(),
                threads,
                n_candidates: found.n_candidates,
                n_scored: found.n_scored,
                n_predictions: found.n_predictions,
                median_ms: median(times),
                ns_each,
                ratio_to_floors: ns_each.zip(floor_each).map(|(a, b)| a / b),
            }
        };
        vec![
            line("floors F2 + F3", 1, &floors, &t.floor),
            line("search", 1, plain, &t.search),
            line("floors F2 + F3", threads, &floors, &t.floor_threads),
            line("search", threads, plain, &t.search_threads),
            line("search, 10 × history", 1, seen, &t.more_history),
            line("search, 10 × environments", 1, spread, &t.more_environments),
        ]
    }

    pub(super) fn bounds(&self, threads: u32) -> Vec<Bound> {
        let t = &self.times;
        let [plain, seen, spread] = &self.found;
        let ratio = |a: &[f64], b: &[f64]| median(&quotients(a, b));
        let speed_up = ratio(&t.search, &t.search_threads);
        let of_floor = ratio(&t.floor, &t.floor_threads);
        let growth = |times: &[f64], found: &Found| {
            let more = found.n_scored as f64 / plain.n_scored as f64;
            ratio(times, &t.search).map(|r| r / more)
        };
        let mib = self.whole.bytes as f64 / f64::from(1 << 20);
        let each = Bound::at_most;
        vec![
            each(
                "a candidate on one thread".to_owned(),
                ratio(&t.search, &t.floor),
                MAX_RATIO,
                "× (F2 + F3)",
            ),
            Bound::at_least(
                format!("speed-up on {threads} threads over the floors' own"),
                speed_up.zip(of_floor).map(|(a, b)| a / b),
                MIN_SPEED_UP_SHARE,
                "×",
            ),
            each(
                "10 × history, a candidate".to_owned(),
                growth(&t.more_history, seen),
                MAX_GROWTH,
                "×",
            ),
            each(
                "10 × environments, a candidate".to_owned(),
                growth(&t.more_environments, spread),
                MAX_GROWTH,
                "×",
            ),
            each(
                "allocations that come with candidates".to_owned(),
                Some(self.growing as f64),
                0.0,
                "",
            ),
            each(
                "memory asked for by a whole search".to_owned(),
                Some(mib),
                MAX_MEMORY_MIB,
                "MiB",
            ),
        ]
    }

    pub(super) fn notes(&self, args: &SpaceArgs) -> Vec<String> {
        let build = if cfg!(debug_assertions) {
            "; not a release build, for which the bounds hold"
        } else {
            ""
        };
        let [plain, ..] = &self.found;
        let refused: Vec<String> = Refusal::ALL
            .iter()
            .map(|r| format!("{} {r:?}", plain.n_refused(*r)))
            .collect();
        vec![
            format!(
                "{} rounds in turn, wall time of whole searches, snapshot to ladder{build}",
                args.rounds
            ),
            format!(
                "{ENVIRONMENTS} environments of 12 device types, {HISTORY} evidence rows of the job's model in 12 of them, 1,296 measured rows; places of one device type share what their own rows leave of a prediction"
            ),
            format!("refused: {}", refused.join(", ")),
            format!(
                "{} meet the limits; best: {}",
                plain.n_meeting,
                self.best.as_deref().unwrap_or("none")
            ),
            "ratios are medians of each round's; refused candidates cost time and are not counted"
                .to_owned(),
        ]
    }
}

fn searched(question: &Question<'_>, threads: u32) -> anyhow::Result<f64> {
    let begun = Instant::now();
    std::hint::black_box(question.answer(threads)?);
    Ok(1000.0 * begun.elapsed().as_secs_f64())
}

fn ms(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    1000.0 * begun.elapsed().as_secs_f64()
}

fn each_ns(ms: &[f64], n: u64) -> Option<f64> {
    median(ms).filter(|_| n > 0).map(|ms| 1e6 * ms / n as f64)
}

fn quotients(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(search_ms: f64, threads_ms: f64, growing: usize) -> Measured {
        let found = |n_scored| Found {
            n_scored,
            ..Found::default()
        };
        Measured {
            times: Times {
                floor: vec![100.0; 3],
                floor_threads: vec![60.0; 3],
                search: vec![search_ms; 3],
                search_threads: vec![threads_ms; 3],
                more_history: vec![search_ms; 3],
                more_environments: vec![10.0 * search_ms; 3],
            },
            found: [found(1_000), found(1_000), found(10_000)],
            best: None,
            growing,
            whole: Asked {
                allocations: 1,
                bytes: 1 << 20,
            },
        }
    }

    fn verdicts(measured: &Measured) -> Vec<bool> {
        let bounds = measured.bounds(2);
        bounds.iter().filter_map(|b| b.met).collect()
    }

    #[test]
    fn a_search_is_judged_beside_the_floors() {
        assert_eq!(verdicts(&measured(390.0, 230.0, 0)), [true; 6]);
        // Too slow; and no faster on two threads, where the floors gain two thirds.
        let slow = verdicts(&measured(410.0, 400.0, 1));
        assert_eq!(slow, [false, false, true, true, false, true]);
    }
}
