//! `koi perf`: benchmark files into the server's table of measured performance, and what is there.

use std::io::Read as _;
use std::path::Path;

use koi_core::performance::PerformanceRow;
use koi_core::performance::import::{self, Import, MAX_IMPORT_BYTES};
use koi_proto::v1;
use serde::Serialize;

use super::Context;
use crate::args::{Global, ImportArgs, ListArgs};
use crate::failure::{ExitCode, Failure};
use crate::output::{Grid, age, emit, escape, number};

/// Rows of one call: well below the server's limits on rows and bytes.
const BATCH: usize = 250;
/// Problems shown to people.
const SHOWN_PROBLEMS: usize = 20;

/// What became of one file.
#[derive(Debug, Default, Serialize)]
struct FileReport {
    file: String,
    n_rows: usize,
    n_added: u32,
    n_replaced: u32,
    n_unchanged: u32,
    n_left_out: usize,
    problems: Vec<koi_core::violation::FieldViolation>,
}

pub(super) async fn import(global: &Global, args: &ImportArgs) -> anyhow::Result<()> {
    // Every file is read before the first row is sent.
    let mut read = Vec::new();
    for file in &args.files {
        read.push((file.display().to_string(), read_file(file, args)?));
    }
    let context = Context::connect(global).await?;
    let mut reports = Vec::new();
    for (file, import) in read {
        reports.push(send(&context, args.dry_run, file, import).await?);
    }
    emit(context.format, &reports, || text(&reports, args.dry_run))?;
    if reports.iter().all(|r| r.n_rows == 0) {
        return Err(Failure::new(ExitCode::Invalid, "no row could be used").into());
    }
    Ok(())
}

fn read_file(file: &Path, args: &ImportArgs) -> anyhow::Result<Import> {
    let name = file.display();
    let refuse = |message: String| anyhow::Error::from(Failure::new(ExitCode::Invalid, message));
    let mut bytes = Vec::new();
    let limit = MAX_IMPORT_BYTES as u64 + 1;
    let done = if file == Path::new("-") {
        std::io::stdin().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|f| f.take(limit).read_to_end(&mut bytes))
    };
    done.map_err(|e| Failure::unreadable(file, &e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        refuse(format!(
            "{name} is not text: byte {}",
            e.utf8_error().valid_up_to()
        ))
    })?;
    let format = args.format.map(Into::into);
    import::import(&text, format, &args.given())
        .map_err(|problems| Failure::invalid(&name.to_string(), problems).into())
}

async fn send(
    context: &Context,
    validate_only: bool,
    file: String,
    import: Import,
) -> anyhow::Result<FileReport> {
    let mut report = FileReport {
        file,
        n_rows: import.rows.len(),
        n_left_out: import.n_left_out,
        problems: import.problems,
        ..FileReport::default()
    };
    for rows in import.rows.chunks(BATCH) {
        let request = v1::ImportRowsRequest {
            rows: rows.iter().map(|r: &PerformanceRow| r.into()).collect(),
            validate_only,
        };
        let reply = context
            .client
            .answer(context.client.performance().import_rows(request).await)?;
        report.n_added += reply.n_added;
        report.n_replaced += reply.n_replaced;
        report.n_unchanged += reply.n_unchanged;
    }
    Ok(report)
}

fn text(reports: &[FileReport], dry_run: bool) -> String {
    let mut grid = Grid::new(&["FILE", "ROWS", "ADDED", "REPLACED", "UNCHANGED", "LEFT OUT"]);
    for r in reports {
        grid.row([
            r.file.clone(),
            r.n_rows.to_string(),
            r.n_added.to_string(),
            r.n_replaced.to_string(),
            r.n_unchanged.to_string(),
            r.n_left_out.to_string(),
        ]);
    }
    let mut out = vec![grid.numbers(&[1, 2, 3, 4, 5]).text()];
    if dry_run {
        out.push("nothing was stored".to_owned());
    }
    for r in reports.iter().filter(|r| !r.problems.is_empty()) {
        out.push(String::new());
        out.push(escape(&format!("left out of {}:", r.file)));
        let shown = r.problems.iter().take(SHOWN_PROBLEMS);
        out.extend(shown.map(|p| escape(&format!("  {}: {}", p.field, p.message))));
        if r.n_left_out > SHOWN_PROBLEMS {
            out.push("  …; -o json shows more".to_owned());
        }
    }
    out.join("\n")
}

