//! Tests on captured pages of V0 and V1 engines, and on hostile ones.

use super::*;
use crate::telemetry::metrics_text::{parse, parse_selected};
use crate::telemetry::series::{CounterSeries, GaugeSeries, HistogramSeries, TpotSource};
use crate::telemetry::test_data::metrics_pages;

fn page(name: &str) -> Option<EnginePage> {
    let (_, text) = metrics_pages().into_iter().find(|(n, _)| n == name)?;
    let selected = EnginePage::from_page(&parse_selected(text.as_bytes(), is_wanted));
    assert_eq!(
        selected,
        EnginePage::from_page(&parse(text.as_bytes())),
        "the allow-list loses nothing"
    );
    Some(selected)
}

fn only(page: &EnginePage, model: &str) -> EngineSample {
    let samples: Vec<_> = page.of_model(model).collect();
    assert_eq!(samples.len(), 1, "{:?}", page.engines.keys());
    samples[0].1.clone()
}

fn read(text: &str) -> EnginePage {
    EnginePage::from_page(&parse(text.as_bytes()))
}

#[test]
fn a_loaded_v1_engine_is_read_whole() {
    let Some(page) = page("13-preempt-after-load.metrics.txt") else {
        return;
    };
    assert_eq!(page.missing("tiny-llama"), BTreeSet::new());
    assert_eq!(
        (page.out_of_range, page.duplicates, page.bad_histograms),
        (0, 0, 0)
    );
    let engine = only(&page, "tiny-llama");
    assert_eq!(engine.counters[&CounterSeries::PromptTokens], 25_750);
    assert_eq!(engine.counters[&CounterSeries::PrefixCacheHits], 14_720);
    assert_eq!(engine.counters[&CounterSeries::Preemptions], 460);
    assert_eq!(engine.tpot_source, Some(TpotSource::PerRequest));
    assert_eq!(engine.cache.num_gpu_blocks, Some(48));
    assert_eq!(engine.cache.block_size_tokens, Some(32));
    let requests = engine.histograms[&HistogramSeries::TimeToFirstToken].count();
    let finished = engine.counters[&CounterSeries::FinishedLength]
        + engine.counters[&CounterSeries::FinishedStop];
    assert!(
        requests >= finished && finished > 0,
        "{requests} {finished}"
    );
    assert!(page.process_start_seconds.is_some_and(|s| s > 1.7e9));
}

#[test]
fn gauges_under_load_are_read() {
    let Some(page) = page("02-under-load.metrics.txt") else {
        return;
    };
    let engine = only(&page, "tiny-llama");
    assert!((engine.gauges[&GaugeSeries::RunningRequests] - 116.0).abs() < 1e-9);
    assert!((engine.gauges[&GaugeSeries::WaitingRequests] - 67.0).abs() < 1e-9);
    assert!((engine.gauges[&GaugeSeries::KvCacheUsage] - 0.009_827_259_964_597_435).abs() < 1e-12);
}

#[test]
fn hazard_e16_v0_names_are_aliases_and_what_is_missing_is_listed() {
    let model = "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8";
    let Some(page) = page("vllm_v0_kubeai_aug2024.prom") else {
        return;
    };
    let engine = only(&page, model);
    assert!(
        (engine.gauges[&GaugeSeries::KvCacheUsage] - 0.002_623_524_267_599_486_3).abs() < 1e-12
    );
    assert_eq!(engine.counters[&CounterSeries::GenerationTokens], 2546);
    assert_eq!(engine.tpot_source, Some(TpotSource::PerToken));
    assert_eq!(engine.cache.num_gpu_blocks, Some(4574));
    let missing = page.missing(model);
    for name in [
        "vllm:prefix_cache_hits_total",
        "vllm:iteration_tokens_total_count",
        "vllm:request_prefill_time_seconds",
    ] {
        assert!(missing.contains(name), "{name} not in {missing:?}");
    }
    assert!(
        !engine
            .counters
            .contains_key(&CounterSeries::PrefixCacheHits),
        "absent, not zero"
    );
    assert!(
        page.engines.keys().any(|k| k.model_name == "other/OTHER"),
        "a second model stays apart"
    );
}

#[test]
fn a_page_with_both_generations_prefers_v1() {
    let Some(page) = page("vllm_datadog_opt125m_mixed_v0_v1.prom") else {
        return;
    };
    let engine = only(&page, "facebook/opt-125m");
    assert_eq!(engine.counters[&CounterSeries::PrefixCacheQueries], 117);
    assert_eq!(engine.counters[&CounterSeries::PrefixCacheHits], 64);
    assert_eq!(engine.cache.num_gpu_blocks, Some(7281));
}

