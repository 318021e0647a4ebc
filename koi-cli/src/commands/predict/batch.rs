//! `koi predict --batch`: every row of a table answered, in the order of the table.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use koi_core::performance::import::{AskedRow, asked_rows};
use koi_core::surrogate::EngineProfile;
use koi_core::surrogate::measured_row::{Question, RowAnswer};
use koi_core::surrogate::points::MeasuredPoints;
use koi_core::surrogate::stack::{Calibration, StackPrediction, Stacked};
use serde::Serialize;

use super::models::ModelBook;
use super::target::Target;
use super::{does_not_fit, gpu, price};
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, complain, emit, escape};

/// Largest table.
const MAX_BYTES: u64 = 256 << 20;
/// Columns of the values, each followed by its interval.
const VALUES: [&str; 5] = [
    "out_tok_s_system",
    "ttft_mean_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p99_ms",
];

/// What became of one row.
enum Line {
    Predicted {
        stack: Box<StackPrediction>,
        usd_per_million: Option<f64>,
    },
    DoesNotFit(String),
    Unsupported(String),
    Invalid(String),
}

/// Predicts a table.
pub(super) fn run(
    format: Format,
    models: &mut ModelBook,
    (input, output): (&Path, &Path),
    (usd_per_gpu_hour, points): (Option<f64>, &MeasuredPoints),
) -> anyhow::Result<()> {
    let name = input.display().to_string();
    let target = Target::of(input, output)?;
    let text = read(input)?;
    let rows = asked_rows(&text).map_err(|problems| Failure::invalid(&name, problems))?;
    let lines: Vec<(String, Line)> = rows
        .into_iter()
        .map(|row| {
            let id = row.row_id.clone();
            (id, line(models, row, usd_per_gpu_hour, points))
        })
        .collect();
    if let Some(remark) = repeated_ids(lines.iter().map(|(id, _)| id.as_str())) {
        complain(&escape(&remark));
    }
    let to_stdout = matches!(target, Target::Stdout);
    target.put(|to| write(to, &lines))?;
    if to_stdout {
        return Ok(());
    }
    let summary = Summary::of(&lines);
    emit(format, &summary, || summary.text())
}

/// A remark where a row_id does not say which row is meant; each is answered all the same.
fn repeated_ids<'a>(ids: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for id in ids {
        *times.entry(id).or_default() += 1;
    }
    let repeated: Vec<(&str, usize)> = times.into_iter().filter(|(_, n)| *n > 1).collect();
    let (first, n) = *repeated.first()?;
    let first: String = first.chars().take(40).collect();
    Some(format!(
        "row_id is not unique: {} stand in more than one row, such as {first:?} in {n}",
        repeated.len()
    ))
}

fn read(input: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let mut text = String::new();
    let read = std::fs::File::open(input)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    read.map_err(|e| Failure::unreadable(input, &e))?;
    if text.len() as u64 > MAX_BYTES {
        let why = format!("{} is longer than {} MiB", input.display(), MAX_BYTES >> 20);
        return Err(Failure::new(ExitCode::Invalid, why));
    }
    Ok(text)
}

fn line(
    models: &mut ModelBook,
    asked: AskedRow,
    usd_per_gpu_hour: Option<f64>,
    points: &MeasuredPoints,
) -> Line {
    let row_id = asked.row_id;
    let row = match asked.row {
        Ok(row) => row,
        Err(problems) => {
            let words: Vec<String> = problems
                .iter()
                .map(|p| format!("{}: {}", p.field, p.message))
                .collect();
            return Line::Invalid(words.join("; "));
        }
    };
    let facts = match models.find(&row.model) {
        Ok(facts) => facts,
        Err(problems) => {
            let words: Vec<String> = problems.iter().map(|p| p.message.clone()).collect();
            return Line::Unsupported(words.join("; "));
        }
    };
    let gpu = match gpu(&row.gpu_type) {
        Ok(gpu) => gpu,
        Err(why) => return Line::Unsupported(why),
    };
    let question = match Question::of(&row, &facts, gpu) {
        Ok(question) => question,
        Err(why) => return Line::Unsupported(why),
    };
    match question.ask(gpu, EngineProfile::embedded(question.generation)) {
        RowAnswer::DoesNotFit(memory) => Line::DoesNotFit(does_not_fit(&memory)),
        RowAnswer::Unsupported(why) => Line::Unsupported(why),
        RowAnswer::Prediction(prediction) => {
            let (generation, ask) = (question.generation, (&question, gpu));
            let voice = |q| points.voice(ask, &prediction.situation, q, Some(&row_id));
            let stack = Calibration::embedded().stack(&prediction, &gpu.id, generation, voice);
            let n_gpus = question.shape.tp * question.shape.pp * question.n_replicas;
            let usd = usd_per_gpu_hour.or_else(|| price::usd_per_gpu_hour(gpu));
            let tokens = stack.out_tok_s_system.map(|s| s.mixed.value);
            Line::Predicted {
                stack: Box::new(stack),
                usd_per_million: price::per_million(usd, n_gpus, tokens),
            }
        }
    }
}

