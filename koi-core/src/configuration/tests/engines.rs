//! Golden command lines by engine and version, and what a version cannot be told.

use expect_test::{Expect, expect};

use super::{draft, refusals};
use crate::catalog::{Catalog, Value};
use crate::configuration::{Configuration, ConfigurationDraft, engine_args};

fn configuration(entries: &[(&str, Value)]) -> Configuration {
    Catalog::embedded().configuration(draft(entries)).unwrap()
}

fn check(entries: &[(&str, Value)], version: &str, expected: &Expect) {
    let args = engine_args(Catalog::embedded(), &configuration(entries), version);
    let shown = match args {
        Ok(args) => args.join("\n"),
        Err(problems) => problems
            .iter()
            .map(|p| format!("{}: {}", p.field, p.message))
            .collect::<Vec<_>>()
            .join("\n"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn defaults_render_in_every_version_that_was_read() {
    let catalog = Catalog::embedded();
    for table in catalog.engines() {
        let configuration = configuration(&[("engine_name", table.engine.as_str().into())]);
        for version in table.read.iter().chain([&table.oldest]) {
            let args = engine_args(catalog, &configuration, &version.to_string());
            assert!(args.is_ok(), "{} {version}: {args:?}", table.engine);
        }
    }
}

#[test]
fn vllm_0_6() {
    check(
        &[
            ("tp", Value::Int(2)),
            ("num_scheduler_steps", Value::Int(8)),
            ("swap_space_gib", Value::Float(8.0)),
            ("log_requests", Value::Bool(false)),
            ("speculative_method", "ngram".into()),
            ("num_speculative_tokens", Value::Int(4)),
            ("ngram_prompt_lookup_max", Value::Int(3)),
            ("preemption_policy", "swap".into()),
        ],
        "0.6.3.post1",
        &expect![[r#"
            --tensor-parallel-size=2
            --pipeline-parallel-size=1
            --max-num-seqs=256
            --max-num-batched-tokens=8192
            --enable-chunked-prefill=True
            --scheduling-policy=fcfs
            --gpu-memory-utilization=0.9
            --block-size=16
            --enable-prefix-caching
            --dtype=auto
            --kv-cache-dtype=auto
            --preemption-mode=swap
            --num-scheduler-steps=8
            --disable-log-requests
            --swap-space=8
            --speculative-model=[ngram]
            --num-speculative-tokens=4
            --ngram-prompt-lookup-max=3"#]],
    );
}

#[test]
fn vllm_0_9() {
    check(
        &[
            ("ep", Value::Int(8)),
            ("tp", Value::Int(8)),
            ("max_cudagraph_capture_size", Value::Int(512)),
            ("compilation_mode", Value::Int(3)),
            ("speculative_method", "eagle3".into()),
            ("speculative_model", "org/head \"quoted\"".into()),
            ("num_speculative_tokens", Value::Int(3)),
        ],
        "0.9.2",
        &expect![[r#"
            --tensor-parallel-size=8
            --pipeline-parallel-size=1
            --enable-expert-parallel
            --max-num-seqs=256
            --max-num-batched-tokens=8192
            --enable-chunked-prefill
            --long-prefill-token-threshold=0
            --scheduling-policy=fcfs
            --gpu-memory-utilization=0.9
            --block-size=16
            --enable-prefix-caching
            --no-enforce-eager
            --no-disable-custom-all-reduce
            --dtype=auto
            --kv-cache-dtype=auto
            --compilation-config={"level":3}
            --cuda-graph-sizes=512
            --speculative-config={"method":"eagle3","model":"org/head \"quoted\"","num_speculative_tokens":3}"#]],
    );
}

#[test]
fn vllm_0_12() {
    check(
        &[
            ("tp", Value::Int(8)),
            ("ep", Value::Int(8)),
            ("eplb_enabled", Value::Bool(true)),
            ("num_redundant_experts", Value::Int(32)),
            ("all2all_backend", "deepep_low_latency".into()),
            ("cudagraph_mode", "FULL_DECODE_ONLY".into()),
            ("fuse_allreduce_rms", Value::Bool(true)),
            ("optimization_level", Value::Int(3)),
            ("async_scheduling", Value::Bool(true)),
            ("log_requests", Value::Bool(false)),
        ],
        "0.12.0",
        &expect![[r#"
            --tensor-parallel-size=8
            --pipeline-parallel-size=1
            --enable-expert-parallel
            --max-num-seqs=256
            --max-num-batched-tokens=8192
            --enable-chunked-prefill
            --long-prefill-token-threshold=0
            --scheduling-policy=fcfs
            --async-scheduling
            --gpu-memory-utilization=0.9
            --block-size=16
            --enable-prefix-caching
            --no-enforce-eager
            --no-disable-custom-all-reduce
            --dtype=auto
            --kv-cache-dtype=auto
            --enable-eplb
            --eplb-config={"num_redundant_experts":32}
            --all2all-backend=deepep_low_latency
            --no-enable-log-requests
            --optimization-level=3
            --compilation-config={"cudagraph_mode":"FULL_DECODE_ONLY","pass_config":{"fuse_allreduce_rms":true}}"#]],
    );
}

#[test]
fn vllm_0_33() {
    check(
        &[
            ("attention_backend", "flash_attn".into()),
            ("flash_attn_version", Value::Int(3)),
            ("kvcache_dtype", "fp8".into()),
            ("quantize_attention_query", Value::Bool(false)),
            ("kv_offloading_size_gib", Value::Float(64.0)),
            ("max_num_queued_reqs", Value::Int(2000)),
            ("kv_watermark_fraction", Value::Float(0.01)),
        ],
        "0.33.0",
        &expect![[r#"
            --tensor-parallel-size=1
            --pipeline-parallel-size=1
            --max-num-seqs=256
            --max-num-batched-tokens=8192
            --enable-chunked-prefill
            --long-prefill-token-threshold=0
            --scheduling-policy=fcfs
            --gpu-memory-utilization=0.9
            --block-size=16
            --enable-prefix-caching
            --no-enforce-eager
            --no-disable-custom-all-reduce
            --dtype=auto
            --kv-cache-dtype=fp8
            --max-num-queued-reqs=2000
            --watermark=0.01
            --kv-offloading-size=64
            --attention-backend=FLASH_ATTN
            --attention-config={"disable_flashinfer_q_quantization":true,"flash_attn_version":3}"#]],
    );
}

#[test]
fn sglang_0_5() {
    check(
        &[
            ("engine_name", "sglang".into()),
            ("tp", Value::Int(4)),
            ("enforce_eager", Value::Bool(true)),
            ("chunked_prefill_enable", Value::Bool(false)),
            ("prefix_cache_enabled", Value::Bool(false)),
            ("scheduling_policy", "priority".into()),
            ("kvcache_dtype", "bf16".into()),
            ("speculative_method", "eagle".into()),
            ("speculative_num_steps", Value::Int(3)),
        ],
        "0.5.10.post1",
        &expect![[r#"
            --tp-size=4
            --pp-size=1
            --ep-size=1
            --max-running-requests=256
            --chunked-prefill-size=8192
            --chunked-prefill-size=-1
            --enable-priority-scheduling
            --mem-fraction-static=0.9
            --page-size=16
            --disable-radix-cache
            --disable-cuda-graph
            --dtype=auto
            --kv-cache-dtype=bf16
            --speculative-algorithm=EAGLE
            --speculative-num-steps=3"#]],
    );
}

#[test]
fn tensorrt_llm() {
    check(
        &[
            ("engine_name", "tensorrt_llm".into()),
            ("tp", Value::Int(2)),
        ],
        "1.0.0rc3",
        &expect![[r#"
            --tp_size=2
            --pp_size=1
            --ep_size=1
            --max_batch_size=256
            --max_num_tokens=8192
            --kv_cache_free_gpu_memory_fraction=0.9"#]],
    );
}

#[test]
fn what_a_version_cannot_be_told_is_refused() {
    check(
        &[
            ("kvcache_dtype", "bf16".into()),
            ("async_scheduling", Value::Bool(true)),
            ("block_size", Value::Int(128)),
            ("scheduling_policy", "priority".into()),
        ],
        "0.6.0",
        &expect![[r#"
            async_scheduling: has no flag in version 0.6.0
            scheduling_policy: priority cannot be had: it is always fcfs in version 0.6.0
            block_size: 128 is not offered in version 0.6.0
            kvcache_dtype: bf16 has no spelling in version 0.6.0"#]],
    );
    check(
        &[
            ("num_scheduler_steps", Value::Int(4)),
            ("preemption_policy", "swap".into()),
        ],
        "0.32.0",
        &expect![[r#"
            num_scheduler_steps: has no flag in version 0.32.0
            preemption_policy: swap cannot be had: it is always recompute in version 0.32.0"#]],
    );
    check(
        &[("engine_name", "sglang".into())],
        "0.6.0",
        &expect![
            "engine_version: 0.6.0 is outside the versions that the flag table describes: 0.4.6 and later, before 0.5.13"
        ],
    );
}

#[test]
fn what_an_engine_does_not_know_is_refused() {
    expect![[r#"
        hicache_ratio: does not apply: it needs hierarchical_cache_enabled == true, and hierarchical_cache_enabled is false
        swap_space_gib: does not apply: engine_name is sglang, which has no such setting
    "#]].assert_eq(&refusals(&[
        ("engine_name", "sglang".into()),
        ("swap_space_gib", Value::Float(4.0)),
        ("hicache_ratio", Value::Float(2.0)),
    ]));
}

#[test]
fn deferred_variables_say_why() {
    expect![[r#"
        dp: cannot be set (deferred): the width is the replica count of the ladder, so one engine holds one copy
        pd_enabled: cannot be set (deferred): the paper defers prefill and decode in engines of their own
    "#]].assert_eq(&refusals(&[
        ("dp", Value::Int(2)),
        ("pd_enabled", Value::Bool(true)),
        ("router_policy", "round_robin".into()),
    ]));
    let old: ConfigurationDraft = draft(&[("dp", Value::Int(1))]);
    assert_eq!(
        Catalog::embedded().configuration(old).unwrap(),
        configuration(&[]),
        "a row stored while the variable was filled in"
    );
}

#[test]
fn conditions_name_what_they_need() {
    expect![[r#"
        dcp: does not apply: it needs tp >= 2, and tp is 1
        hicache_ratio: does not apply: it needs hierarchical_cache_enabled == true, and hierarchical_cache_enabled is false
        num_speculative_tokens: does not apply: it needs speculative_method is set, and speculative_method is not set
    "#]].assert_eq(&refusals(&[
        ("num_speculative_tokens", Value::Int(4)),
        ("dcp", Value::Int(2)),
        ("hicache_ratio", Value::Float(4.0)),
    ]));
}

#[test]
fn conditions_on_context_wait_for_it() {
    let catalog = Catalog::embedded();
    let moe = configuration(&[("moe_backend", "triton".into())]);
    let at = |is_moe: Option<bool>| {
        catalog.inapplicable(&moe, &|name| {
            is_moe.filter(|_| name == "is_moe").map(Value::Bool)
        })
    };
    assert!(at(None).is_empty(), "unknown is not false");
    assert!(at(Some(true)).is_empty());
    let problems = at(Some(false));
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].field, "moe_backend");
}

#[test]
fn what_is_left_to_the_engine_has_its_default() {
    let catalog = Catalog::embedded();
    let plain = configuration(&[]);
    assert_eq!(plain.get("mamba_cache_dtype"), None);
    assert_eq!(
        catalog.effective(&plain, "mamba_cache_dtype"),
        Some(&"auto".into())
    );
    assert_eq!(catalog.effective(&plain, "kv_cache_memory_bytes"), None);
    let set = configuration(&[("max_num_seqs", Value::Int(7))]);
    assert_eq!(catalog.effective(&set, "max_num_seq"), Some(&Value::Int(7)));
}
