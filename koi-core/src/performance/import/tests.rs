//! Small files of every format, broken ones, and the public data where it is at hand.

use super::*;
use crate::performance::{LoadKind, Statistic};

fn given() -> Given {
    Given {
        gpu_type: Some("H100".into()),
        tp: Some(2),
        ..Given::default()
    }
}

const TIDY: &str = "\
source,date,model,gpu_type,num_gpus,tp,pp,ep,dp,engine,isl,osl,concurrency_or_rate,load_kind,out_tok_s_system,ttft_ms,ttft_stat,tpot_ms,tpot_stat,row_id,notes
a,2026,m,H100,4,4,1,,0,vllm,1024,128,16,concurrency,900,50.5,mean,9,p50,r1,\"one, two\"
a,2026,m,H100,2,4,1,,,vllm,x,128,16,concurrency,900,,,,,r2,
a,2026,m,H100,4,4,1,on,,vllm,1024,128,16,sometimes,,50,,,,r3,
a,2026,m,H100,4,4,1,,,vllm,1024,128,16,batch,900,,,,,r1,
";

#[test]
fn tidy_rows_are_kept_one_by_one() {
    let import = import(TIDY, None, &Given::default()).unwrap();
    assert_eq!(import.rows.len(), 1);
    let row = &import.rows[0];
    assert_eq!((row.tp, row.dp, row.ep), (Some(4), None, None));
    assert_eq!(row.notes, "one, two");
    assert_eq!(row.measured.tpot.unwrap().statistic, Statistic::P50);
    assert_eq!(import.n_left_out, 3);
    let fields: Vec<&str> = import.problems.iter().map(|p| p.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "line 3, isl",
            "line 4, load_kind",
            "line 4, ttft_stat",
            "row_id"
        ]
    );
}

#[test]
fn a_vllm_result_needs_what_it_does_not_say() {
    let text = r#"{"date":"20260101-101010","model_id":"org/m","num_prompts":100,"request_rate":"inf",
        "max_concurrency":32,"duration":10.0,"completed":100,"total_input_tokens":100000,
        "total_output_tokens":20000,"request_throughput":10.0,"output_throughput":2000.0,
        "mean_ttft_ms":55.0,"p99_ttft_ms":120.0,"mean_tpot_ms":11.0,"p99_tpot_ms":0.0}"#;
    let refused = import(text, None, &Given::default()).unwrap_err();
    assert_eq!(refused.len(), 2, "gpu and tp: {refused:?}");
    let import = import(text, None, &given()).unwrap();
    let row = &import.rows[0];
    assert_eq!((row.isl, row.osl), (Some(1000.0), Some(200.0)));
    let load = row.load.unwrap();
    assert_eq!((load.kind, load.value), (LoadKind::Concurrency, Some(32.0)));
    assert_eq!(row.measured.tpot_p99_ms, None, "0 means not measured");
    assert_eq!((row.n_gpus, row.engine.as_deref()), (Some(2), Some("vllm")));
}

#[test]
fn vllm_results_come_one_per_line_and_a_bad_one_costs_itself() {
    let good = r#"{"model_id":"m","num_prompts":8,"request_rate":2.0,"completed":8,"duration":4,
        "total_input_tokens":80,"total_output_tokens":80,"output_throughput":20.0}"#
        .replace('\n', "");
    let idle = good.replace("\"completed\":8", "\"completed\":0");
    let text = format!("{good}\n{idle}\n{good}x");
    let import = import(&text, Some(Format::VllmBench), &given()).unwrap();
    assert_eq!(import.rows.len(), 1);
    assert_eq!(import.rows[0].load.unwrap().kind, LoadKind::RateRps);
    let named = |part: &str| import.problems.iter().any(|p| p.field.contains(part));
    assert!(
        named("result 2, completed") && named("result 4"),
        "{:?}",
        import.problems
    );
}