impl Line {
    const fn status(&self) -> &'static str {
        match self {
            Self::Predicted { .. } => "ok",
            Self::DoesNotFit(_) => "does_not_fit",
            Self::Unsupported(_) => "unsupported",
            Self::Invalid(_) => "invalid",
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Predicted { .. } => "",
            Self::DoesNotFit(why) | Self::Unsupported(why) | Self::Invalid(why) => why,
        }
    }

    /// In the order of [`VALUES`].
    fn values(&self) -> [Option<Stacked>; 5] {
        match self {
            Self::Predicted { stack, .. } => [
                stack.out_tok_s_system,
                stack.ttft_mean_ms,
                stack.ttft_p99_ms,
                stack.tpot_mean_ms,
                stack.tpot_p99_ms,
            ],
            Self::DoesNotFit(_) | Self::Unsupported(_) | Self::Invalid(_) => [None; 5],
        }
    }

    fn usd_per_million(&self) -> Option<f64> {
        match self {
            Self::Predicted {
                usd_per_million, ..
            } => *usd_per_million,
            Self::DoesNotFit(_) | Self::Unsupported(_) | Self::Invalid(_) => None,
        }
    }
}

fn write(to: impl Write, lines: &[(String, Line)]) -> anyhow::Result<()> {
    let mut out = csv::Writer::from_writer(to);
    let mut header = vec![
        "row_id".to_owned(),
        "status".to_owned(),
        "reason".to_owned(),
    ];
    for value in VALUES {
        header.extend([
            value.to_owned(),
            format!("{value}_lo80"),
            format!("{value}_hi80"),
        ]);
    }
    header.push("usd_per_million_output_tokens".to_owned());
    out.write_record(&header)?;
    let cell = |number: Option<f64>| {
        number
            .filter(|n| n.is_finite())
            .map_or_else(String::new, |n| n.to_string())
    };
    for (row_id, line) in lines {
        let mut record = vec![
            row_id.clone(),
            line.status().to_owned(),
            line.reason().to_owned(),
        ];
        for stacked in line.values() {
            record.push(cell(stacked.map(|s| s.mixed.value)));
            record.push(cell(stacked.map(|s| s.lo80)));
            record.push(cell(stacked.map(|s| s.hi80)));
        }
        record.push(cell(line.usd_per_million()));
        out.write_record(&record)?;
    }
    out.flush().context("write the predictions")
}

/// What became of the rows.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Summary {
    rows: usize,
    predicted: usize,
    does_not_fit: usize,
    unsupported: usize,
    invalid: usize,
}

impl Summary {
    fn of(lines: &[(String, Line)]) -> Self {
        let count = |status: &str| lines.iter().filter(|(_, l)| l.status() == status).count();
        Self {
            rows: lines.len(),
            predicted: count("ok"),
            does_not_fit: count("does_not_fit"),
            unsupported: count("unsupported"),
            invalid: count("invalid"),
        }
    }

    fn text(&self) -> String {
        format!(
            "{} rows: {} predicted, {} do not fit, {} not supported, {} invalid",
            self.rows, self.predicted, self.does_not_fit, self.unsupported, self.invalid
        )
    }
}