#[test]
fn the_proxy_for_tpot_is_named() {
    let text = "vllm:inter_token_latency_seconds_bucket{le=\"0.1\"} 1\n\
        vllm:inter_token_latency_seconds_bucket{le=\"+Inf\"} 2\n\
        vllm:inter_token_latency_seconds_sum 3\nvllm:inter_token_latency_seconds_count 2\n";
    let engine = only(&read(text), "");
    assert!(engine.tpot_source.is_some_and(TpotSource::is_proxy));
}

#[test]
fn hazard_c7_values_out_of_range_are_dropped_and_counted() {
    for bad in ["NaN", "+Inf", "-1", "1e308"] {
        let page = read(&format!(
            "vllm:prompt_tokens_total {bad}\nvllm:num_requests_running {bad}\nvllm:generation_tokens_total 4\n"
        ));
        assert_eq!(page.out_of_range, 2, "{bad}");
        let engine = only(&page, "");
        assert_eq!(
            engine.counters.keys().copied().collect::<Vec<_>>(),
            [CounterSeries::GenerationTokens]
        );
        assert!(engine.gauges.is_empty());
    }
    assert_eq!(read("vllm:kv_cache_usage_perc 1.5\n").out_of_range, 1);
}

#[test]
fn hazard_e15_duplicates_count_once_and_engines_are_capped() {
    let page = read("vllm:prompt_tokens_total 5\nvllm:prompt_tokens_total 9\n");
    assert_eq!(
        (
            page.duplicates,
            only(&page, "").counters[&CounterSeries::PromptTokens]
        ),
        (1, 5)
    );
    let many: String = (0..MAX_ENGINES + 3)
        .map(|i| format!("vllm:prompt_tokens_total{{engine=\"{i}\"}} 1\n"))
        .collect();
    let page = read(&many);
    assert_eq!((page.engines.len(), page.over_limit), (MAX_ENGINES, 3));
}

#[test]
fn histograms_that_do_not_add_up_are_absent() {
    let cases = [
        "_bucket{le=\"1\"} 2\n_bucket{le=\"+Inf\"} 1\n_sum 1\n_count 1\n",
        "_bucket{le=\"1\"} 1\n_sum 1\n_count 1\n",
        "_bucket{le=\"1\"} 1\n_bucket{le=\"+Inf\"} 1\n_sum 1\n_count 7\n",
        "_bucket{le=\"1\"} 1\n_bucket{le=\"+Inf\"} 1\n_count 1\n",
        "_bucket{le=\"1\"} NaN\n_bucket{le=\"+Inf\"} 1\n_sum 1\n_count 1\n",
    ];
    for case in cases {
        let text: String = case
            .lines()
            .map(|l| format!("vllm:time_to_first_token_seconds{l}\n"))
            .collect();
        let page = read(&text);
        assert_eq!((page.bad_histograms, page.engines.len()), (1, 0), "{case}");
    }
}

#[test]
fn a_value_cut_by_the_end_of_the_page_is_not_believed() {
    let page = read("vllm:prompt_tokens_total 5\nvllm:generation_tokens_total 12");
    let engine = only(&page, "");
    assert_eq!(
        engine.counters.keys().copied().collect::<Vec<_>>(),
        [CounterSeries::PromptTokens]
    );
}

#[test]
fn a_page_of_another_server_has_no_engines() {
    let page = read("<html>\nnode_load1 3\n");
    assert!(page.engines.is_empty());
    assert!(page.missing("m").contains("vllm:num_requests_running"));
}

#[test]
fn a_saturated_sglang_is_read_with_the_same_series() {
    let Some(page) = page("sglang_docs_llama31_8b_saturated.prom") else {
        return;
    };
    let model = "meta-llama/Llama-3.1-8B-Instruct";
    let engine = only(&page, model);
    assert_eq!(engine.counters[&CounterSeries::PromptTokens], 8_128_902);
    assert_eq!(engine.counters[&CounterSeries::GenerationTokens], 7_557_572);
    assert!((engine.gauges[&GaugeSeries::RunningRequests] - 162.0).abs() < 1e-9);
    assert!((engine.gauges[&GaugeSeries::WaitingRequests] - 2826.0).abs() < 1e-9);
    assert!((engine.gauges[&GaugeSeries::KvCacheUsage] - 0.28).abs() < 1e-9);
    assert!((engine.prefix_cache_hit_rate.unwrap() - 0.007_507_552_643_049_313).abs() < 1e-12);
    assert_eq!(engine.tpot_source, Some(TpotSource::PerToken));
    let ttft = engine.histograms[&HistogramSeries::TimeToFirstToken].quantile(0.5);
    assert_eq!(ttft, Some(30.0), "most waited longer than the last edge");
    let (key, _) = page.of_model(model).next().unwrap();
    assert_eq!(key.kind, MetricsEngine::Sglang);
    assert_eq!(Expectation::guessed(key.kind, &engine).missing(&engine), []);
}

