//! Tests of the page parser: hand cases, captured pages, the oracle, and hostile input.

use proptest::prelude::*;

use super::*;
use crate::telemetry::test_data::metrics_pages;

fn one(line: &str) -> Sample<'_> {
    let page = parse(line.as_bytes());
    assert_eq!(page.problems, [], "{line}");
    assert_eq!(page.samples.len(), 1, "{line}");
    page.samples[0].clone()
}

fn labels<'a>(sample: &'a Sample<'_>) -> Vec<(&'a str, &'a str)> {
    sample
        .labels
        .iter()
        .map(|l| (l.name.as_ref(), l.value.as_ref()))
        .collect()
}

fn problem(line: &[u8]) -> LineProblem {
    let page = parse(line);
    assert_eq!((page.samples.len(), page.bad_lines), (0, 1), "{line:?}");
    page.problems[0].problem
}

#[test]
fn names_keep_their_colons() {
    let sample = one("vllm:num_requests_running{engine=\"0\"} 3.0\n");
    assert_eq!(sample.name, "vllm:num_requests_running");
    assert_eq!(labels(&sample), [("engine", "0")]);
    assert!((sample.value - 3.0).abs() < f64::EPSILON);
}

#[test]
fn label_values_may_hold_anything_escaped() {
    let sample = one(r#"m{a="x\\y\"z\nw",b="},=# {",c="\q é",} 1"#);
    assert_eq!(
        labels(&sample),
        [("a", "x\\y\"z\nw"), ("b", "},=# {"), ("c", "\\q é")]
    );
    assert!(
        matches!(sample.labels[1].value, Cow::Borrowed(_)),
        "no copy without an escape"
    );
}

#[test]
fn blanks_and_trailing_commas_are_allowed() {
    let sample = one("  m\t{ a = \"1\" , b=\"2\" , }\t7  1700000000000 \r\n");
    assert_eq!(labels(&sample), [("a", "1"), ("b", "2")]);
    assert_eq!(sample.timestamp, Some(1.7e12));
    assert_eq!(labels(&one("m{} 1\n")), []);
}

#[test]
fn special_numbers_are_read() {
    assert!(one("m NaN\n").value.is_nan());
    assert!(one("m +Inf\n").value.is_infinite());
    assert!(one("m -Inf\n").value.is_sign_negative());
    assert!((one("m 3.9024848896e+010\n").value - 39_024_848_896.0).abs() < 1e-3);
}

#[test]
fn exemplars_are_ignored_and_the_end_mark_is_seen() {
    let text = "# TYPE h histogram\nh_bucket{le=\"1\"} 4 # {trace=\"a b\"} 0.5 17\nh_count 4 1.5 # {} 2\n# EOF\n";
    let page = parse(text.as_bytes());
    assert_eq!(page.bad_lines, 0);
    assert!(page.ended && page.is_clean());
    assert_eq!(page.types, [("h", FamilyType::Histogram)]);
    assert_eq!(
        page.samples.iter().map(|s| s.timestamp).collect::<Vec<_>>(),
        [None, Some(1.5)]
    );
}

#[test]
fn quoted_utf8_names_are_read() {
    let sample = one("{\"gpu.power\", \"node name\"=\"h\"} 1\n");
    assert_eq!(
        (sample.name.as_ref(), labels(&sample)),
        ("gpu.power", vec![("node name", "h")])
    );
}

#[test]
fn created_series_are_dropped_and_counted() {
    let page = parse(b"vllm:x_total 2\nvllm:x_created 1.7e9\n");
    assert_eq!((page.samples.len(), page.created_dropped), (1, 1));
}

#[test]
fn every_refusal_has_its_reason() {
    let long_name = format!("{} 1\n", "n".repeat(MAX_NAME_BYTES + 1));
    let long_value = format!("m{{a=\"{}\"}} 1\n", "v".repeat(MAX_LABEL_VALUE_BYTES + 1));
    let many = (0..=MAX_LABELS)
        .map(|i| format!("l{i}=\"\","))
        .collect::<String>();
    let many = format!("m{{{many}}} 1\n");
    let cases: [(&[u8], LineProblem); 15] = [
        (b"m\xff 1\n", LineProblem::NotUtf8),
        (b"<html>\n", LineProblem::BadName),
        (b"9m 1\n", LineProblem::BadName),
        (b"{a=\"b\"} 1\n", LineProblem::BadName),
        (long_name.as_bytes(), LineProblem::NameTooLong),
        (b"m{a=\"b\" 1\n", LineProblem::BadLabels),
        (b"m{a=b} 1\n", LineProblem::BadLabels),
        (b"m{a=\"b\\\"} 1\n", LineProblem::BadLabels),
        (b"m{a=\"b\"c=\"d\"} 1\n", LineProblem::BadLabels),
        (b"m{a=\"b\",a=\"c\"} 1\n", LineProblem::RepeatedLabel),
        (many.as_bytes(), LineProblem::TooManyLabels),
        (long_value.as_bytes(), LineProblem::LabelTooLong),
        (b"m\n", LineProblem::BadValue),
        (b"m 0x10\n", LineProblem::BadValue),
        (b"m 1 2 3\n", LineProblem::BadTimestamp),
    ];
    for (line, expected) in cases {
        assert_eq!(
            problem(line),
            expected,
            "{:?}",
            String::from_utf8_lossy(line)
        );
    }
}

#[test]
fn hazard_e13_garbage_costs_its_own_line_only() {
    let mut text = b"a 1\n".to_vec();
    for _ in 0..100 {
        text.extend_from_slice(b"<p>\x00\xfe{{{\n");
    }
    text.extend_from_slice(b"vllm:b 2\n");
    let page = parse(&text);
    assert_eq!(
        page.samples
            .iter()
            .map(|s| s.name.as_ref())
            .collect::<Vec<_>>(),
        ["a", "vllm:b"]
    );
    assert_eq!(
        (page.bad_lines, page.problems.len()),
        (100, MAX_REPORTED_PROBLEMS)
    );
    assert_eq!(page.problems[0].line, 2);
}

#[test]
fn hazard_e14_an_oversized_page_is_cut_at_a_line_end() {
    let line = b"metric_with_a_name 123456789\n";
    let page = line.repeat(MAX_PAGE_BYTES / line.len() + 1000);
    let read = parse_selected(&page, |_| false);
    assert!(read.bytes_cut >= 999 * line.len());
    assert_eq!((read.bad_lines, read.unterminated), (0, false));
    let endless = vec![b'x'; MAX_PAGE_BYTES + 1];
    let endless = parse(&endless);
    assert_eq!(
        (endless.samples.len(), endless.bytes_cut),
        (0, MAX_PAGE_BYTES + 1)
    );
}

#[test]
fn hazard_e15_series_are_capped_and_selected_by_name() {
    let mut text = String::new();
    for i in 0..MAX_SERIES + 500 {
        text.push_str(&format!("noise{{i=\"{i}\"}} 1\n"));
    }
    text.push_str("vllm:wanted 7\n");
    let all = parse(text.as_bytes());
    assert_eq!((all.samples.len(), all.over_limit), (MAX_SERIES, 501));
    let wanted = parse_selected(text.as_bytes(), |name| name.starts_with("vllm:"));
    assert_eq!(
        (wanted.samples.len(), wanted.unselected),
        (1, MAX_SERIES + 500)
    );
}

#[test]
fn a_last_line_without_an_end_is_reported() {
    let page = parse(b"a 1\nb 12");
    assert_eq!(
        (page.samples.len(), page.unterminated, page.is_clean()),
        (2, true, false)
    );
}

#[test]
fn captured_pages_are_read_whole() {
    for (name, text) in metrics_pages() {
        let page = parse(text.as_bytes());
        assert_eq!(
            (page.bad_lines, page.over_limit),
            (0, 0),
            "{name}: {:?}",
            page.problems
        );
        let lines = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.trim().is_empty())
            .count();
        assert_eq!(page.samples.len() + page.created_dropped, lines, "{name}");
        if name.ends_with(".metrics.txt") {
            let written = text.lines().filter(|l| l.starts_with("vllm:")).count();
            let created = text
                .lines()
                .filter(|l| l.starts_with("vllm:") && l.contains("_created"))
                .count();
            let read = page
                .samples
                .iter()
                .filter(|s| s.name.starts_with("vllm:"))
                .count();
            assert_eq!((written, read + created), (364, 364), "{name}");
        }
    }
}

