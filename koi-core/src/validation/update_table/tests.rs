//! Tests of the belief update tables against the vectors.

use serde::Deserialize;

use super::*;
use crate::causal::Belief;
use crate::score::vectors;

#[derive(Deserialize)]
struct In {
    alpha: f64,
    beta: f64,
    events: Vec<(String, Option<Icp>, u8)>,
}

#[derive(Deserialize)]
struct Out {
    alpha: f64,
    beta: f64,
}

#[test]
fn vector_beta_updates() {
    let table = UpdateTable::embedded().unwrap();
    for case in vectors::load::<In, Out>("beta_updates", "replay_") {
        let mut belief = Belief {
            alpha_micro: micro(case.input.alpha),
            beta_micro: micro(case.input.beta),
        };
        for (kind, icp, quadrant) in &case.input.events {
            let quadrant = Quadrant::ALL[usize::from(*quadrant) - 1];
            let delta = match (kind.as_str(), icp) {
                ("edge", Some(icp)) => table.edge(*icp, quadrant),
                ("mechanism", None) => table.mechanism(quadrant),
                other => panic!("{}: unknown event {other:?}", case.name),
            };
            belief = belief.plus(delta.alpha_micro, delta.beta_micro);
        }
        assert_eq!(
            belief.alpha_micro,
            micro(case.output.alpha),
            "{}",
            case.name
        );
        assert_eq!(belief.beta_micro, micro(case.output.beta), "{}", case.name);
    }
}

#[test]
fn every_bad_delta_is_reported() {
    let text = EMBEDDED.replace("Q4 = [0.0, 1.5]", "Q4 = [-1.0, nan]");
    let fields: Vec<String> = UpdateTable::parse(&text)
        .unwrap_err()
        .into_iter()
        .map(|v| v.field)
        .collect();
    assert_eq!(fields, ["edge.reject.Q4", "mechanism.Q4"]);
    assert!(UpdateTable::parse("[mechanism]\nQ5 = [0, 0]").is_err());
}
