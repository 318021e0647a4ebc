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

fn labels(sample: &Sample<'_>) -> Vec<(String, String)> {
    let owned = |l: Label<'_>| (l.name.into_owned(), l.value.into_owned());
    sample.labels.iter().map(owned).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    expected.iter().map(owned).collect()
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
    assert_eq!(labels(&sample), pairs(&[("engine", "0")]));
    assert!((sample.value - 3.0).abs() < f64::EPSILON);
}

#[test]
fn label_values_may_hold_anything_escaped() {
    let sample = one(r#"m{a="x\\y\"z\nw",b="},=# {",c="\q é",} 1"#);
    assert_eq!(
        labels(&sample),
        pairs(&[("a", "x\\y\"z\nw"), ("b", "},=# {"), ("c", "\\q é")])
    );
    assert!(
        matches!(sample.label("b"), Some(Cow::Borrowed(_))),
        "no copy without an escape"
    );
}

#[test]
fn blanks_and_trailing_commas_are_allowed() {
    let sample = one("  m\t{ a = \"1\" , b=\"2\" , }\t7  1700000000000 \r\n");
    assert_eq!(labels(&sample), pairs(&[("a", "1"), ("b", "2")]));
    assert_eq!(sample.timestamp, Some(1.7e12));
    assert!(one("m{} 1\n").labels.is_empty());
}

#[test]
fn special_numbers_are_read() {
    assert!(one("m NaN\n").value.is_nan());
    assert!(one("m +Inf\n").value.is_infinite());
    assert!(one("m -Inf\n").value.is_sign_negative());
    assert!((one("m 3.9024848896e+010\n").value - 39_024_848_896.0).abs() < 1e-3);
}

#[test]
fn exemplars_are_read_and_the_end_mark_is_seen() {
    let text = "# TYPE h histogram\nh_bucket{le=\"1\"} 4 # {trace=\"a b\"} 0.5 17\nh_count 4 1.5 # {} 2\n# EOF\n";
    let page = parse(text.as_bytes());
    assert_eq!((page.bad_lines, page.remarks), (0, 0));
    assert!(page.ended && page.is_clean());
    assert_eq!(page.families[0].kind, Some(FamilyType::Histogram));
    let times: Vec<_> = page.samples.iter().map(|s| s.timestamp).collect();
    assert_eq!(times, [None, Some(1.5)]);
    let exemplar = page.samples[0].exemplar().unwrap();
    assert_eq!(exemplar.labels.get("trace").as_deref(), Some("a b"));
    assert_eq!((exemplar.value, exemplar.timestamp), (0.5, Some(17.0)));
    let bare = page.samples[1].exemplar().unwrap();
    assert!(bare.labels.is_empty() && bare.timestamp.is_none());
}

#[test]
fn a_broken_exemplar_costs_itself_only() {
    for exemplar in [
        "# nothing",
        "# {a=\"b\"}",
        "# {a} 1",
        "# {\"n\", a=\"b\"} 1",
        "# {} 1 2 3",
        "# {} 1 2 # {} 1",
    ] {
        let text = format!("h_bucket{{le=\"1\"}} 4 {exemplar}\n");
        let page = parse(text.as_bytes());
        assert_eq!(
            (page.samples.len(), page.bad_lines, page.remarks),
            (1, 0, 1),
            "{exemplar}"
        );
        assert_eq!(
            page.problems[0].problem,
            LineProblem::BadExemplar,
            "{exemplar}"
        );
        assert_eq!(page.samples[0].exemplar(), None, "{exemplar}");
    }
}

#[test]
fn quoted_utf8_names_are_read() {
    let sample = one("{\"gpu.power\", \"node name\"=\"h\"} 1\n");
    assert_eq!(sample.name, "gpu.power");
    assert_eq!(labels(&sample), pairs(&[("node name", "h")]));
    assert_eq!(one("{\"é\\\\\\\"x\"} 1\n").name, "é\\\"x");
}

#[test]
fn families_say_their_type_unit_and_help() {
    let text = "# HELP a_seconds What it is, in C:\\\\x.\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1\n\
        # TYPE \"b.c\" stateset\n# TYPE d info\n# TYPE e gaugehistogram\n# TYPE f untyped\n# a comment\n#TYPE g summary\n";
    let page = parse(text.as_bytes());
    assert_eq!(
        (page.problems.as_slice(), page.families.len()),
        (&[][..], 6)
    );
    let first = page.families[0];
    assert_eq!(
        (first.name, first.kind, first.line),
        ("a_seconds", Some(FamilyType::Gauge), 1)
    );
    assert_eq!(
        (first.unit, first.help),
        (Some("seconds"), Some("What it is, in C:\\\\x."))
    );
    let others: Vec<_> = page.families[1..]
        .iter()
        .map(|f| (f.name, f.kind.unwrap().name()))
        .collect();
    assert_eq!(
        others,
        [
            ("b.c", "stateset"),
            ("d", "info"),
            ("e", "gaugehistogram"),
            ("f", "unknown"),
            ("g", "summary")
        ]
    );
}

#[test]
fn oddities_of_comments_are_remarks() {
    let text = "# TYPE a counter\n# TYPE a gauge\n# TYPE b colour\n# EOF\nc 1\nd 2\n";
    let page = parse(text.as_bytes());
    let found: Vec<_> = page.problems.iter().map(|p| (p.line, p.problem)).collect();
    assert_eq!(
        found,
        [
            (2, LineProblem::RepeatedType),
            (3, LineProblem::BadType),
            (5, LineProblem::AfterEnd)
        ]
    );
    assert_eq!(
        (page.bad_lines, page.remarks, page.samples.len()),
        (0, 3, 2)
    );
    assert_eq!(
        page.families[0].kind,
        Some(FamilyType::Counter),
        "the first one counts"
    );
}

#[test]
fn created_series_of_declared_families_are_dropped_and_counted() {
    let text = "# TYPE vllm:x_total counter\nvllm:x_total 2\n# TYPE vllm:x_created gauge\nvllm:x_created 1.7e9\n\
        # TYPE h histogram\nh_sum 1\nh_created 1.7e9\n# TYPE y counter\ny_total 1\ny_created 1.7e9\n";
    let page = parse(text.as_bytes());
    assert_eq!((page.samples.len(), page.created_dropped), (3, 3));
    // A metric of its own that only ends so is nobody's companion.
    let page = parse(b"# TYPE files_created gauge\nfiles_created 3\njobs_created 4\n");
    assert_eq!((page.samples.len(), page.created_dropped), (2, 0));
}

#[test]
fn carriage_returns_end_lines_only_before_a_line_feed() {
    let page = parse(b"\xef\xbb\xbfa 1\r\nb{l=\"x\ry\"} 2\r\n\r\nc 3\n");
    assert_eq!(
        (page.samples.len(), page.lines, page.problems.len()),
        (3, 4, 0)
    );
    assert_eq!(page.samples[1].label("l").as_deref(), Some("x\ry"));
    for text in [
        &b"a 1\r5\n"[..],
        b"a\r1\n",
        b"a 1 2\r3\n",
        b"# HELP a x\ra 1\r\n",
        b"\ra 1\n",
    ] {
        assert_eq!(problem(text), LineProblem::BareCarriageReturn, "{text:?}");
    }
}

#[test]
fn repeated_series_are_found_in_any_order_of_labels() {
    let text = "m{a=\"1\",b=\"2\"} 1\nm{a=\"1\"} 1\nm{b=\"2\",a=\"1\"} 7\nm{a=\"1\",b=\"2\"} 1 5\nm{a=\"1\",b=\"2\"} 1 6\nm{b=\"2\",a=\"1\"} 1 6\nn 1\n";
    let page = parse(text.as_bytes());
    let repeated = page.repeated_series();
    let found: Vec<_> = repeated
        .problems
        .iter()
        .map(|p| (p.line, p.problem))
        .collect();
    let on = |first_line| LineProblem::RepeatedSeries { first_line };
    assert_eq!((repeated.count, found), (2, vec![(3, on(1)), (6, on(5))]));
    assert!(!on(1).loses_the_line());
    let many = "m 1\n".repeat(1000);
    let repeated = parse(many.as_bytes()).repeated_series();
    assert_eq!(
        (repeated.count, repeated.problems.len()),
        (999, MAX_REPORTED_PROBLEMS)
    );
}

#[test]
fn every_refusal_has_its_reason() {
    let long_name = format!("{} 1\n", "n".repeat(MAX_NAME_BYTES + 1));
    let long_value = format!("m{{a=\"{}\"}} 1\n", "v".repeat(MAX_LABEL_VALUE_BYTES + 1));
    let many = (0..=MAX_LABELS)
        .map(|i| format!("l{i}=\"\","))
        .collect::<String>();
    let many = format!("m{{{many}}} 1\n");
    let cases: [(&[u8], LineProblem); 18] = [
        (b"m\xff 1\n", LineProblem::NotUtf8),
        (b"<html>\n", LineProblem::BadName),
        (b"9m 1\n", LineProblem::BadName),
        (b"{a=\"b\"} 1\n", LineProblem::BadName),
        (b"{\"\"} 1\n", LineProblem::BadLabels),
        (b"m{\"n\"} 1\n", LineProblem::BadLabels),
        (b"m{a=\"\\", LineProblem::BadLabels),
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
    let small = Limits {
        max_bytes: 12,
        max_series: 1,
    };
    let small = parse_within(b"a 1\nb 2\nc 3\nd 4\n", small, |_| true);
    assert_eq!(
        (small.samples.len(), small.over_limit, small.bytes_cut),
        (1, 2, 4)
    );
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
            for label in mine.labels {
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
    fn any_labels_are_found_again(names in proptest::collection::btree_set("[a-zA-Z_][a-zA-Z0-9_]{0,6}", 0..40), seed in any::<u64>()) {
        // Any order; then one of them twice, which is refused.
        let mut names: Vec<String> = names.into_iter().collect();
        let n = names.len().max(1) as u64;
        for i in 0..names.len() {
            let other = (seed.rotate_left(i as u32) % n) as usize;
            names.swap(i, other);
        }
        let list = |names: &[String]| names.iter().map(|n| format!("{n}=\"v{n}\"")).collect::<Vec<_>>().join(",");
        let text = format!("m{{{}}} 1\n", list(&names));
        let page = parse(text.as_bytes());
        prop_assert_eq!(page.samples[0].labels.len(), names.len());
        for name in &names {
            let expected = format!("v{name}");
            let found = page.samples[0].label(name);
            prop_assert_eq!(found.as_deref(), Some(expected.as_str()));
        }
        if let Some(name) = names.get((seed % n) as usize) {
            let twice = format!("m{{{},{name}=\"\"}} 1\n", list(&names));
            prop_assert_eq!(parse(twice.as_bytes()).problems[0].problem, LineProblem::RepeatedLabel);
        }
    }

    #[test]
    fn any_label_value_survives_escaping(value in "\\PC{0,40}", number in any::<f64>()) {
        let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let text = format!("m{{a=\"{escaped}\"}} {number}\n");
        let page = parse(text.as_bytes());
        prop_assert_eq!(page.bad_lines, 0);
        let found = page.samples[0].label("a");
        prop_assert_eq!(found.as_deref(), Some(value.as_str()));
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
