//! A seeded mutation driver on the standard library alone: `mutate [SECONDS] [SEED] [FOLDER...]`.
//!
//! Starts from captured pages and hand-written hard lines, cuts, joins and damages them, and keeps
//! what makes the parser answer in a way not seen before. Prints executions and failures; a failing
//! page is saved and the exit code is 1. Not coverage-guided: `fuzz_targets/metrics_page.rs` is.

use std::collections::HashSet;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use koi_core::telemetry::engine_metrics::EnginePage;
use koi_core::telemetry::metrics_text::parse;

/// Longest page tried: long enough for every limit but the page's own size.
const MAX_BYTES: usize = 8 * 1024;
/// Pages kept.
const MAX_CORPUS: usize = 4096;
/// Failures after which there is nothing more to learn.
const MAX_FAILURES: usize = 10;

const CAPTURE: &str = include_str!("../../../koi-bench/fixtures/vllm-0.32-under-load.metrics.txt");

const HARD_LINES: &[&str] = &[
    "# TYPE h histogram\nh_bucket{le=\"1\"} 4 # {trace_id=\"a b\"} 0.5 17\nh_bucket{le=\"+Inf\"} 5\nh_sum 9\nh_count 5\n# EOF\n",
    "# HELP a b\\n\\\\c\n# TYPE a counter\n# UNIT a seconds\na_total 1 1700000000.5\na_created 1.7e9\n",
    "{\"quoted.name\", \"label name\"=\"v\\\"\\\\\\n\"} NaN 1\n",
    "m{ a = \"1\" , b=\"}\" , } +Inf\r\nm -Inf\rm 1e-320\n",
    "# TYPE s stateset\ns{s=\"on\"} 1\n# TYPE i info\ni_info{v=\"1\"} 1\n# TYPE g gaugehistogram\ng_bucket{le=\"+Inf\"} 1\ng_gcount 1\ng_gsum 2\n",
    "vllm:time_to_first_token_seconds_bucket{le=\"0.1\",model_name=\"m\",engine=\"0\"} 1\nvllm:time_to_first_token_seconds_bucket{le=\"+Inf\",model_name=\"m\",engine=\"0\"} 3\nvllm:time_to_first_token_seconds_sum{model_name=\"m\",engine=\"0\"} 2\nvllm:time_to_first_token_seconds_count{model_name=\"m\",engine=\"0\"} 3\n",
    "ray_vllm_prompt_tokens{ReplicaId=\"r\",WorkerId=\"w\",model_name=\"m\"} 5\nray_vllm_prompt_tokens_total{ReplicaId=\"r\",WorkerId=\"w\",model_name=\"m\"} 5\n",
    "sglang:token_usage{dp_rank=\"1\"} 0.5\nsglang:cached_tokens_total{cache_source=\"host\"} 4\ntgi_request_input_length_sum 4\ntgi_request_failure{err=\"x\"} 1\n",
    "vllm:request_success_total{finished_reason=\"stop\"} 1\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\nprocess_start_time_seconds 1.7e9\n",
];

const TOKENS: &[&str] = &[
    "\n",
    "\r",
    "\r\n",
    "\t",
    " ",
    "{",
    "}",
    "\"",
    "\\",
    "\\\"",
    "\\n",
    ",",
    "=",
    "#",
    "# EOF\n",
    "# TYPE ",
    "# HELP ",
    "# UNIT ",
    " histogram\n",
    " counter\n",
    "_bucket",
    "_sum",
    "_count",
    "_total",
    "_created",
    "le=\"",
    "le=\"+Inf\"",
    "+Inf",
    "-Inf",
    "NaN",
    "1e308",
    "1e-320",
    "-0",
    "0x10",
    "1_0",
    "9007199254740993",
    "1700000000000",
    ":",
    "vllm:",
    "ray_",
    "sglang:",
    "tgi_",
    "engine=\"",
    "model_name=\"",
    "\u{feff}",
    "\0",
    "é",
    "模",
    "\u{202e}",
    "{}",
    "{},",
    "\"\"",
    "a=\"b\",",
    " # {a=\"b\"} 1 2",
];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `n`; 0 for 0.
    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(600);
    let seed: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut corpus = seeds(args);
    let mut seen: HashSet<Vec<u8>> = corpus.iter().map(|page| answer(page)).collect();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (start, limit) = (Instant::now(), Duration::from_secs(seconds));
    let (mut executions, mut failures, mut told) = (0_u64, 0, Duration::ZERO);
    println!(
        "seed {seed}, {seconds} s, {} pages to start from",
        corpus.len()
    );
    while start.elapsed() < limit && failures < MAX_FAILURES {
        let page = mutated(&corpus, &mut random);
        executions += 1;
        let judged =
            catch_unwind(|| koi_fuzz::check(&page)).and_then(|()| catch_unwind(|| answer(&page)));
        match judged {
            Ok(answer) => {
                if corpus.len() < MAX_CORPUS && seen.insert(answer) {
                    corpus.push(page);
                }
            }
            Err(_) => {
                failures += 1;
                save(&page, seed, failures);
            }
        }
        if start.elapsed() >= told {
            println!(
                "{:>5} s: {executions} executions, {} pages kept, {failures} failures",
                start.elapsed().as_secs(),
                corpus.len()
            );
            told = start.elapsed() + Duration::from_secs(30);
        }
    }
    let spent = start.elapsed().as_secs_f64();
    println!(
        "done: {executions} executions in {spent:.0} s ({:.0} a second), {} pages kept, {failures} failures",
        executions as f64 / spent,
        corpus.len()
    );
    std::process::exit(i32::from(failures > 0));
}