fn distribution(mean: f64, p99: f64) -> String {
    format!(
        r#"{{"successful":{{"mean":{mean},"median":1,"percentiles":{{"p50":1,"p99":{p99}}}}}}}"#
    )
}

fn metrics() -> String {
    format!(
        r#"{{"prompt_token_count":{},"output_token_count":{},"output_tokens_per_second":{},
        "time_to_first_token_ms":{},"inter_token_latency_ms":{},"time_per_output_token_ms":{}}}"#,
        distribution(256.0, 256.0),
        distribution(128.0, 128.0),
        distribution(800.0, 900.0),
        distribution(40.0, 90.0),
        distribution(9.0, 12.0),
        distribution(10.0, 13.0),
    )
}

#[test]
fn both_layouts_of_guidellm_say_the_same() {
    let old = format!(
        r#"{{"benchmarks":[{{"id_":"a","args":{{"strategy":{{"type_":"concurrent","streams":8}}}},
        "worker":{{"backend_model":"org/m"}},"start_time":1760000000.5,"metrics":{}}}]}}"#,
        metrics()
    );
    let new = format!(
        r#"{{"metadata":{{"version":1}},"args":{{"model":"org/m"}},"benchmarks":[{{"id_":"a",
        "config":{{"strategy":{{"type_":"concurrent","streams":8}}}},"start_time":1760000000.5,"metrics":{}}}]}}"#,
        metrics()
    );
    let [old, new] = [old, new].map(|text| import(&text, None, &given()).unwrap().rows);
    assert_eq!(old, new);
    let row = &old[0];
    assert_eq!(row.model, "org/m");
    assert!((row.measured.tpot.unwrap().ms - 9.0).abs() < 1e-12);
    assert_eq!(row.measured.ttft_p99_ms, Some(90.0));
    assert_eq!(row.load.unwrap().value, Some(8.0));
}

#[test]
fn hostile_texts_are_refused_in_words() {
    for text in [
        "",
        "{",
        "a,b\n1,2",
        "{\"benchmarks\": 7}",
        "\u{0}\u{0}",
        "[[[[",
    ] {
        assert!(import(text, None, &given()).is_err(), "{text:?}");
    }
    let deep = format!("{{\"benchmarks\":{}", "[".repeat(100_000));
    assert!(import(&deep, None, &given()).is_err());
    let header = TIDY.lines().next().unwrap();
    let import = import(&format!("{header}\n\"unclosed"), None, &given()).unwrap();
    assert_eq!((import.rows.len(), import.n_left_out), (0, 1));
}

/// The public tables, where they are at hand.
#[test]
#[expect(clippy::disallowed_methods, reason = "data for tests")]
fn public_tables_are_read_whole() {
    let root = std::env::var_os("KOI_SHARED").map(std::path::PathBuf::from);
    let above = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|a| a.join("shared"));
    let Some(data) = root
        .into_iter()
        .chain(above)
        .map(|r| r.join("data"))
        .find(|d| d.join("perf_tidy.csv").exists())
    else {
        println!("SKIPPED: shared/data/perf_tidy.csv is not here; KOI_SHARED names its folder");
        return;
    };
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let tidy = import(&read("perf_tidy.csv"), None, &Given::default()).unwrap();
    // The others publish a throughput that cannot be turned into generated tokens per second.
    assert_eq!((tidy.rows.len(), tidy.n_left_out), (4_732, 605));
    let unmeasured = |field: &str| field.ends_with(", measured");
    let others = tidy.problems.iter().filter(|p| !unmeasured(&p.field));
    assert_eq!(others.count(), 0);
    let silicon = read("perf_aiconfigurator_silicon/silicon_sample_cut.csv");
    let silicon = import(&silicon, None, &Given::default()).unwrap();
    assert_eq!((silicon.rows.len(), silicon.n_left_out), (1_731, 0));
    assert_eq!(silicon.rows.iter().filter(|r| r.disaggregated).count(), 339);
}
