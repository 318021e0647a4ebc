//! Every row has its line; nothing measured leaks into it; what a row says is heard.

use super::*;

const TABLE: &str = "\
row_id,model,gpu_type,num_gpus,tp,pp,engine,isl,osl,load_kind,concurrency_or_rate,out_tok_s_system
a,llama-3.1-8b,H100,1,1,1,vllm,1000,200,concurrency,16,123456
b,llama-3.1-405b,L40S,1,1,1,vllm,1000,200,batch,16,
c,no-such-model,H100,1,1,1,vllm,1000,200,batch,16,
d,llama-3.1-8b,H100,1,1,1,vllm,nan,200,batch,16,
";

fn predicted(table: &str) -> Vec<(String, Line)> {
    predicted_near(table, &MeasuredPoints::default())
}

fn predicted_near(table: &str, points: &MeasuredPoints) -> Vec<(String, Line)> {
    let mut models = ModelBook::open(None).unwrap();
    let rows = asked_rows(table).unwrap();
    rows.into_iter()
        .map(|row| {
            let id = row.row_id.clone();
            (id, line(&mut models, row, Some(2.0), points))
        })
        .collect()
}

fn written(lines: &[(String, Line)]) -> String {
    let mut bytes = Vec::new();
    write(&mut bytes, lines).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn every_row_has_its_line_and_status() {
    let lines = predicted(TABLE);
    let statuses: Vec<&str> = lines.iter().map(|(_, l)| l.status()).collect();
    assert_eq!(statuses, ["ok", "does_not_fit", "unsupported", "invalid"]);
    let text = written(&lines);
    assert_eq!(text.lines().count(), 5);
    let columns = text.lines().next().unwrap().split(',').count();
    assert_eq!(columns, 3 + 15 + 1);
}

#[test]
fn nothing_that_a_row_says_is_left_aside() {
    let header = "row_id,model,gpu_type,num_gpus,tp,pp,ep,dp,engine,engine_version,kv_dtype,isl,osl,load_kind,concurrency_or_rate\n";
    let good = "r,llama-3.1-8b,H100,1,1,1,,,vllm,0.9.0,,1000,200,concurrency,16";
    let cases = [
        (",1,1,1,,,", ",0,1,1,,,", "num_gpus"),
        (",1,1,1,,,", ",1,0,1,,,", "tp"),
        (",1,1,1,,,", ",1,1,1,,0,", "dp"),
        (",1,1,1,,,", ",1,1,1,,1000000,", "tp · pp · dp"),
        (",1,1,1,,,", ",,1,1,,1000000,", "tp · pp · dp"),
        (",1,1,1,,,", ",1,1,1,7,,", "ep"),
        ("0.9.0", "banana", "engine_version"),
        ("0.9.0,,", "0.9.0,int1,", "kv_dtype"),
        ("1000,200", "-1,200", "isl"),
        ("1000,200", "1000,0", "osl"),
    ];
    assert_eq!(predicted(&format!("{header}{good}"))[0].1.status(), "ok");
    for (from, to, word) in cases {
        let lines = predicted(&format!("{header}{}", good.replace(from, to)));
        let (status, reason) = (lines[0].1.status(), lines[0].1.reason());
        assert!(
            ["invalid", "unsupported"].contains(&status),
            "{to}: {status}"
        );
        assert!(reason.contains(word), "{to}: {reason}");
    }
    for fine in [
        "nightly-2026-02",
        "gpt-oss-dev",
        "1.x (docs)",
        "0.5.1-rc0.pre1",
        "",
    ] {
        let lines = predicted(&format!("{header}{}", good.replace("0.9.0", fine)));
        assert_eq!(lines[0].1.status(), "ok", "{fine}");
    }
}

#[test]
fn row_ids_that_repeat_are_remarked() {
    assert_eq!(repeated_ids(["a", "b", "c"].into_iter()), None);
    let remark = repeated_ids(["a", "b", "a", "c", "b", "a"].into_iter()).unwrap();
    assert!(
        remark.contains("2 stand") && remark.contains("\"a\" in 3"),
        "{remark}"
    );
}

#[test]
fn a_measured_value_cannot_leak() {
    let other = TABLE.replace("123456", "9");
    assert_eq!(written(&predicted(TABLE)), written(&predicted(&other)));
}

#[test]
fn measured_points_speak_for_others_and_never_for_themselves() {
    let table = |id: &str, tokens: &str| {
        let header = TABLE.lines().next().unwrap();
        format!(
            "source,{header}\nx,{id},llama-3.1-8b,H100,1,1,1,vllm,1000,200,concurrency,16,{tokens}\n"
        )
    };
    let points = |text: &str| {
        let mut models = ModelBook::open(None).unwrap();
        super::super::perf::read(&mut models, text).unwrap().points
    };
    let (slow, fast) = (points(&table("a", "500")), points(&table("a", "5000")));
    assert_eq!((slow.len(), fast.len()), (1, 1));
    let throughput = |id: &str, points: &MeasuredPoints| {
        let lines = predicted_near(&table(id, ""), points);
        lines[0].1.values()[0].unwrap().mixed
    };
    let (low, high) = (throughput("b", &slow), throughput("b", &fast));
    assert!(low.value < high.value, "{low:?} {high:?}");
    assert!(low.coverage > 0.5);
    let (own, other) = (throughput("a", &slow), throughput("a", &fast));
    assert_eq!(own, other, "no measured value reaches its own row");
}

#[test]
fn below_capacity_what_comes_in_goes_out() {
    let table = TABLE.replace("200,concurrency,16", "200,rate_rps,0.5");
    let lines = predicted(&table);
    let throughput = lines[0].1.values()[0].unwrap();
    assert!(
        (throughput.mixed.value - 100.0).abs() < 1e-6,
        "{throughput:?}"
    );
    assert!(throughput.hi80 < 101.0);
}

#[test]
fn values_lie_inside_their_intervals() {
    let lines = predicted(TABLE);
    for stacked in lines[0].1.values() {
        let s = stacked.unwrap();
        assert!(s.lo80 <= s.mixed.value && s.mixed.value <= s.hi80, "{s:?}");
    }
    assert!(lines[0].1.usd_per_million().unwrap() > 0.0);
}