/// Windows of the captures, the hard lines, and every file of the folders.
fn seeds(folders: impl Iterator<Item = String>) -> Vec<Vec<u8>> {
    let mut pages: Vec<Vec<u8>> = HARD_LINES.iter().map(|l| l.as_bytes().to_vec()).collect();
    pages.extend(windows(CAPTURE.as_bytes()));
    for folder in folders {
        let listing = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let mut paths: Vec<_> = listing.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for bytes in paths.iter().filter_map(|path| std::fs::read(path).ok()) {
            pages.extend(windows(&bytes));
        }
    }
    pages
}

fn windows(page: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    page.chunks(MAX_BYTES / 8).map(<[u8]>::to_vec)
}

fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut page = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(6) {
        mutate(&mut page, corpus, random);
    }
    page.truncate(MAX_BYTES);
    page
}

fn mutate(page: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(page.len() + 1);
    let end = (at + 1 + random.below(64)).min(page.len());
    match random.below(9) {
        0 if at < page.len() => page[at] ^= 1 << random.below(8),
        1 if at < page.len() => page[at] = random.next() as u8,
        2 if at < end => drop(page.drain(at..end)),
        3 => {
            let token = TOKENS[random.below(TOKENS.len())];
            page.splice(at..at, token.bytes());
        }
        4 if at < end => {
            let piece = page[at..end].to_vec();
            let to = random.below(page.len());
            page.splice(to..to, piece);
        }
        5 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len());
            let piece = other[from..(from + random.below(512)).min(other.len())].to_vec();
            page.splice(at..at, piece);
        }
        6 => page.truncate(at),
        7 => swap_lines(page, random),
        // A run of one byte: names, values and label lists past their limits.
        _ => {
            let byte = b"a0\"\\,{ \n1"[random.below(9)];
            let run = vec![byte; random.below(5000)];
            page.splice(at..at, run);
        }
    }
}

fn swap_lines(page: &mut Vec<u8>, random: &mut Random) {
    let mut lines: Vec<Vec<u8>> = page
        .split_inclusive(|b| *b == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    if lines.len() > 1 {
        let (a, b) = (random.below(lines.len()), random.below(lines.len()));
        lines.swap(a, b);
        *page = lines.concat();
    }
}

/// What the parser says of a page, coarsely: pages with a new answer are worth keeping.
fn answer(page: &[u8]) -> Vec<u8> {
    let read = parse(page);
    let engines = EnginePage::from_page(&read);
    let size = |n: usize| n.checked_ilog2().map_or(0, |b| b as u8 + 1);
    let mut answer = vec![
        size(read.samples.len()),
        size(read.bad_lines),
        size(read.families.len()),
        size(engines.engines.len()),
    ];
    answer.extend([
        u8::from(read.ended),
        u8::from(read.unterminated),
        size(read.created_dropped),
        size(engines.duplicates),
    ]);
    let kinds: HashSet<String> = read
        .problems
        .iter()
        .map(|p| format!("{:?}", std::mem::discriminant(&p.problem)))
        .chain(engines.problems.iter().map(|p| format!("{:?}", p.problem)))
        .collect();
    let mut kinds: Vec<String> = kinds.into_iter().collect();
    kinds.sort();
    answer.extend(kinds.concat().into_bytes());
    answer
}

fn save(page: &[u8], seed: u64, failures: usize) {
    let name = format!("failure-{seed}-{failures}.page");
    match std::fs::write(Path::new(&name), page) {
        Ok(()) => println!("saved {name}: {} bytes", page.len()),
        Err(error) => println!("{name} could not be saved: {error}"),
    }
}
