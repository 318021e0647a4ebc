//! Tests of the document, its form for people, and what is refused.

use koi_core::telemetry::metrics_text::parse;

use super::*;

const PAGE: &str = "\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3
vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 50 # {trace_id=\"t\"} 1
vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"1\"} 90
vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"+Inf\"} 100
vllm:time_to_first_token_seconds_sum{engine=\"0\",model_name=\"m\"} 60
broken {
vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 9
nothing NaN
";

fn args(more: &[&str]) -> MetricsParseArgs {
    use clap::Parser as _;
    let words = ["koi", "metrics", "parse", "page"].iter().chain(more);
    match crate::args::Cli::try_parse_from(words).unwrap().command {
        crate::args::Command::Metrics(MetricsCommand::Parse(args)) => args,
        other => panic!("{other:?}"),
    }
}

fn document(text: &str, earlier: Option<&str>, more: &[&str]) -> Document {
    let page = parse(text.as_bytes());
    let engines = EnginePage::from_page(&page);
    let earlier = earlier.map(|text| EnginePage::from_page(&parse(text.as_bytes())));
    Document::of(&Input {
        file: "page".to_owned(),
        n_bytes: text.len(),
        page: &page,
        engines: &engines,
        change: earlier.map(|earlier| engines.since(&earlier)),
        args: &args(more),
    })
}

fn json(document: &Document) -> serde_json::Value {
    serde_json::to_value(document).unwrap()
}

#[test]
fn the_document_has_values_quantiles_and_problems() {
    let json = json(&document(PAGE, None, &[]));
    assert_eq!(json["read"]["samples"], 8);
    assert_eq!(
        (&json["read"]["bad_lines"], &json["read"]["repeated_series"]),
        (&1.into(), &1.into())
    );
    let engines = json["engines"].as_array().unwrap();
    assert_eq!((engines.len(), &engines[1]["index"]), (2, &1.into()));
    assert_eq!(
        engines[1]["gauges"]["running_requests"], 4.0,
        "the first one counts"
    );
    let ttft = &engines[0]["histograms"]["time_to_first_token_seconds"];
    assert_eq!((&ttft["count"], &ttft["mean"]), (&100.into(), &0.6.into()));
    // Rank 50 of the 90 in the bucket from 0 to 1; rank 99 lies past the last edge.
    assert!((ttft["p50"].as_f64().unwrap() - 50.0 / 90.0).abs() < 1e-12);
    assert_eq!(
        (&ttft["p99"], &ttft["edges"]),
        (&1.0.into(), &serde_json::json!([1.0]))
    );
    let problems = json["problems"].as_array().unwrap();
    let lines: Vec<_> = problems
        .iter()
        .map(|p| (p["line"].as_u64().unwrap(), p["lost"] == true))
        .collect();
    assert_eq!(
        lines,
        [(9, true), (10, false)],
        "a repetition is told once: {problems:?}"
    );
    assert_eq!(json["samples"], serde_json::Value::Null);
}

#[test]
fn every_sample_can_be_had_as_written() {
    let json = json(&document(PAGE, None, &["--samples"]));
    let samples = json["samples"].as_array().unwrap();
    assert_eq!((samples.len(), &samples[7]["value"]), (8, &"NaN".into()));
    assert_eq!(samples[2]["exemplar"]["labels"]["trace_id"], "t");
    assert_eq!(
        (&samples[3]["line"], &samples[3]["labels"]["le"]),
        (&6.into(), &"1".into())
    );
}

#[test]
fn differences_name_resets() {
    let now = PAGE
        .replace("} 50", "} 20")
        .replace("} 90", "} 95")
        .replace("} 100", "} 200");
    let json = json(&document(&now, Some(PAGE), &[]));
    let change = &json["engines"][0]["since_previous"];
    assert_eq!(
        change["counters"]["prompt_tokens"],
        serde_json::json!({"increase": 20, "reset": true})
    );
    let ttft = &change["histograms"]["time_to_first_token_seconds"];
    assert_eq!(
        (&ttft["count"], &ttft["p50"]),
        (&100.into(), &1.0.into()),
        "95 of the 100 new ones took longer"
    );
    let fallen = PAGE.replace("} 90", "} 80");
    let json = self::json(&document(&fallen, Some(PAGE), &[]));
    let ttft = &json["engines"][0]["since_previous"]["histograms"]["time_to_first_token_seconds"];
    assert!(
        ttft["no_difference"].as_str().unwrap().contains("fell"),
        "{ttft}"
    );
    assert_eq!(json["restarted"], false);
}

#[test]
fn missing_series_depend_on_engine_and_version() {
    let missing = |more: &[&str]| -> Vec<String> {
        let json = json(&document(PAGE, None, more));
        let list = json["engines"][0]["missing"].as_array().unwrap();
        list.iter()
            .map(|m| m["series"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(missing(&[]).contains(&"prefix_cache_hits".to_owned()));
    let v0 = missing(&["--engine", "vllm", "--version", "0.6.3"]);
    assert!(
        !v0.contains(&"prefix_cache_hits".to_owned())
            && v0.contains(&"generation_tokens".to_owned())
    );
    let other = json(&document(PAGE, None, &["--engine", "sglang"]));
    assert!(
        !other["missing"].as_array().unwrap().is_empty(),
        "no such engine on the page"
    );
}

#[test]
fn people_see_engines_and_problems() {
    let text = text::text(&document(PAGE, Some(PAGE), &[]));
    for part in [
        "vllm m engine 1",
        "running_requests",
        "+0",
        "missing",
        "the labels are not a list",
        "  since",
    ] {
        assert!(text.contains(part), "{part} not in\n{text}");
    }
    let hostile = "vllm:num_requests_running{model_name=\"\u{1b}[2J\"} 1\n";
    assert!(!text::text(&document(hostile, None, &[])).contains('\u{1b}'));
    let empty = text::text(&document("node_load1 3\n", None, &[]));
    assert!(empty.contains("no series of a known engine"), "{empty}");
}

#[test]
fn what_is_no_page_is_refused_with_every_problem() {
    let refused = |text: &str| refuse_unreadable(Path::new("x"), &parse(text.as_bytes()));
    let pages = [
        ("", 0),
        ("\n\n", 0),
        ("<html>\n<body>\n", 2),
        ("vllm:x gauge\n", 1),
    ];
    for (page, n_problems) in pages {
        let error = refused(page).unwrap_err();
        let failure = error.downcast_ref::<Failure>().unwrap();
        assert_eq!(failure.code, crate::failure::ExitCode::Invalid, "{page:?}");
        assert_eq!(failure.violations.len(), n_problems, "{page:?}");
    }
    for page in ["a 1\n", "# EOF\n", "# TYPE a gauge\n", "<html>\na 1\n"] {
        assert!(refused(page).is_ok(), "{page:?}");
    }
}
