//! `koi bench parse`: reading an engine's metrics page, beside the bare machine and another parser.
//!
//! Two pages: one that a real vLLM 0.32 served under load, and a generated one of the size and shape
//! that floor F11 is stated for. All contenders read each page in turn, round after round, in one
//! process; the processor time of each round counts, so that a busy machine changes little.

use std::hint::black_box;
use std::time::Duration;

use clap::Args;
use koi_core::telemetry::engine_metrics::{EnginePage, is_wanted};
use koi_core::telemetry::metrics_text;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::Global;
use crate::report::{Bound, Report, Table, number};
use crate::statistics::median;

/// Served by vLLM 0.32.0 (CPU build) in the middle of 304 requests.
const CAPTURE: &str = include_str!("../fixtures/vllm-0.32-under-load.metrics.txt");
const MAX_PARSE_RATIO: f64 = 2.0;
const MAX_SCRAPE_RATIO: f64 = 4.0;

/// Options of `koi bench parse`.
#[derive(Debug, Args)]
pub(crate) struct ParseArgs {
    /// Rounds; medians are shown.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// Milliseconds of processor time for each contender, page and round.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000), value_name = "MS")]
    slice_ms: u32,
}

/// What reads a page and answers with the number of samples it saw.
type Reader = fn(&Page) -> usize;

/// A page in the form that each contender can read.
struct Page {
    name: &'static str,
    text: String,
    /// Without colons in names: prometheus-parse drops those.
    without_colons: String,
}

struct Contender {
    name: &'static str,
    read: Reader,
}

const FLOOR: usize = 0;
const PARSE: usize = 1;
const SCRAPE: usize = 2;
const CONTENDERS: [Contender; 4] = [
    Contender {
        name: "floor F11",
        read: floor,
    },
    Contender {
        name: "koi parse",
        read: parse,
    },
    Contender {
        name: "koi parse + map",
        read: scrape,
    },
    Contender {
        name: "prometheus-parse",
        read: peer,
    },
];

#[derive(Debug, Serialize)]
struct Line {
    page: &'static str,
    bytes: usize,
    contender: &'static str,
    samples: usize,
    us_per_page: Option<f64>,
    mb_per_s: Option<f64>,
    /// Against the floor of the same round.
    ratio_to_floor: Option<f64>,
}

/// Runs the bench.
pub(crate) fn run(args: &ParseArgs, global: &Global) -> anyhow::Result<Report> {
    let pages = [
        Page::new("vLLM 0.32 capture", CAPTURE.to_owned()),
        Page::new("generated, as F11", generated(global.seed)),
    ];
    let mut lines = Vec::new();
    let mut bounds = Vec::new();
    for page in &pages {
        let measured = measure(page, args);
        let ratio = |who: usize| measured[who].ratio_to_floor;
        let bound = |what, who, limit| {
            let what = format!("{}: {what}", page.name);
            Bound::at_most(what, ratio(who), limit, "× F11")
        };
        bounds.push(bound("parse", PARSE, MAX_PARSE_RATIO));
        bounds.push(bound("parse and map to series", SCRAPE, MAX_SCRAPE_RATIO));
        lines.extend(measured);
    }
    let build = if cfg!(debug_assertions) {
        "; not a release build, for which the bounds hold"
    } else {
        ""
    };
    let notes = vec![
        format!(
            "medians of {} rounds of {} ms processor time each, contenders in turn, one thread{build}",
            args.rounds, args.slice_ms
        ),
        "floor F11: lines cut, names and labels hashed byte by byte, values read; nothing kept or checked".to_owned(),
        "koi parse keeps every sample with its labels; parse + map is what an agent does with a scrape".to_owned(),
        "prometheus-parse reads the page with colons written as underscores: it drops names with colons".to_owned(),
    ];
    Ok(Report {
        bench: "parse",
        notes,
        table: table(&lines),
        data: serde_json::to_value(&lines)?,
        bounds,
    })
}

fn measure(page: &Page, args: &ParseArgs) -> Vec<Line> {
    let slice = Duration::from_millis(u64::from(args.slice_ms));
    // Once around untimed: code and page are in the caches for all.
    let samples = CONTENDERS.map(|c| (c.read)(page));
    let mut seconds: [Vec<f64>; CONTENDERS.len()] = Default::default();
    for _ in 0..args.rounds {
        for (contender, seconds) in CONTENDERS.iter().zip(&mut seconds) {
            seconds.push(seconds_per_page(contender.read, page, slice));
        }
    }
    let line = |who: usize| {
        let ratios = seconds[who].iter().zip(&seconds[FLOOR]);
        let ratios: Vec<f64> = ratios.map(|(mine, floor)| mine / floor).collect();
        let each = median(&seconds[who]);
        Line {
            page: page.name,
            bytes: page.text.len(),
            contender: CONTENDERS[who].name,
            samples: samples[who],
            us_per_page: each.map(|s| 1e6 * s),
            mb_per_s: each.map(|s| page.text.len() as f64 / s / 1e6),
            ratio_to_floor: median(&ratios),
        }
    };
    (0..CONTENDERS.len()).map(line).collect()
}