#[test]
fn the_oracle_agrees_on_names_without_colons() {
    for (name, text) in metrics_pages() {
        // The oracle drops names with colons; it also folds histograms, so only plain lines are compared.
        let plain = |line: &&str| {
            let family = line.split(['{', ' ']).next().unwrap_or_default();
            !line.starts_with('#')
                && !family.contains(':')
                && !["_bucket", "_count", "_sum", "_created"]
                    .iter()
                    .any(|s| family.ends_with(s))
        };
        let lines: Vec<String> = text.lines().filter(plain).map(str::to_owned).collect();
        let oracle = prometheus_parse::Scrape::parse(lines.iter().map(|l| Ok(l.clone())))
            .expect("lines read");
        let joined = lines.join("\n") + "\n";
        let ours = parse(joined.as_bytes());
        assert_eq!(ours.samples.len(), oracle.samples.len(), "{name}");
        for (mine, theirs) in ours.samples.iter().zip(&oracle.samples) {
            let prometheus_parse::Value::Untyped(value) = theirs.value else {
                panic!("{theirs:?}")
            };
            assert_eq!(mine.name, theirs.metric, "{name}");
            assert_eq!(
                mine.value.to_bits(),
                value.to_bits(),
                "{name} {}",
                mine.name
            );
            for label in &mine.labels {
                assert_eq!(
                    theirs.labels.get(&label.name),
                    Some(label.value.as_ref()),
                    "{name}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn hazard_e13_no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let page = parse(&bytes);
        prop_assert!(page.problems.len() <= MAX_REPORTED_PROBLEMS);
    }

    #[test]
    fn hostile_text_never_loses_the_good_lines(junk in "[a-z0-9{}\"=,#\\\\ \t_:.+-]{0,60}") {
        let text = format!("first 1\n{junk}\nlast{{a=\"b\"}} 2\n");
        let page = parse(text.as_bytes());
        prop_assert_eq!(page.samples.first().map(|s| s.name.to_string()), Some("first".to_owned()));
        prop_assert_eq!(page.samples.last().map(|s| s.name.to_string()), Some("last".to_owned()));
    }

    #[test]
    fn any_label_value_survives_escaping(value in "\\PC{0,40}", number in any::<f64>()) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let text = format!("m{{a=\"{escaped}\"}} {number}\n");
        let page = parse(text.as_bytes());
        prop_assert_eq!(page.bad_lines, 0);
        prop_assert_eq!(page.samples[0].label("a"), Some(value.as_str()));
        prop_assert!(page.samples[0].value.total_cmp(&number).is_eq() || number.is_nan());
    }

    #[test]
    fn every_cut_of_a_page_keeps_the_whole_lines_before_it(cut in 0usize..120) {
        let text = "# TYPE vllm:a counter\nvllm:a{m=\"x,}\"} 1\nvllm:b 2 # {t=\"1\"} 1\nlast 3\n# EOF\n";
        let head = &text.as_bytes()[..cut.min(text.len())];
        let whole = head.iter().filter(|b| **b == b'\n').count();
        let page = parse(head);
        prop_assert!(page.samples.len() >= whole.saturating_sub(1).min(3));
    }
}
