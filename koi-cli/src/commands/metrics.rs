//! `koi metrics parse`: one metrics page as people and programs want it. Needs no server.

mod document;
mod text;

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use koi_core::telemetry::engine_metrics::EnginePage;
use koi_core::telemetry::metrics_text::{Limits, Page, parse_within};
use koi_core::violation::FieldViolation;

use crate::args::{Global, MetricsCommand, MetricsParseArgs};
use crate::failure::Failure;
use crate::output::emit;
use document::{Document, Input};

pub(super) fn run(global: &Global, command: &MetricsCommand) -> anyhow::Result<()> {
    let MetricsCommand::Parse(args) = command;
    parse(global, args)
}

fn parse(global: &Global, args: &MetricsParseArgs) -> anyhow::Result<()> {
    let bytes = read(&args.file)?;
    let page = parse_within(&bytes, Limits::FILE, |_| true);
    refuse_unreadable(&args.file, &page)?;
    let earlier = match &args.previous {
        None => None,
        Some(file) => {
            let bytes = read(file)?;
            let page = parse_within(&bytes, Limits::FILE, |_| true);
            refuse_unreadable(file, &page)?;
            Some(EnginePage::from_page(&page))
        }
    };
    let engines = EnginePage::from_page(&page);
    let document = Document::of(&Input {
        file: args.file.display().to_string(),
        n_bytes: bytes.len(),
        page: &page,
        engines: &engines,
        change: earlier.map(|earlier| engines.since(&earlier)),
        args,
    });
    emit(global.output, &document, || text::text(&document))
}

/// The whole file, or as much as is looked at and one byte more, which the parser reports.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let limit = Limits::FILE.max_bytes as u64 + 1;
    let mut bytes = Vec::new();
    if file == Path::new("-") {
        let standard_input = std::io::stdin().lock();
        standard_input
            .take(limit)
            .read_to_end(&mut bytes)
            .context("read standard input")?;
    } else {
        std::fs::File::open(file)
            .and_then(|f| f.take(limit).read_to_end(&mut bytes))
            .map_err(|e| Failure::unreadable(file, &e))?;
    }
    Ok(bytes)
}

/// A page without samples is fine when it says so itself, by comments or its end mark.
fn refuse_unreadable(file: &Path, page: &Page<'_>) -> anyhow::Result<()> {
    let is_empty_page = page.is_clean() && (page.ended || !page.families.is_empty());
    if !page.samples.is_empty() || page.created_dropped > 0 || is_empty_page {
        return Ok(());
    }
    let mut violations: Vec<FieldViolation> = page
        .problems
        .iter()
        .map(|p| FieldViolation {
            field: format!("line {}", p.line),
            message: p.problem.to_string(),
        })
        .collect();
    if page.bytes_cut > 0 {
        violations.push(FieldViolation {
            field: "file".to_owned(),
            message: format!("{} bytes are past the limit of 512 MiB", page.bytes_cut),
        });
    }
    let what = format!(
        "{}: nothing could be read; this is no page of metrics ({} bad lines)",
        file.display(),
        page.bad_lines
    );
    Err(Failure::invalid(&what, violations).into())
}

#[cfg(test)]
mod tests;
