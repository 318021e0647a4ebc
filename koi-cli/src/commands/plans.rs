//! `koi inspect plan`.

use koi_proto::v1;

use super::Context;
use super::ticks::serial;
use super::values::{ladder, ladder_lines, sigma_terms};
use crate::output::{Grid, age, emit, escape, number};

pub(super) async fn inspect(context: &Context, id: &str) -> anyhow::Result<()> {
    let request = v1::GetPlanRequest { seq: serial(id)? };
    let reply = context
        .client
        .answer(context.client.plans().get_plan(request).await)?;
    let plan = reply.plan.unwrap_or_default();
    emit(context.format, &plan, || text(&plan))
}

fn text(plan: &v1::Plan) -> String {
    let mut out = vec![
        escape(&format!(
            "plan       {} after {}, tick {}, {} ago",
            plan.seq,
            plan.parent,
            plan.tick_id,
            age(plan.created_at_us)
        )),
        format!(
            "objective  {} (bound {})",
            number(Some(plan.objective), 4),
            number(plan.bound, 4)
        ),
        escape(&format!(
            "snapshot   {} seed {}",
            plan.snapshot_hash, plan.seed
        )),
        escape(&format!("why        {}", plan.rationale)),
        String::new(),
        actions(&plan.actions),
    ];
    for a in plan.actions.iter().filter(|a| a.ladder.is_some()) {
        out.push(String::new());
        out.push(escape(&format!("{} {}: {}", a.kind, a.job, a.rationale)));
        out.extend(ladder_lines(a.ladder.as_ref(), "  ").lines().map(escape));
        out.extend(a.sigma.as_ref().map(|s| format!("  {}", sigma_terms(s))));
        out.extend(a.members.iter().map(|s| format!("  {}", escape(s))));
        let slot = |s: &v1::Slot| {
            format!(
                "  slot r{}.{} on {}: {}",
                s.rank,
                s.index,
                s.host,
                s.gpu_uuids.join(",")
            )
        };
        out.extend(a.slots.iter().map(|s| escape(&slot(s))));
    }
    out.join("\n")
}

fn actions(actions: &[v1::PlanAction]) -> String {
    let mut grid = Grid::new(&["JOB", "ACTION", "LADDER", "σ", "GAIN", "REASON"]);
    for a in actions {
        let sigma = a.sigma.clone().unwrap_or_default();
        grid.row([
            a.job.clone(),
            a.kind.clone(),
            ladder(a.ladder.as_ref()),
            number(sigma.sigma, 4),
            number(sigma.gain, 4),
            a.swap_reason.clone(),
        ]);
    }
    grid.numbers(&[3, 4]).text()
}
