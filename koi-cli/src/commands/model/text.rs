//! A model report as tables for people.

use koi_core::model::{ModelFacts, ModelReport, NamedBytes, PartSum, ReportChoices, Splits};

use crate::output::{Grid, escape};

const GIB: f64 = (1_u64 << 30) as f64;

/// The report as text.
pub(super) fn report(
    name: &str,
    report: &ModelReport,
    choices: ReportChoices,
    with_sources: bool,
) -> String {
    let facts = &report.facts;
    let split = format!("tp={} pp={}", choices.tp, choices.pp);
    let mut sections = vec![
        headline(name, facts),
        shape(report),
        format!("PARAMETERS\n{}", parts(facts, &report.parts)),
        format!("WEIGHTS\n{}", bytes(&report.weight_bytes, "FORMAT", &split)),
        format!(
            "CACHE BY LAYER, {} KV\n{}",
            choices.kv_dtype.name(),
            cache(report)
        ),
        format!(
            "CACHE OF ONE SEQUENCE, {} KV\n{}",
            choices.kv_dtype.name(),
            bytes(&report.sequence_bytes, "TOKENS", &split)
        ),
        format!("SPLITS\n{}", splits(report)),
    ];
    if !facts.notes.is_empty() {
        let lines = facts.notes.iter();
        let lines = lines.map(|n| format!("  {}: {}", escape(&n.field), escape(&n.message)));
        sections.push(format!("NOTES\n{}", lines.collect::<Vec<_>>().join("\n")));
    }
    if with_sources {
        let mut grid = Grid::new(&["FACT", "FROM"]);
        for (fact, source) in &facts.sources {
            grid.row([fact, source]);
        }
        sections.push(format!("SOURCES\n{}", grid.text()));
    }
    sections.join("\n\n")
}

fn headline(name: &str, facts: &ModelFacts) -> String {
    let quantized = facts.quantization.as_ref();
    let method = quantized.map_or(String::new(), |q| {
        let dtype = q.weight_dtype.name();
        if q.method == dtype {
            format!(", stored as {dtype}")
        } else {
            format!(", stored as {dtype} by {}", escape(&q.method))
        }
    });
    let active = if facts.params_active == facts.params_total {
        String::new()
    } else {
        format!(", {} active a token", billions(facts.params_active))
    };
    format!(
        "{}: {}, {} parameters{active}{method}",
        escape(name),
        facts.architecture.model_type(),
        billions(facts.params_total),
    )
}

/// The numbers of the shape, each with its source.
fn shape(report: &ModelReport) -> String {
    let facts = &report.facts;
    let mut grid = Grid::new(&["FACT", "VALUE", "FROM"]).numbers(&[1]);
    let mut row = |label: &str, value: String, fact: &str| {
        let source = facts.sources.get(fact).map_or("-", String::as_str);
        grid.row([label, &value, source]);
    };
    let some = |n: u32| (n > 0).then(|| n.to_string());
    row("layers", facts.layers.to_string(), "layers");
    row("hidden size", facts.hidden.to_string(), "hidden");
    row("query heads", facts.heads.to_string(), "heads");
    row("KV heads", facts.kv_heads.to_string(), "kv_heads");
    row("head size", facts.head_dim.to_string(), "head_dim");
    if let Some(width) = some(facts.intermediate) {
        row("MLP width", width, "intermediate");
    }
    row("vocabulary", facts.vocab.to_string(), "vocab");
    row(
        "longest context",
        facts.max_position.to_string(),
        "max_position",
    );
    let tied = if facts.tied_embeddings { "yes" } else { "no" };
    row("tied embeddings", tied.to_owned(), "tied_embeddings");
    if let Some(moe) = facts.moe {
        row(
            "routed layers",
            moe.sparse_layers.to_string(),
            "moe.sparse_layers",
        );
        row("experts", moe.experts.to_string(), "moe.experts");
        row(
            "experts a token",
            moe.experts_per_token.to_string(),
            "moe.experts_per_token",
        );
        let width = moe.expert_intermediate.to_string();
        row("expert width", width, "moe.expert_intermediate");
        if let Some(width) = moe.shared_intermediate {
            row("shared width", width.to_string(), "moe.shared_intermediate");
        }
    }
    let stored = facts.native_weight_dtype.name().to_owned();
    row("weights stored as", stored, "native_weight_dtype");
    if let Some(group) = facts.quantization_group {
        row(
            "quantization group",
            group.to_string(),
            "quantization_group",
        );
    }
    grid.text()
}

fn parts(facts: &ModelFacts, parts: &[PartSum]) -> String {
    let headings = ["PART", "PARAMETERS", "ACTIVE", "QUANTIZED", "STORED GiB"];
    let mut grid = Grid::new(&headings).numbers(&[1, 2, 3, 4]);
    for part in parts {
        grid.row([
            part.part.name().to_owned(),
            billions(part.params),
            billions(part.active_params),
            share(part.quantized_params, part.params),
            format!("{:.3}", part.stored_bytes as f64 / GIB),
        ]);
    }
    let sum = |pick: fn(&PartSum) -> u64| parts.iter().map(pick).sum::<u64>();
    grid.row([
        "total".to_owned(),
        billions(facts.params_total),
        billions(facts.params_active),
        share(sum(|p| p.quantized_params), facts.params_total),
        format!("{:.3}", sum(|p| p.stored_bytes) as f64 / GIB),
    ]);
    grid.text()
}