pub(super) async fn sources(context: &Context) -> anyhow::Result<()> {
    let reply = context.client.answer(
        context
            .client
            .performance()
            .list_sources(v1::ListSourcesRequest {})
            .await,
    )?;
    emit(context.format, &reply.sources, || {
        if reply.sources.is_empty() {
            return "no rows; import some with `koi perf import FILE`".to_owned();
        }
        let mut grid = Grid::new(&["SOURCE", "ROWS", "MODELS", "GPU TYPES", "NEWEST"]);
        for s in &reply.sources {
            grid.row([
                s.source.clone(),
                s.n_rows.to_string(),
                s.n_models.to_string(),
                s.n_gpu_types.to_string(),
                format!("{} ago", age(s.newest_import_us)),
            ]);
        }
        grid.numbers(&[1, 2, 3]).text()
    })
}

pub(super) async fn list(context: &Context, args: &ListArgs) -> anyhow::Result<()> {
    let rows = fetch(context, args).await?;
    emit(context.format, &rows, || match rows.is_empty() {
        true => "no such rows; `koi perf sources` shows what is there".to_owned(),
        false => table(&rows),
    })
}

async fn fetch(context: &Context, args: &ListArgs) -> anyhow::Result<Vec<v1::ImportedRow>> {
    let limit = args.limit as usize;
    let (mut rows, mut token) = (Vec::new(), String::new());
    while rows.len() < limit {
        let request = v1::ListRowsRequest {
            page: Some(v1::PageRequest {
                size: u32::try_from(limit - rows.len()).unwrap_or(500).min(500),
                token,
            }),
            source: args.source.clone().unwrap_or_default(),
            model: args.model.clone().unwrap_or_default(),
            gpu_type: args.gpu_type.clone().unwrap_or_default(),
        };
        let reply = context
            .client
            .answer(context.client.performance().list_rows(request).await)?;
        rows.extend(reply.rows);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(rows)
}

fn table(rows: &[v1::ImportedRow]) -> String {
    let mut grid = Grid::new(&[
        "ROW", "MODEL", "GPU", "TP", "PP", "ENGINE", "DTYPE", "ISL", "OSL", "LOAD", "tok/s",
        "TTFT ms", "TPOT ms",
    ]);
    let width = |w: Option<u32>| w.map_or_else(|| "-".to_owned(), |w| w.to_string());
    for row in rows.iter().filter_map(|r| r.row.as_ref()) {
        let load = number(row.load_value, 1);
        grid.row([
            row.row_id.clone(),
            row.model.clone(),
            row.gpu_type.clone(),
            width(row.tp),
            width(row.pp),
            row.engine.clone().unwrap_or_else(|| "-".to_owned()),
            row.weight_dtype.clone().unwrap_or_else(|| "-".to_owned()),
            number(row.isl, 0),
            number(row.osl, 0),
            format!("{} {load}", row.load_kind),
            number(row.output_tokens_per_sec, 1),
            number(row.ttft.as_ref().map(|t| t.ms), 1),
            number(row.tpot.as_ref().map(|t| t.ms), 2),
        ]);
    }
    grid.numbers(&[3, 4, 7, 8, 10, 11, 12]).text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said() {
        let report = FileReport {
            file: "a.csv".into(),
            n_rows: 1,
            n_left_out: 1,
            problems: vec![koi_core::violation::FieldViolation {
                field: "line 3, isl".into(),
                message: "\"x\" is not a number".into(),
            }],
            ..FileReport::default()
        };
        let text = text(&[report], true);
        assert!(
            text.contains("line 3, isl")
                && text.contains("nothing was stored")
                && text.lines().any(|l| l == "left out of a.csv:"),
            "{text}"
        );
    }
}
