//! Series that stand on a page more than once. Not part of the hot path: a scrape reads a closed set
//! of series and counts its own repetitions.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::{Label, LineProblem, MAX_REPORTED_PROBLEMS, Page, Problem, Sample};

/// Repeated series of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepeatedSeries {
    /// How many samples repeat an earlier one.
    pub count: usize,
    /// The first [`MAX_REPORTED_PROBLEMS`] of them, by line.
    pub problems: Vec<Problem>,
}

impl Page<'_> {
    /// Samples with the name, labels and timestamp of an earlier sample. The order of labels does
    /// not matter; samples of one series at different times do not repeat each other.
    #[must_use]
    pub fn repeated_series(&self) -> RepeatedSeries {
        let mut order: Vec<(u64, u32)> = (0..)
            .zip(&self.samples)
            .map(|(index, sample)| (series_hash(sample), index))
            .collect();
        order.sort_unstable();
        let mut found = Vec::new();
        for run in order.chunk_by(|a, b| a.0 == b.0).filter(|r| r.len() > 1) {
            // Equal hashes of different series are as rare as they are harmless: one is missed.
            let first = &self.samples[run[0].1 as usize];
            for (_, index) in &run[1..] {
                let later = &self.samples[*index as usize];
                if is_same_series(first, later) {
                    found.push((later.line, first.line));
                }
            }
        }
        found.sort_unstable();
        let problem = |(line, first_line): &(u32, u32)| Problem {
            line: *line,
            problem: LineProblem::RepeatedSeries {
                first_line: *first_line,
            },
        };
        RepeatedSeries {
            count: found.len(),
            problems: found
                .iter()
                .take(MAX_REPORTED_PROBLEMS)
                .map(problem)
                .collect(),
        }
    }
}

/// The same for every order of the labels.
fn series_hash(sample: &Sample<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    sample.name.hash(&mut hasher);
    sample.timestamp.map(f64::to_bits).hash(&mut hasher);
    sample.labels.iter().fold(hasher.finish(), |sum, label| {
        let mut hasher = DefaultHasher::new();
        (label.name.as_ref(), label.value.as_ref()).hash(&mut hasher);
        sum.wrapping_add(hasher.finish())
    })
}

fn is_same_series(a: &Sample<'_>, b: &Sample<'_>) -> bool {
    let has = |label: Label<'_>| b.label(&label.name).is_some_and(|v| v == label.value);
    a.name == b.name
        && a.timestamp.map(f64::to_bits) == b.timestamp.map(f64::to_bits)
        && a.labels.len() == b.labels.len()
        && a.labels.iter().all(has)
}