fn seconds_per_page(read: Reader, page: &Page, slice: Duration) -> f64 {
    let start = processor_time();
    let mut n_pages = 0_u32;
    loop {
        // The clock is a system call; a batch of pages hides its cost.
        for _ in 0..16 {
            black_box(read(black_box(page)));
        }
        n_pages += 16;
        let spent = processor_time().saturating_sub(start);
        if spent >= slice {
            return spent.as_secs_f64() / f64::from(n_pages);
        }
    }
}

/// Processor time of this process.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

fn table(lines: &[Line]) -> Table {
    let mut table = Table::new(&[
        "PAGE", "BYTES", "WHO", "SAMPLES", "µs/PAGE", "MB/s", "× F11",
    ]);
    for line in lines {
        table.row([
            line.page.to_owned(),
            line.bytes.to_string(),
            line.contender.to_owned(),
            line.samples.to_string(),
            number(line.us_per_page, 1),
            number(line.mb_per_s, 0),
            number(line.ratio_to_floor, 2),
        ]);
    }
    table
}

/// The least that anyone who reads a page does: cut lines, tell names and labels apart by a hash of
/// their bytes, read the values.
fn floor(page: &Page) -> usize {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let (mut samples, mut sum) = (0, 0.0);
    for line in page.text.as_bytes().split(|b| *b == b'\n') {
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let Some(blank) = line.iter().rposition(|b| *b == b' ') else {
            continue;
        };
        let (series, value) = (&line[..blank], &line[blank + 1..]);
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        let hash = series.iter().fold(OFFSET, step);
        let value: Option<f64> = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        sum += value.unwrap_or(0.0) + (hash & 1) as f64;
        samples += 1;
    }
    black_box(sum);
    samples
}

fn parse(page: &Page) -> usize {
    let page = metrics_text::parse(page.text.as_bytes());
    black_box(&page).samples.len() + page.created_dropped
}

fn scrape(page: &Page) -> usize {
    let page = metrics_text::parse_selected(page.text.as_bytes(), is_wanted);
    black_box(EnginePage::from_page(&page));
    page.samples.len()
}

fn peer(page: &Page) -> usize {
    let lines = page.without_colons.lines().map(|l| Ok(l.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines);
    black_box(&scrape).as_ref().map_or(0, |s| s.samples.len())
}

impl Page {
    fn new(name: &'static str, text: String) -> Self {
        Self {
            name,
            without_colons: text.replace("vllm:", "vllm_"),
            text,
        }
    }
}

/// 24 histograms of 28 buckets and 60 gauges with the labels of a vLLM engine: 732 samples.
fn generated(seed: u64) -> String {
    const LABELS: &str = "model_name=\"meta-llama/Llama-3.1-70B-Instruct\"";
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut lines = Vec::new();
    for h in 0..24 {
        lines.push(format!("# HELP vllm:hist_{h} A histogram."));
        lines.push(format!("# TYPE vllm:hist_{h} histogram"));
        for b in 0..28 {
            let (le, count) = (0.001 * 1.6_f64.powi(b), 1e6 * uniform());
            lines.push(format!(
                "vllm:hist_{h}_bucket{{engine=\"0\",le=\"{le:.3}\",{LABELS}}} {count:.1}"
            ));
        }
    }
    for g in 0..60 {
        lines.push(format!("# HELP vllm:gauge_{g} A gauge."));
        lines.push(format!("# TYPE vllm:gauge_{g} gauge"));
        let value = uniform();
        lines.push(format!(
            "vllm:gauge_{g}{{engine=\"0\",{LABELS}}} {value:.6}"
        ));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_read_the_same_page() {
        let page = Page::new("generated", generated(1));
        assert!(
            (70_000..80_000).contains(&page.text.len()),
            "{}",
            page.text.len()
        );
        assert_eq!((floor(&page), parse(&page)), (732, 732));
        assert!(
            peer(&page) >= 24 + 60,
            "buckets are folded: {}",
            peer(&page)
        );
        let capture = Page::new("capture", CAPTURE.to_owned());
        assert_eq!(floor(&capture), parse(&capture));
        assert!(scrape(&capture) > 100);
    }

    #[test]
    fn a_short_run_judges_both_pages() {
        let args = ParseArgs {
            rounds: 5,
            slice_ms: 1,
        };
        let lines = measure(&Page::new("generated", generated(1)), &args);
        assert_eq!(lines.len(), CONTENDERS.len());
        assert!(
            lines
                .iter()
                .all(|l| l.us_per_page.is_some_and(|us| us > 0.0))
        );
        let floor = lines[FLOOR].ratio_to_floor.unwrap();
        assert!((floor - 1.0).abs() < 1e-12);
    }
}