#[test]
fn a_tgi_page_is_read_with_the_same_series() {
    let Some(page) = page("tgi_datadog.cut.prom") else {
        return;
    };
    let engine = only(&page, "");
    assert_eq!(engine.counters[&CounterSeries::FinishedOther], 109);
    let lengths = &engine.histograms[&HistogramSeries::PromptTokensPerRequest];
    assert_eq!(lengths.count(), 109);
    let prompt_tokens = engine.counters[&CounterSeries::PromptTokens] as f64;
    assert!(
        (lengths.sum() - prompt_tokens).abs() < 1e-9,
        "one series, two meanings"
    );
    assert!(engine.gauges.contains_key(&GaugeSeries::WaitingRequests));
}

#[test]
fn both_forms_of_a_ray_counter_count_once_and_replicas_stay_apart() {
    let mut text = String::new();
    for (replica, tokens) in [("r1", 5), ("r2", 7)] {
        let labels =
            format!("ReplicaId=\"{replica}\",WorkerId=\"w\",engine=\"0\",model_name=\"m\"");
        for name in ["prompt_tokens", "prompt_tokens_total"] {
            text += &format!("ray_vllm_{name}{{{labels}}} {tokens}\n");
        }
        text += &format!("ray_vllm_request_success_total{{{labels},finished_reason=\"stop\"}} 2\n");
        text += &format!("ray_vllm_request_success{{{labels},finished_reason=\"stop\"}} 2\n");
    }
    let page = read(&text);
    let found: Vec<_> = page
        .of_model("m")
        .map(|(k, s)| {
            (
                k.replica.as_str(),
                s.counters[&CounterSeries::PromptTokens],
                s.counters[&CounterSeries::FinishedStop],
            )
        })
        .collect();
    assert_eq!(found, [("r1", 5, 2), ("r2", 7, 2)]);
    assert_eq!(page.duplicates, 0);
}

#[test]
fn models_and_engines_on_one_port_stay_apart() {
    let mut text = String::new();
    for (model, engine, running) in [
        ("a", "0", 1),
        ("a", "1", 2),
        ("b", "0", 3),
        ("b", "left", 4),
    ] {
        text += &format!(
            "vllm:num_requests_running{{engine=\"{engine}\",model_name=\"{model}\"}} {running}\n"
        );
    }
    let page = read(&text);
    let found: Vec<_> = page
        .engines
        .iter()
        .map(|(k, s)| {
            (
                k.model_name.as_str(),
                k.engine,
                k.replica.as_str(),
                s.gauges[&GaugeSeries::RunningRequests] as u32,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a", 0, "", 1),
            ("a", 1, "", 2),
            ("b", 0, "", 3),
            ("b", 0, "left", 4)
        ]
    );
}

#[test]
fn counters_split_by_labels_are_added_up_and_a_bad_part_spoils_the_sum() {
    let page = read(
        "sglang:prompt_tokens_total 100\nsglang:cached_tokens_total{cache_source=\"device\"} 30\n\
         sglang:cached_tokens_total{cache_source=\"host\"} 12\nsglang:cached_tokens_total{cache_source=\"host\"} 12\n",
    );
    let engine = only(&page, "");
    assert_eq!(engine.counters[&CounterSeries::PrefixCacheHits], 42);
    assert_eq!(engine.counters[&CounterSeries::PrefixCacheQueries], 100);
    assert_eq!(page.duplicates, 1);
    let page = read(
        "tgi_queue_size 1\ntgi_request_failure{err=\"a\"} 1\ntgi_request_failure{err=\"b\"} NaN\n",
    );
    assert!(
        !only(&page, "")
            .counters
            .contains_key(&CounterSeries::FinishedError)
    );
    assert_eq!((page.out_of_range, page.problems[0].line), (1, 3));
}

#[test]
fn of_samples_at_several_times_the_newest_counts() {
    let page = read("vllm:prompt_tokens_total 9 2000\nvllm:prompt_tokens_total 5 1000\n");
    let tokens = only(&page, "").counters[&CounterSeries::PromptTokens];
    assert_eq!((tokens, page.duplicates), (9, 0));
}

#[test]
fn problems_say_line_metric_and_reason() {
    let page = read(
        "vllm:num_requests_running 1\nvllm:num_requests_running 2\nvllm:num_requests_waiting NaN\n\
         vllm:time_to_first_token_seconds_bucket{le=\"x\"} 1\nvllm:time_to_first_token_seconds_bucket 1\n\
         vllm:e2e_request_latency_seconds_bucket{le=\"1\"} 1\n",
    );
    let found: Vec<_> = page.problems.iter().map(|p| (p.line, p.problem)).collect();
    assert_eq!(
        found,
        [
            (2, ValueProblem::Duplicate),
            (4, ValueProblem::BadEdge),
            (5, ValueProblem::BadEdge),
            (3, ValueProblem::OutOfRange),
            (5, ValueProblem::Histogram(BadHistogram::EdgeOrder)),
            (6, ValueProblem::Histogram(BadHistogram::NoInfinity)),
        ]
    );
    assert_eq!(page.problems[5].metric, "vllm:e2e_request_latency_seconds");
    let many = "vllm:num_requests_running 1\n".repeat(1000);
    let page = read(&many);
    assert_eq!(
        (page.duplicates, page.problems.len()),
        (999, MAX_ENGINE_PROBLEMS)
    );
}

#[test]
fn hazard_e16_what_is_expected_depends_on_the_version() {
    let Some(page) = page("vllm_v0_kubeai_aug2024.prom") else {
        return;
    };
    let engine = only(&page, "neuralmagic/Meta-Llama-3.1-8B-Instruct-FP8");
    let missing = |version: &str| -> Vec<&'static str> {
        let version = version.parse().unwrap();
        let expected = Expectation {
            engine: MetricsEngine::Vllm,
            version,
        };
        expected.missing(&engine).iter().map(|m| m.series).collect()
    };
    assert_eq!(
        missing("0.5.4"),
        Vec::<&str>::new(),
        "complete for its time"
    );
    assert_eq!(
        missing("0.7.0"),
        [
            "decode_time_seconds",
            "iterations",
            "prefill_time_seconds",
            "queue_time_seconds"
        ]
    );
    assert!(missing("0.9.0").contains(&"prefix_cache_hits"));
    let guessed = Expectation::guessed(MetricsEngine::Vllm, &engine);
    assert_eq!(guessed.version.minor, 7, "no engine label: V0");
}

