//! The page against a capture of the real engine: families, types, label names, edges.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::*;
use crate::arguments::{Command, parse};
use crate::http_stats::Answered;

/// Families that only a Python process has.
const PYTHON_ONLY: [&str; 4] = [
    "python_gc_objects_collected_total",
    "python_gc_objects_uncollectable_total",
    "python_gc_collections_total",
    "python_info",
];

/// What is compared of one family.
#[derive(Debug, Default, PartialEq)]
struct Family {
    kind: String,
    sample_names: BTreeSet<String>,
    label_names: BTreeSet<String>,
    /// Values of the labels that are enumerations.
    label_values: BTreeSet<String>,
    edges: Vec<String>,
}

fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            current = name.to_owned();
            families.insert(
                current.clone(),
                Family {
                    kind: kind.to_owned(),
                    ..Family::default()
                },
            );
        } else if !line.starts_with('#') {
            add_sample(families.get_mut(&current).unwrap(), line);
        }
    }
    families
}

fn add_sample(family: &mut Family, line: &str) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    value.parse::<f64>().unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    family.sample_names.insert(name.to_owned());
    let labels = labels.trim_end_matches('}');
    for pair in labels.split("\",").filter(|pair| !pair.is_empty()) {
        let (label, text) = pair.split_once("=\"").unwrap();
        let text = text.trim_end_matches('"').to_owned();
        family.label_names.insert(label.to_owned());
        match label {
            "le" if !family.edges.contains(&text) => family.edges.push(text),
            "source" | "reason" | "finished_reason" | "sleep_state" | "engine" => {
                family.label_values.insert(text);
            }
            _ => {}
        }
    }
}

fn shared_folder() -> Option<PathBuf> {
    if let Some(root) = std::env::var_os("KOI_SHARED") {
        return Some(PathBuf::from(root));
    }
    let start = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    start
        .ancestors()
        .map(|a| a.join("shared"))
        .find(|shared| shared.join("vectors").is_dir())
}

fn our_page() -> String {
    let words = [
        "serve",
        "/models/tiny",
        "--served-model-name=tiny-llama",
        "--max-model-len=512",
    ];
    let Ok(Command::Serve(settings)) = parse(&words.map(str::to_owned)) else {
        panic!("serve")
    };
    let mut http = HttpStats::default();
    http.count(&Answered {
        handler: "/v1/models",
        method: "GET",
        status: 200,
        request_bytes: 0,
        response_bytes: 9,
        seconds: 0.1,
    });
    render(&PageInput {
        settings: &settings,
        facts: &ReadyFacts {
            max_model_len: 512,
            num_gpu_blocks: 100,
            kv_cache_bytes: 1 << 30,
        },
        engine: &EngineMetrics::new(512),
        http: &http,
        created_s: 1.8e9,
    })
}

#[test]
fn the_page_has_the_families_of_the_real_engine() {
    let Some(shared) = shared_folder() else {
        println!("SKIPPED: no shared folder with the vLLM capture (set KOI_SHARED)");
        return;
    };
    let capture = shared.join("data/vllm-cpu-capture/01-after-2.metrics.txt");
    let mut theirs = families(&std::fs::read_to_string(capture).unwrap());
    theirs.retain(|name, _| !PYTHON_ONLY.contains(&name.as_str()));
    let ours = families(&our_page());
    let names = |families: &BTreeMap<String, Family>| families.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    for (name, family) in &theirs {
        assert_eq!(&ours[name], family, "{name}");
    }
    assert_eq!(ours.values().filter(|f| f.kind == "histogram").count(), 18);
}

#[test]
fn values_are_where_they_belong_and_text_is_escaped() {
    let mut page = Page::new(5.0);
    let mut histogram = koi_sim::histogram::Histogram::new(&[0.5, 1.0]);
    histogram.observe(0.4);
    histogram.observe(3.0);
    page.histogram(
        "h",
        "Help.",
        vec![(vec![("b", "x\"\\\n"), ("a", "1")], &histogram)],
    );
    let text = page.into_text();
    assert!(
        text.contains("h_bucket{a=\"1\",b=\"x\\\"\\\\\\n\",le=\"1.0\"} 1.0\n"),
        "{text}"
    );
    assert!(text.contains("le=\"+Inf\"} 2.0\n") && text.contains("h_sum{a=\"1\""));
}