fn bytes(rows: &[NamedBytes], heading: &str, split: &str) -> String {
    let per_gpu = format!("GiB A GPU ({split})");
    let headings = [heading, "BYTES", "GiB", per_gpu.as_str()];
    let mut grid = Grid::new(&headings).numbers(&[1, 2, 3]);
    for row in rows {
        grid.row([
            row.name.clone(),
            format!("{:.0}", row.bytes),
            format!("{:.3}", row.bytes / GIB),
            format!("{:.3}", row.bytes_per_gpu / GIB),
        ]);
    }
    grid.text()
}

fn cache(report: &ModelReport) -> String {
    let headings = [
        "LAYERS",
        "KIND",
        "BYTES A TOKEN",
        "KEEPS",
        "STATE BYTES A SEQUENCE",
    ];
    let mut grid = Grid::new(&headings).numbers(&[0, 2, 3, 4]);
    for row in &report.cache {
        let caches = row.kv_bytes_per_token > 0.0;
        let keeps = match row.window_tokens {
            Some(tokens) => format!("{tokens} tokens"),
            None if caches => "all".to_owned(),
            None => "-".to_owned(),
        };
        let number = |value: f64| {
            if value > 0.0 {
                format!("{value:.0}")
            } else {
                "-".to_owned()
            }
        };
        grid.row([
            row.layers.to_string(),
            row.kind.clone(),
            number(row.kv_bytes_per_token),
            keeps,
            number(row.state_bytes_per_sequence),
        ]);
    }
    grid.text()
}

fn splits(report: &ModelReport) -> String {
    let mut lines = vec![];
    let mut add = |name: &str, splits: &Splits| {
        let legal: Vec<String> = splits.legal.iter().map(u32::to_string).collect();
        lines.push(format!("  {name}: {}", legal.join(" ")));
        let remarks = splits.remarks.iter().map(|r| (r.n, r.text.as_str()));
        lines.extend(grouped(remarks).map(|(n, text)| format!("    {n}: {text}")));
        // One reason tells a person enough; the JSON form has all.
        let refused = splits.refused.iter();
        let refused = refused.filter_map(|r| Some((r.n, r.reasons.first()?.as_str())));
        lines.extend(grouped(refused).map(|(n, text)| format!("    not {n}: {text}")));
    };
    add("tensor parallel", &report.tp);
    let spread = report.tp_with_expert_parallel.as_ref();
    if let Some(spread) = spread.filter(|s| s.legal != report.tp.legal) {
        add("tensor parallel, experts spread over it", spread);
    }
    add("pipeline stages", &report.pp);
    lines.join("\n")
}

/// Numbers with the same text, in the order of their first; the number itself is cut from the text.
fn grouped<'a>(
    rows: impl Iterator<Item = (u32, &'a str)>,
) -> impl Iterator<Item = (String, String)> {
    let mut groups: Vec<(String, String)> = vec![];
    for (n, text) in rows {
        let text = escape(text.strip_prefix(&format!("tp={n} ")).unwrap_or(text));
        match groups.iter_mut().find(|(_, known)| *known == text) {
            Some((numbers, _)) => numbers.push_str(&format!(" {n}")),
            None => groups.push((n.to_string(), text)),
        }
    }
    groups.into_iter()
}

fn billions(n: u64) -> String {
    if n >= 1_000_000_000 {
        format!("{:.3}B", n as f64 / 1e9)
    } else if n >= 1_000_000 {
        format!("{:.3}M", n as f64 / 1e6)
    } else {
        n.to_string()
    }
}

fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "-".to_owned();
    }
    if part == whole {
        return "all".to_owned();
    }
    format!("{:.1} %", 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use koi_core::model::{KnownModel, KvDtype, WeightDtype};

    use super::*;

    fn shown(name: &str, tp: u32) -> String {
        let facts = KnownModel::find(name).unwrap().facts().unwrap();
        let choices = ReportChoices {
            tp,
            pp: 1,
            weight_dtype: WeightDtype::Auto,
            kv_dtype: KvDtype::Auto,
        };
        let made = ModelReport::of(facts, choices).unwrap();
        report(name, &made, choices, true)
    }

    #[test]
    fn a_report_says_what_a_platform_engineer_asks() {
        let text = shown("gpt-oss-120b", 8);
        for part in [
            "116.829B parameters",
            "stored as mxfp4",
            "routed experts",
            "sliding window",
            "128 tokens",
            "tp=8 pp=1",
            "not 3 5 6 7 10 12 14 20 24: does not divide the query heads (64)",
            "quantization_config.quant_method",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn absent_is_a_dash() {
        let text = shown("llama-3.1-8b", 2);
        let line = text
            .lines()
            .find(|l| l.trim_start().starts_with("embedding "))
            .unwrap();
        assert!(line.contains(" -"), "{line}");
        assert!(!text.contains("experts"), "{text}");
    }
}
