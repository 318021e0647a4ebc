//! The answer about one configuration, for people.

use koi_core::surrogate::Limit;
use koi_core::surrogate::stack::Stacked;

use super::One;
use super::settings::SettingReport;
use crate::args::PredictArgs;
use crate::output::{Grid, escape, number};

/// The load in words, with the replicas that it leaves without work.
pub(super) fn load(args: &PredictArgs, n_idle_replicas: u32) -> String {
    let mut words = match (args.concurrency, args.batch_size, args.offline) {
        (Some(1), _, _) => "1 request in flight".to_owned(),
        (Some(n), _, _) => format!("{n} requests in flight"),
        (_, Some(n), _) => format!("one batch of {n}"),
        (_, _, true) => "a backlog".to_owned(),
        _ => format!("{} requests per second", args.rate.unwrap_or(1.0)),
    };
    if n_idle_replicas > 0 {
        let all = args.replicas;
        words.push_str(&format!(": {n_idle_replicas} of {all} replicas are idle"));
    }
    words
}

const fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Compute => "compute: arithmetic of prompts or of the batch",
        Limit::Bandwidth => "bandwidth: reading weights and cache",
        Limit::KvCapacity => "KV: room in the cache",
        Limit::Communication => "communication: links between GPUs",
        Limit::Queue => "queue: the number of sequences the engine may batch",
    }
}

/// What gets done: under a closed load what its requests come to, for more of them would exceed
/// that; else the capacity of a replica.
fn pace(closed_rps: Option<f64>, capacity_rps: f64, is_saturated: bool) -> String {
    if closed_rps.is_some() {
        return format!("this load finishes {} req/s", number(closed_rps, 2));
    }
    let above = if is_saturated {
        "; this load is above it: latencies are unbounded"
    } else {
        ""
    };
    let capacity = number(Some(capacity_rps), 2);
    format!("a replica saturates at {capacity} req/s{above}")
}

pub(super) fn one(one: &One) -> String {
    let p = &one.prediction;
    let mut out = vec![
        escape(&format!(
            "{} on {} × {}, {}, {}",
            one.model, one.n_gpus, one.gpu_type, one.engine, one.load
        )),
        format!(
            "limited by {}; {}",
            limit(p.limited_by),
            pace(one.closed_rps, p.capacity_rps, p.saturated)
        ),
        String::new(),
        outcomes(one),
        String::new(),
        mediators(one),
    ];
    if let Some(report) = &one.settings {
        out.push(String::new());
        out.push(settings(report));
    }
    if let Some(report) = &one.measured_points {
        out.push(String::new());
        out.extend(report.lines().iter().map(|line| escape(line)));
    }
    if let Some(usd) = one.usd_per_million_output_tokens {
        out.push(String::new());
        out.push(format!(
            "cost       {usd:.3} USD per million output tokens at {} USD per GPU-hour",
            number(one.usd_per_gpu_hour, 2)
        ));
    }
    out.join("\n")
}

fn outcomes(one: &One) -> String {
    let s = &one.stack;
    let rows = [
        ("tokens/s generated", s.out_tok_s_system, 1),
        ("TTFT mean ms", s.ttft_mean_ms, 1),
        ("TTFT p99 ms", s.ttft_p99_ms, 1),
        ("TPOT mean ms", s.tpot_mean_ms, 2),
        ("TPOT p99 ms", s.tpot_p99_ms, 2),
    ];
    let mut grid = Grid::new(&[
        "OUTCOME",
        "VALUE",
        "80 % FROM",
        "TO",
        "ANALYTIC",
        "RESIDUAL",
        "NEIGHBOURS",
        "COVERAGE",
    ]);
    for (name, stacked, digits) in rows {
        let of = |f: fn(&Stacked) -> f64| number(stacked.as_ref().map(f), digits);
        grid.row([
            name.to_owned(),
            of(|s| s.mixed.value),
            of(|s| s.lo80),
            of(|s| s.hi80),
            of(|s| s.mixed.analytic),
            of(|s| s.mixed.residual),
            number(stacked.and_then(|s| s.mixed.neighbours), digits),
            number(stacked.map(|s| s.mixed.coverage), 2),
        ]);
    }
    grid.numbers(&[1, 2, 3, 4, 5, 6, 7]).text()
}

fn mediators(one: &One) -> String {
    let mut grid = Grid::new(&["MEDIATOR", "VALUE", "UNIT"]);
    for (mediator, value) in one.prediction.mediators.present() {
        grid.row([
            mediator.name().to_owned(),
            format!("{value:.4}"),
            mediator.unit().to_owned(),
        ]);
    }
    grid.numbers(&[1]).text()
}

/// What settings move, and which of them the prediction does not follow.
fn settings(report: &SettingReport) -> String {
    let mut set = Grid::new(&["SETTING", "VALUE", "THE PREDICTION FOLLOWS IT THROUGH"]);
    for setting in &report.set {
        let through = if setting.through.is_empty() {
            "nothing: not followed".to_owned()
        } else {
            setting.through.join(", ")
        };
        set.row([
            escape(&setting.name),
            escape(&setting.value.to_string()),
            through,
        ]);
    }
    if !report.runs_without {
        return format!("{}\n\nwithout these settings it would not run", set.text());
    }
    let mut moved = Grid::new(&["MOVED", "WITHOUT", "WITH", "UNIT"]);
    for one in &report.moved {
        moved.row([
            one.mediator.name().to_owned(),
            number(one.without, 4),
            number(one.with, 4),
            one.mediator.unit().to_owned(),
        ]);
    }
    format!("{}\n\n{}", set.text(), moved.numbers(&[1, 2]).text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_loads_and_backlogs_saturate() {
        let closed = pace(Some(0.65), 1.5, false);
        assert_eq!(closed, "this load finishes 0.65 req/s");
        assert!(pace(None, 1.5, false).ends_with("saturates at 1.50 req/s"));
        assert!(pace(None, 1.5, true).contains("above it"));
    }
}