#[test]
fn changes_between_pages_name_resets_and_what_is_gone() {
    let page = |start: u32, tokens: u32, running: &str| {
        read(&format!(
            "process_start_time_seconds {start}\nvllm:prompt_tokens_total{{model_name=\"m\"}} {tokens}\n\
             vllm:num_requests_running{{model_name=\"{running}\"}} 1\n"
        ))
    };
    let counter = |change: &PageChange| {
        let (_, engine) = change.engines.iter().next().unwrap();
        engine.counters[&CounterSeries::PromptTokens]
    };
    let then = page(100, 50, "m");
    assert_eq!(
        counter(&page(100, 80, "m").since(&then)),
        CounterChange::Grew(30)
    );
    assert_eq!(
        counter(&page(100, 20, "m").since(&then)),
        CounterChange::Reset(20)
    );
    let restarted = page(200, 80, "m").since(&then);
    assert_eq!(
        (counter(&restarted), restarted.restarted),
        (CounterChange::Reset(80), true)
    );
    let gone = page(100, 80, "m").since(&page(100, 50, "other")).gone;
    assert_eq!(
        gone.iter()
            .map(|k| k.model_name.as_str())
            .collect::<Vec<_>>(),
        ["other"]
    );
}

#[test]
fn what_happened_under_load_is_the_difference_of_two_pages() {
    let (Some(then), Some(now)) = (
        page("01-after-2.metrics.txt"),
        page("03-after-load.metrics.txt"),
    ) else {
        return;
    };
    let change = now.since(&then);
    let (key, engine) = change.engines.iter().next().unwrap();
    let ttft = engine.histograms[&HistogramSeries::TimeToFirstToken]
        .as_ref()
        .unwrap();
    let all = now.engines[key].histograms[&HistogramSeries::TimeToFirstToken].count();
    assert_eq!(
        (ttft.count, change.restarted),
        (all - 2, false),
        "two requests before"
    );
}

proptest::proptest! {
    #[test]
    fn hazard_e15_no_page_of_wanted_names_makes_it_panic(
        lines in proptest::collection::vec((0usize..METRIC_NAMES.len(), 0usize..4, "[0-9+InfNa.e-]{1,5}", "[0-9+Inf.]{1,4}"), 0..120)
    ) {
        let mut text = String::new();
        for (row, suffix, value, le) in lines {
            let name = METRIC_NAMES[row].full_name();
            let suffix = ["", "_bucket", "_sum", "_count"][suffix];
            text += &format!("{name}{suffix}{{le=\"{le}\"}} {value}\n");
        }
        let page = read(&text);
        proptest::prop_assert!(page.problems.len() <= MAX_ENGINE_PROBLEMS);
        for engine in page.engines.values() {
            for histogram in engine.histograms.values() {
                let q = histogram.quantile(0.99);
                proptest::prop_assert!(q.is_none_or(f64::is_finite));
            }
        }
    }
}
