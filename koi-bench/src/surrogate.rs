//! `koi bench surrogate`: the surrogate stack against measured serving points.
//!
//! `--cv model|gpu` leaves whole models or whole GPU types out and prints the accuracy table with
//! its goals; `--fit` writes the calibrated numbers of `configs/calibration` anew from the same
//! points. Both need the table of measured points and say so loudly when it is not there.

mod calibrate;
mod cv;
mod fit;
mod forest;
mod near;
mod score;
mod spread;
mod table;
mod tails;

use std::path::PathBuf;

use clap::Args;

use crate::Global;
use crate::report::{Bound, Report, Table};
use cv::By;

/// Options of the bench.
#[derive(Debug, Args)]
pub(crate) struct SurrogateArgs {
    /// What to leave out; may be repeated [default: model and gpu].
    #[arg(long, value_enum)]
    cv: Vec<By>,
    /// Fit all calibrated numbers and write them to this folder instead of validating.
    #[arg(long, value_name = "DIR", conflicts_with = "cv")]
    fit: Option<PathBuf>,
    /// Score how far measured points near a question are to be believed, instead of validating.
    #[arg(long, conflicts_with_all = ["cv", "fit"])]
    neighbours: bool,
    /// Write every row's prediction beside what was measured to DIR/model.csv or DIR/gpu.csv.
    #[arg(long, value_name = "DIR")]
    rows: Option<PathBuf>,
    /// Table of measured points [default: data/perf_tidy.csv of the shared folder].
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Iterations of the constants' fit.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=50))]
    iterations: u32,
}

/// Runs the bench.
pub(crate) fn run(args: &SurrogateArgs, _global: &Global) -> anyhow::Result<Report> {
    let found = args
        .table
        .clone()
        .or_else(|| table::shared_folder().map(|f| f.join("data/perf_tidy.csv")));
    let Some(path) = found else {
        crate::report::complain("SKIPPED: no data/perf_tidy.csv in KOI_SHARED or above");
        return Ok(Report {
            bounds: vec![Bound::not_judged(
                "measured points were there to judge",
                "a table",
            )],
            ..empty("SKIPPED: no table of measured points")
        });
    };
    let points = table::read(&path)?;
    if let Some(folder) = &args.fit {
        let notes = fit::write(&points, folder, args.iterations)?;
        return Ok(Report { notes, ..empty("") });
    }
    if args.neighbours {
        let (table, notes) = near::score(&points);
        return Ok(Report {
            table,
            notes,
            ..empty("")
        });
    }
    let kinds = if args.cv.is_empty() {
        vec![By::Model, By::Gpu]
    } else {
        args.cv.clone()
    };
    let mut report = empty(&format!("{} rows of {}", points.len(), path.display()));
    for by in kinds {
        let held = cv::run(&points, by, args.iterations)?;
        if let Some(folder) = &args.rows {
            std::fs::create_dir_all(folder)?;
            let path = folder.join(format!("{}.csv", by.name()));
            std::fs::write(path, score::rows_csv(&points, &held))?;
        }
        let (table, bounds) = score::score(&points, &held, by);
        report.notes.push(format!("without one {}:", by.name()));
        report.notes.push(table.text());
        report.notes.push(spread::table(&points, &held).text());
        report.notes.push(spread::ranks(&points, &held).text());
        report.bounds.extend(bounds);
    }
    Ok(report)
}

fn empty(note: &str) -> Report {
    Report {
        bench: "surrogate",
        notes: vec![note.to_owned()],
        table: Table::new(&["SURROGATE AGAINST MEASURED POINTS"]),
        data: serde_json::Value::Null,
        bounds: Vec::new(),
    }
}
