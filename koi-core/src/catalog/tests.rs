//! Registry-wide checks of the embedded catalog, and one broken catalog per load check.

mod bounds;
mod effects;

use super::*;

fn embedded_with(
    path: &str,
    change: impl FnOnce(&mut String),
) -> Result<Catalog, Vec<FieldViolation>> {
    let embedded = CatalogText::embedded();
    let mut text = embedded
        .file(path)
        .unwrap_or_else(|| panic!("{path}"))
        .to_owned();
    change(&mut text);
    Catalog::load(&embedded.with(path, &text))
}

#[test]
fn the_embedded_catalog_loads() {
    let catalog =
        Catalog::load(&CatalogText::embedded()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    assert!(catalog.features().count() >= 140);
    assert_eq!(catalog.hash().len(), 16);
    assert_eq!(catalog.hash(), Catalog::embedded().hash());
}

#[test]
fn names_and_aliases_resolve() {
    let catalog = Catalog::embedded();
    for (name, kind, id) in [
        ("tensor_parallel_size", VariableKind::Feature, "tp"),
        ("max_num_seq", VariableKind::Feature, "max_num_seqs"),
        (
            "gpu_mem_util",
            VariableKind::Feature,
            "gpu_memory_utilization",
        ),
        ("pd_inbalance", VariableKind::Mediator, "pd_imbalance"),
        (
            "throughput_token_per_sec",
            VariableKind::Outcome,
            "throughput_tokens_per_sec",
        ),
        (
            "total_token_budget",
            VariableKind::Feature,
            "total_token_budget",
        ),
    ] {
        assert_eq!(catalog.kind_of(name), Some(kind), "{name}");
        assert_eq!(catalog.canonical(name), Some(id), "{name}");
    }
    assert_eq!(catalog.kind_of("nonsense"), None);
    assert_eq!(
        catalog.mediator_named("pd_inbalance"),
        Some(Mediator::PdImbalance)
    );
    assert_eq!(catalog.nearest_name("kv_cache_utl"), Some("kv_cache_util"));
}

#[test]
fn every_member_has_its_own_row() {
    let catalog = Catalog::embedded();
    for mediator in Mediator::ALL {
        assert_eq!(catalog.mediator(mediator).id, mediator.name());
    }
    for outcome in Outcome::ALL {
        assert_eq!(catalog.outcome(outcome).id, outcome.name());
    }
}

#[test]
fn drivers_names_find_the_gpu_type() {
    let catalog = Catalog::embedded();
    for (name, id) in [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("nvidia a100-sxm4-80gb", "A100"),
        ("NVIDIA L40S", "L40S"),
        ("a10g", "A10G"),
        ("CPU", "CPU"),
        ("NVIDIA B200", "B200"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "H100-MIG-1g.10gb"),
    ] {
        assert_eq!(
            catalog.gpu_type(name).map(|g| g.id.as_str()),
            Some(id),
            "{name}"
        );
    }
    assert!(
        catalog.gpu_type("NVIDIA H100").is_none(),
        "a guess is not a match"
    );
}

#[test]
fn peaks_are_dense() {
    // 1979 and 733 are figures with sparsity in 16 bits.
    let catalog = Catalog::embedded();
    assert!(catalog.gpu_type("H100").unwrap().peak_flops.bf16 < 1.0e15);
    assert!(catalog.gpu_type("L40S").unwrap().peak_flops.bf16 < 0.4e15);
}

/// One broken catalog and the words that its refusal must contain.
fn check_refused(path: &str, words: &[&str], from: &str, to: &str) {
    let problems = embedded_with(path, |text| {
        assert!(text.contains(from), "{from} in {path}");
        *text = text.replacen(from, to, 1);
    })
    .err()
    .unwrap_or_else(|| panic!("{path} with {to:?} was accepted"));
    let text = shown(&problems);
    for word in words {
        assert!(text.contains(word), "{word} in {text}");
    }
}

fn shown(problems: &[FieldViolation]) -> String {
    problems
        .iter()
        .map(|p| format!("{}: {}\n", p.field, p.message))
        .collect()
}

#[test]
fn broken_rows_are_refused() {
    let batching = "features/batching.toml";
    check_refused(
        batching,
        &["kv_cache_util", "twice"],
        "aliases = [\"max_num_seq\"]",
        "aliases = [\"kv_cache_util\"]",
    );
    check_refused(
        batching,
        &[
            "features/batching.toml.max_num_seqs.default",
            "from 1 to 4096",
        ],
        "default = 256",
        "default = 0",
    );
    check_refused(
        batching,
        &["max_num_seqs.unit", "furlongs"],
        "unit = \"sequences\"",
        "unit = \"furlongs\"",
    );
    check_refused(
        batching,
        &[batching, "unknown field"],
        "\noptional = true",
        "\noptionl = true",
    );
    check_refused(
        "features/deferred.toml",
        &["no_flag", "a deferred row says why"],
        "no_flag = \"requests are routed by the gateway that reads the endpoints, not by the engine\"\n",
        "",
    );
    check_refused(
        "features/speculation.toml",
        &["num_speculative_tokens.applies", "not the id of an X row"],
        "feature = \"speculative_method\"",
        "feature = \"spec_method\"",
    );
    check_refused(
        "mediators.toml",
        &["queue_depth", "has no row", "queue_deepness"],
        "id = \"queue_depth\"",
        "id = \"queue_deepness\"",
    );
    check_refused(
        "outcomes.toml",
        &["slo_margin.maximise"],
        "id = \"slo_margin\"\nunit = \"fraction\"\nmaximise = true",
        "id = \"slo_margin\"\nunit = \"fraction\"\nmaximise = false",
    );
}

#[test]
fn broken_flags_are_refused() {
    let vllm = "engines/vllm.toml";
    check_refused(
        vllm,
        &["gpu_type", "not planner-set"],
        "feature = \"tp\"",
        "feature = \"gpu_type\"",
    );
    check_refused(
        vllm,
        &["vllm.toml.tpp", "not the id"],
        "feature = \"tp\"",
        "feature = \"tpp\"",
    );
    check_refused(
        vllm,
        &["arguments start with --"],
        "\"--tensor-parallel-size\"",
        "\"-tp\"",
    );
    check_refused(
        vllm,
        &["until must be after since"],
        "until = \"0.8.0\"",
        "until = \"0.5.0\"",
    );
    check_refused(
        vllm,
        &["vllm.toml.ep", "two rows write it"],
        "until = \"0.8.0\"",
        "until = \"0.8.1\"",
    );
    check_refused(
        vllm,
        &["scheduling_policy", "lifo is not legal"],
        "implied = \"fcfs\"",
        "implied = \"lifo\"",
    );
    check_refused(
        vllm,
        &["does not fit the domain"],
        "above_one = \"--enable-expert-parallel\"",
        "when_true = \"--enable-expert-parallel\"",
    );
    let only_vllm = "speculative_eagle_topk";
    let problems =
        Catalog::load(&CatalogText::embedded().without("engines/sglang.toml")).unwrap_err();
    assert!(shown(&problems).contains(&format!("{only_vllm}.no_flag")));
    let problems = Catalog::load(&CatalogText::embedded().without(vllm)).unwrap_err();
    assert!(shown(&problems).contains("flag table of vllm"));
}

#[test]
fn broken_hardware_is_refused() {
    let nvidia = "hardware/nvidia.toml";
    check_refused(
        nvidia,
        &["A10G.fit.link_fraction"],
        "link_fraction = 0.45",
        "link_fraction = nan",
    );
    check_refused(
        nvidia,
        &["T4.peak_flops", "needs bf16 or fp16"],
        "{ fp16 = 65.0e12, fp32",
        "{ fp32",
    );
    check_refused(
        nvidia,
        &["T4", "kepler", "not an architecture"],
        "\"turing\"",
        "\"kepler\"",
    );
    check_refused(nvidia, &["V100.scale_up"], "scale_up_gpus = 8\n", "");
    check_refused(
        nvidia,
        &["Tesla T4", "twice"],
        "\"NVIDIA T4\"",
        "\"Tesla T4\"",
    );
    check_refused(
        "instances/aws.toml",
        &["g5.12xlarge", "\"A11\" is not a GPU type"],
        "id = \"g5.12xlarge\"\ncloud = \"aws\"\ngpu_type = \"A10G\"",
        "id = \"g5.12xlarge\"\ncloud = \"aws\"\ngpu_type = \"A11\"",
    );
    check_refused(
        "hardware/nvidia_mig.toml",
        &["A100-MIG-1g.10gb", "A99"],
        "mig_of = \"A100\"",
        "mig_of = \"A99\"",
    );
}

#[test]
fn broken_metrics_are_refused() {
    let at = "metrics/vllm.toml";
    check_refused(
        at,
        &["running_requests.doc"],
        "Sequences in the running batch.",
        "sequences",
    );
    check_refused(
        at,
        &["until must be after since"],
        "until = \"0.12.0\"",
        "since = \"0.13.0\", until = \"0.12.0\"",
    );
}

#[test]
fn problems_of_several_files_come_back_together() {
    let text = CatalogText::embedded()
        .with("hardware/nvidia.toml", "[[gpu")
        .with("mediators.toml", "= 3")
        .with("notes.toml", "");
    let problems = shown(&Catalog::load(&text).unwrap_err());
    for file in ["hardware/nvidia.toml", "mediators.toml", "notes.toml"] {
        assert!(problems.contains(file), "{file} in {problems}");
    }
}

#[test]
fn the_hash_changes_with_the_content() {
    let other = embedded_with("features/memory.toml", |t| t.push_str("\n# a comment\n")).unwrap();
    assert_ne!(other.hash(), Catalog::embedded().hash());
}

#[test]
fn versions_compare_as_numbers() {
    let version = |text: &str| text.parse::<EngineVersion>().unwrap();
    assert!(version("0.9.2") < version("0.32.0"));
    assert_eq!(version("0.32.0+cpu"), version("0.32"));
    assert_eq!(version("0.6.3.post1"), version("0.6.3"));
    assert_eq!(version("0.6.3.post2.dev308"), version("0.6.3"));
    assert_eq!(version("1.0.0rc3"), version("1.0.0"));
    for bad in [
        "", "v0.32", "0", "0.32.0.1", "0.x.1", "-1.0", "0.1.rc", "post1", "nightly",
    ] {
        assert!(bad.parse::<EngineVersion>().is_err(), "{bad}");
    }
}

#[test]
fn conditions_compare_numbers_and_names() {
    let holds = |op, left: Value, right: Value| {
        Condition {
            feature: "tp".to_owned(),
            op,
            value: right,
        }
        .holds(&left)
    };
    assert!(holds(Operator::AtLeast, Value::Int(4), Value::Float(2.0)));
    assert!(holds(Operator::Equal, Value::Int(1), Value::Float(1.0)));
    assert!(holds(Operator::NotEqual, "a".into(), "b".into()));
    assert!(!holds(Operator::AtMost, "a".into(), "b".into()));
    assert!(!holds(
        Operator::AtLeast,
        Value::Float(f64::NAN),
        Value::Int(1)
    ));
}

#[test]
fn the_whole_catalog_is_one_graph() {
    let (_, model) = check_all(&CatalogText::embedded()).unwrap_or_else(|p| panic!("{p:#?}"));
    let moved = |row: &&Feature| {
        model.edges().any(
            |e| matches!(&e.ends, crate::causal::EdgeEnds::FeatureToMediator(f, _) if *f == row.id),
        )
    };
    assert!(Catalog::embedded().knobs().filter(moved).count() >= 100);
}

#[test]
fn a_graph_with_a_dead_end_is_refused() {
    let embedded = CatalogText::embedded();
    let edges = embedded.file("edges.toml").unwrap();
    let without = |from: &str, to: &str| {
        let head = format!("[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\n");
        let at = edges.find(&head).unwrap();
        let end = edges[at..].find("\n\n").map_or(edges.len(), |n| at + n);
        format!("{}{}", &edges[..at], &edges[end..])
    };
    let refused = |text: &str| {
        shown(&check_all(&CatalogText::embedded().with("edges.toml", text)).unwrap_err())
    };
    let dead = refused(&without("kv_cache_util", "p99_ttft_ms"));
    assert!(dead.contains("has edges in and none out"), "{dead}");
    let orphan = refused(&without("osl_token_avg", "output_length_observed"));
    assert!(orphan.contains("has edges out and none in"), "{orphan}");
    let unknown = refused(&edges.replacen("from = \"tp\"", "from = \"ttp\"", 1));
    assert!(unknown.contains("ttp"), "{unknown}");
    let deferred =
        "from = \"dp\"\nto = \"queue_depth\"\nsign = \"-\"\nprior = \"EVEN\"\ndoc = \"Why.\"";
    let deferred = refused(&format!("{edges}\n[[edge]]\n{deferred}\n"));
    assert!(deferred.contains("not active"), "{deferred}");
    for text in ["garbage", "edge = 1", ""] {
        let bad = CatalogText::embedded().with("beta_updates.toml", text);
        let found = shown(&check_all(&bad).unwrap_err());
        assert!(found.contains("beta_updates.toml"), "{found}");
    }
    let missing = check_all(&CatalogText::embedded().without("beta_updates.toml")).unwrap_err();
    assert!(shown(&missing).contains("beta_updates.toml"));
    assert!(shown(&missing).contains("is missing"));
    let missing = check_all(&CatalogText::embedded().without("edges.toml")).unwrap_err();
    assert!(shown(&missing).contains("edges.toml"));
    let without_mechanisms = CatalogText::embedded()
        .files()
        .filter(|(path, _)| !path.starts_with("mechanisms/"))
        .collect::<Vec<_>>();
    let missing = check_all(&CatalogText::new(without_mechanisms)).unwrap_err();
    assert!(shown(&missing).contains("mechanisms/"));
}

#[test]
fn gpu_types_of_the_measurements_resolve() {
    let catalog = Catalog::embedded();
    for (name, id) in [
        ("H100-SXM-80GB", "H100"),
        ("H100-80GB", "H100"),
        ("H100-SXM-64GB", "H100-SXM-64GB"),
        ("H100-PCIe-80GB", "H100-PCIe"),
        ("H200-SXM-141GB", "H200"),
        ("B200-SXM-180GB", "B200"),
        ("GB200", "GB200"),
        ("MI300X-192GB", "MI300X"),
        ("MI250-128GB", "MI250"),
        ("A100-40GB", "A100-40GB"),
        ("A100-SXM-80GB", "A100"),
        ("L40S-48GB", "L40S"),
        ("Gaudi2-96GB", "Gaudi2"),
        ("Intel-Max1550-128GB", "Max-1550"),
        ("RTX-4090-24GB", "RTX-4090"),
        ("Jetson-AGX-Orin", "Jetson-AGX-Orin"),
        (
            "[MAXSUN] MS-Intel Arc Pro B60 Dual 48G Turbo",
            "Arc-Pro-B60",
        ),
    ] {
        assert_eq!(
            catalog.gpu_type(name).map(|g| g.id.as_str()),
            Some(id),
            "{name}"
        );
    }
    assert!(catalog.gpu_types().count() >= 45);
}

#[test]
fn hardware_is_consistent() {
    let catalog = Catalog::embedded();
    for gpu in catalog.gpu_types() {
        let peaks = gpu.peak_flops;
        assert!(
            peaks.bf16 >= peaks.fp32,
            "{}: matrix units beat vector units",
            gpu.id
        );
        assert!(peaks.fp8.is_none_or(|p| p > 1.9 * peaks.bf16), "{}", gpu.id);
        assert!(gpu.power_idle_w < 0.5 * gpu.power_limit_w, "{}", gpu.id);
        assert!(!gpu.source.is_empty());
        if let Some(slice) = &gpu.mig {
            let whole = catalog.gpu_type(&slice.of).unwrap();
            assert!(gpu.memory_bytes < whole.memory_bytes, "{}", gpu.id);
            assert!((gpu.peak_flops.bf16 / whole.peak_flops.bf16 - slice.share).abs() < 1e-3);
            assert_eq!(gpu.best_link().0, Link::Pcie, "{} has no fabric", gpu.id);
        }
    }
    let t4 = catalog.gpu_type("T4").unwrap();
    assert!(!t4.peak_flops.has_bf16 && t4.peak_flops.fp8.is_none());
    assert!((t4.peak_flops.bf16 - 65e12).abs() < 1.0, "half stands in");
    let fitted: Vec<&str> = catalog
        .gpu_types()
        .filter(|g| g.is_fitted)
        .map(|g| g.id.as_str())
        .collect();
    assert_eq!(fitted, ["A100", "A10G", "CPU", "H100", "L40S"]);
}

#[test]
fn metric_names_of_old_and_new_engines_meet() {
    let metrics = Catalog::embedded().metrics();
    for (name, series) in [
        ("vllm:kv_cache_usage_perc", "kv_cache_usage_fraction"),
        ("vllm:gpu_cache_usage_perc", "kv_cache_usage_fraction"),
        ("vllm:prefix_cache_hits_total", "prefix_cache_hits"),
        ("vllm:gpu_prefix_cache_hits_total", "prefix_cache_hits"),
        ("vllm:iteration_tokens_total_count", "iteration_tokens"),
        ("vllm:iteration_tokens_total", "iteration_tokens"),
        (
            "vllm:time_to_first_token_seconds_bucket",
            "time_to_first_token_seconds",
        ),
        ("ray_vllm_num_requests_running", "running_requests"),
        ("ray_vllm:num_requests_running", "running_requests"),
        ("ray_vllm_prompt_tokens", "prompt_tokens"),
        ("ray_vllm_prompt_tokens_total", "prompt_tokens"),
        ("sglang:token_usage", "kv_cache_usage_fraction"),
        ("sglang:num_queue_reqs", "waiting_requests"),
    ] {
        assert_eq!(
            metrics.canonical(name).map(|c| c.row.series.as_str()),
            Some(series),
            "{name}"
        );
    }
    for name in [
        "",
        "vllm:",
        "vllm:num_requests_running_bucket",
        "tgi_queue_size",
        "vllm:prompt_tokens_created",
    ] {
        assert_eq!(metrics.canonical(name), None, "{name}");
    }
    assert_eq!(metrics.canonical(&"x".repeat(10_000)), None);
    let tpot = metrics
        .canonical("vllm:inter_token_latency_seconds_sum")
        .unwrap();
    assert!(tpot.name.is_proxy && tpot.preference == 2);
    let usage = |v: &str| {
        metrics
            .names_in("sim", "kv_cache_usage_fraction", v.parse().unwrap())
            .join(" ")
    };
    assert_eq!(usage("0.6.0"), "vllm:gpu_cache_usage_perc");
    assert_eq!(
        usage("0.10.0"),
        "vllm:kv_cache_usage_perc vllm:gpu_cache_usage_perc"
    );
    assert_eq!(usage("0.32.0"), "vllm:kv_cache_usage_perc");
}

#[test]
fn differences_name_row_and_field() {
    let base = Catalog::embedded();
    assert_eq!(differences(base, base), []);
    let other = embedded_with("features/batching.toml", |t| {
        *t = t.replacen("default = 256", "default = 128", 1);
    })
    .unwrap();
    let found = differences(base, &other);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].table, &*found[0].row, found[0].field.as_deref()),
        ("features", "max_num_seqs", Some("default"))
    );
    let fewer = Catalog::load(&CatalogText::embedded().without("instances/local.toml")).unwrap();
    let found = differences(base, &fewer);
    assert_eq!(
        found.iter().map(|d| (d.kind, &*d.row)).collect::<Vec<_>>(),
        [(DifferenceKind::Removed, "cpu")]
    );
}

/// `docs/catalog.md` is made from the rows; `UPDATE_EXPECT=1` renews it.
#[test]
fn the_page_is_up_to_date() {
    let (catalog, model) = check_all(&CatalogText::embedded()).unwrap();
    expect_test::expect_file!["../../../docs/catalog.md"].assert_eq(&document(&catalog, &model));
}
