//! The form of `koi metrics parse` for people. Not the document itself (`document.rs`).

use super::document::{
    ChangeDocument, Document, EngineDocument, HistogramChangeDocument, MissingDocument, Summary,
    Who,
};
use crate::commands::values::short;
use crate::output::{Grid, escape};

pub(super) fn text(document: &Document) -> String {
    let mut parts = vec![head(document)];
    parts.extend(document.engines.iter().map(engine));
    if document.engines.is_empty() {
        parts.push("no series of a known engine (vllm, sglang, tgi)".to_owned());
    }
    if !document.missing.is_empty() {
        parts.push(format!("missing     {}", names(&document.missing)));
    }
    for gone in &document.gone {
        parts.push(escape(&format!("gone        {}", name(gone))));
    }
    if document.restarted == Some(true) {
        parts.push("the serving process started again since the previous page".to_owned());
    }
    parts.extend(problems(document));
    parts.join("\n\n")
}

fn head(document: &Document) -> String {
    let read = &document.read;
    let mut text = escape(&format!(
        "{}: {} text, {} bytes, {} lines, {} samples in {} families",
        document.file, document.format, read.bytes, read.lines, read.samples, read.families
    ));
    let counted = [
        (read.created_dropped, "_created series left out"),
        (read.bad_lines, "lines could not be read"),
        (read.remarks, "remarks"),
        (read.repeated_series, "repeated series"),
        (read.bad_values, "values out of range"),
        (read.bad_histograms, "histograms or buckets left out"),
        (read.samples_over_limit, "samples past the limit"),
        (read.engines_over_limit, "samples of engines past the limit"),
        (read.bytes_cut, "bytes past the limit"),
        (usize::from(read.last_line_cut), "last line without an end"),
    ];
    for (n, what) in counted.into_iter().filter(|(n, _)| *n > 0) {
        text.push_str(&format!("\n  {n} {what}"));
    }
    text
}

fn name(who: &Who) -> String {
    let mut text = format!("{} {} engine {}", who.engine, who.model_name, who.index);
    if !who.replica.is_empty() {
        text.push_str(&format!(" replica {}", who.replica));
    }
    text
}

fn engine(engine: &EngineDocument) -> String {
    let mut parts = vec![escape(&name(&engine.who))];
    if let Some(blocks) = engine.cache.num_gpu_blocks {
        let size = engine.cache.block_size_tokens;
        let size = size.map_or_else(String::new, |tokens| format!(" of {tokens} tokens"));
        parts.push(format!("KV pool     {blocks} blocks{size}"));
    }
    if let Some(rate) = engine.prefix_cache_hit_rate {
        parts.push(format!("prefix hits {}", short(rate)));
    }
    parts.push(scalars(engine));
    if !engine.histograms.is_empty() {
        parts.push(histograms(engine));
    }
    if !engine.missing.is_empty() {
        parts.push(format!("missing     {}", names(&engine.missing)));
    }
    parts.join("\n")
}

fn names(missing: &[MissingDocument]) -> String {
    let names: Vec<String> = missing
        .iter()
        .map(|m| format!("{} ({})", m.series, m.metric))
        .collect();
    names.join(", ")
}

fn scalars(engine: &EngineDocument) -> String {
    let change = engine.since_previous.as_ref();
    let mut grid = Grid::new(&["SERIES", "VALUE", since(change)]);
    for (name, value) in &engine.gauges {
        grid.row([*name, &short(*value), ""]);
    }
    for (name, value) in &engine.counters {
        let grown =
            change
                .and_then(|c| c.counters.get(name))
                .map_or_else(String::new, |increase| {
                    let reset = if increase.reset { " (reset)" } else { "" };
                    format!("+{}{reset}", increase.increase)
                });
        grid.row([*name, &value.to_string(), &grown]);
    }
    grid.numbers(&[1, 2]).text()
}

const fn since(change: Option<&ChangeDocument>) -> &'static str {
    if change.is_some() { "SINCE" } else { "" }
}

fn histograms(engine: &EngineDocument) -> String {
    let mut grid = Grid::new(&["HISTOGRAM", "COUNT", "MEAN", "P50", "P90", "P99"]);
    let source = engine
        .tpot_source
        .filter(|s| s.is_proxy())
        .map_or("", |_| " (from the inter-token latency)");
    for (name, histogram) in &engine.histograms {
        let is_tpot = *name == "time_per_output_token_seconds";
        let note = if is_tpot { source } else { "" };
        grid.row(cells(&format!("{name}{note}"), &histogram.summary));
        match engine
            .since_previous
            .as_ref()
            .and_then(|c| c.histograms.get(name))
        {
            Some(HistogramChangeDocument::Observed(summary)) => grid.row(cells("  since", summary)),
            Some(HistogramChangeDocument::Unknown { no_difference }) => {
                grid.row([
                    &format!("  since: {no_difference}"),
                    "-",
                    "-",
                    "-",
                    "-",
                    "-",
                ]);
            }
            None => {}
        }
    }
    grid.numbers(&[1, 2, 3, 4, 5]).text()
}

fn cells(name: &str, summary: &Summary) -> [String; 6] {
    let value = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), short);
    [
        name.to_owned(),
        summary.count.to_string(),
        value(summary.mean),
        value(summary.p50),
        value(summary.p90),
        value(summary.p99),
    ]
}

fn problems(document: &Document) -> Option<String> {
    if document.problems.is_empty() {
        return None;
    }
    let mut grid = Grid::new(&["LINE", "PROBLEM"]);
    for problem in &document.problems {
        let metric = problem.metric.as_deref();
        let metric = metric.map_or_else(String::new, |m| format!("{m}: "));
        grid.row([
            problem.line.to_string(),
            format!("{metric}{}", problem.problem),
        ]);
    }
    Some(grid.numbers(&[0]).text())
}
