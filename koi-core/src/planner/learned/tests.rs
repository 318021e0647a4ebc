//! What others measured reaches a plan, its promise and its reasons.

use crate::catalog::Catalog;
use crate::ladder::Promise;
use crate::performance::import::{Given, import};
use crate::planner::test_world::{World, batch, context};
use crate::planner::{PlanningContext, plan};
use crate::surrogate::points::MeasuredPoints;
use crate::surrogate::residual::Quantity;
use crate::variables::Outcome;

/// Offline runs of the model that generate so many tokens per second.
fn points(tokens_per_second: f64) -> MeasuredPoints {
    let mut text = "source,row_id,model,gpu_type,num_gpus,tp,engine,date,isl,osl,load_kind,\
         out_tok_s_system\n"
        .to_owned();
    for isl in [300, 500, 800] {
        for tp in [1, 2, 4] {
            let rate = tokens_per_second * f64::from(tp);
            text.push_str(&format!(
                "s,{isl}-{tp},llama-3.1-8b,H100,{tp},{tp},vllm,2026-01,{isl},150,offline,{rate}\n"
            ));
        }
    }
    let rows = import(&text, None, &Given::default()).unwrap();
    assert!(rows.problems.is_empty(), "{:?}", rows.problems);
    MeasuredPoints::planned(&rows.rows, Catalog::embedded()).points
}

fn promise(points: &MeasuredPoints) -> Promise {
    let mut world = World::new();
    world.host("h", "H100", 4, "reserved", 2.0);
    world.job(1, batch("night", 50_000_000, 36_000));
    let context = PlanningContext {
        points,
        ..context()
    };
    let draft = plan(&world.snapshot, &context);
    let action = draft.actions.into_iter().next().unwrap();
    action.promise.expect("the batch is placed")
}

#[test]
fn a_plan_believes_what_others_measured_of_the_model_and_says_so() {
    let bare = promise(MeasuredPoints::none());
    let silent = bare.members[0].of(Quantity::Throughput).neighbours;
    assert!(silent.coverage.abs() < 1e-12);
    let told = promise(&points(1_000.0));
    let heard = told.members[0].of(Quantity::Throughput).neighbours;
    assert!(
        heard.coverage > 0.1 && heard.correction < -0.15,
        "{heard:?}"
    );
    // Slower than first principles: the same tokens need more devices, or a later end.
    let rate = |p: &Promise| {
        let gpus = p.usd_per_hour.unwrap() / 2.0;
        p.outcomes.get(Outcome::ThroughputTokensPerSec).unwrap() / gpus
    };
    assert!(
        rate(&told) < 0.9 * rate(&bare),
        "{} {}",
        rate(&told),
        rate(&bare)
    );
    let lines = told.member_lines();
    let throughput = lines.iter().find(|l| l.starts_with("throughput")).unwrap();
    assert!(throughput.contains("neighbours ×0."), "{throughput}");
    assert!(
        bare.member_lines()
            .iter()
            .all(|l| l.contains("neighbours silent"))
    );
}

#[test]
fn a_snapshot_of_other_points_is_another_snapshot() {
    let mut world = World::new();
    world.host("h", "H100", 4, "reserved", 2.0);
    let before = world.snapshot.hash();
    world.snapshot.points_digest = points(1_000.0).digest();
    let with = world.snapshot.hash();
    assert_ne!(before, with);
    world.snapshot.points_digest = points(1_100.0).digest();
    assert_ne!(world.snapshot.hash(), with);
}
