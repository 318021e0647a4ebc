//! Settings by name: what they move, and all refusals at once.

use clap::Parser as _;

use super::super::models::ModelBook;
use super::super::{One, one, text};
use crate::args::{Cli, Command};

fn run(words: &str) -> anyhow::Result<One> {
    let words = format!("koi predict {words}");
    let Command::Predict(args) = Cli::try_parse_from(words.split_whitespace())?.command else {
        panic!("not a prediction");
    };
    let mut models = ModelBook::open(None)?;
    one(&mut models, &args)
}

const PLAIN: &str = "llama-3.1-8b --gpu H100 --concurrency 32";

#[test]
fn settings_move_mediators_and_say_through_what() {
    let plain = run(PLAIN).unwrap();
    assert!(plain.settings.is_none());
    let with = run(&format!(
        "{PLAIN} --set cpu_offload_gb=4 --set enforce_eager=true --set log_requests=true"
    ))
    .unwrap();
    let report = with.settings.as_ref().unwrap();
    let moved: Vec<&str> = report.moved.iter().map(|m| m.mediator.name()).collect();
    for name in [
        "decode_steps_per_sec",
        "pcie_bytes_per_sec",
        "dispatch_overhead_ms",
    ] {
        assert!(moved.contains(&name), "{name} in {moved:?}");
    }
    let shown = text::one(&with);
    assert!(shown.contains("offload_bytes (mechanism)"), "{shown}");
    assert!(shown.contains("not followed"), "{shown}");
    assert!(with.prediction.tpot_mean_ms > plain.prediction.tpot_mean_ms);
}

#[test]
fn refusals_come_all_at_once() {
    let error = run(&format!(
        "{PLAIN} --set tp=2 --set nonsense --set max_num_sequences=3 --set enforce_eager=maybe \
         --set moe_backend=triton --set eplb_enabled=true"
    ))
    .unwrap_err();
    let failure = error.downcast_ref::<crate::failure::Failure>().unwrap();
    let all: String = failure
        .violations
        .iter()
        .map(|p| format!("{}: {}\n", p.field, p.message))
        .collect();
    for part in [
        "tp: has an option of its own: --tp",
        "\"nonsense\" is not NAME=VALUE",
        "did you mean max_num_seqs",
        "enforce_eager: maybe is not legal",
        "eplb_enabled: does not apply: it needs ep >= 2",
    ] {
        assert!(all.contains(part), "{part} in\n{all}");
    }
    let dense = run(&format!("{PLAIN} --set moe_backend=triton")).unwrap_err();
    let failure = dense.downcast_ref::<crate::failure::Failure>().unwrap();
    assert!(
        failure.violations[0].message.contains("is_moe"),
        "{failure:?}"
    );
}
