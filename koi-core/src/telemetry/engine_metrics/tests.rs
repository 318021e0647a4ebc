//! Tests on captured pages of V0 and V1 engines, and on hostile ones.

use super::*;
use crate::telemetry::metrics_text::{parse, parse_selected};
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
