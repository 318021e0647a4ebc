//! `koi slow`: controllers, their inputs and outputs, convergence.

use koi_proto::v1;

use super::Context;
use crate::args::SlowCommand;
use crate::output::{Grid, emit, number};

pub(super) async fn run(context: &Context, command: &SlowCommand) -> anyhow::Result<()> {
    match command {
        SlowCommand::Show => show(context).await,
        SlowCommand::History { last } => history(context, *last).await,
    }
}

async fn show(context: &Context) -> anyhow::Result<()> {
    let request = v1::GetSlowStateRequest {};
    let reply = context.client.beliefs().get_slow_state(request).await;
    let reply = context.client.answer(reply)?;
    emit(context.format, &reply, || {
        let tick = reply.tick.clone().unwrap_or_default();
        let head = match tick.tick_id {
            0 => "no tick has stepped the slow loop yet".to_owned(),
            id => format!("tick {id}, the {}. of the slow loop", tick.tick_count),
        };
        let parts = [
            head,
            controllers(&tick),
            weights(&tick),
            ideal(&reply.ideal_points),
            convergence(&tick),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|p| !p.is_empty()).collect();
        parts.join("\n\n")
    })
}

/// A value and the digits it is shown with.
type Shown = (Option<f64>, usize);

/// One line per controller: what it read, what it says.
fn controllers(tick: &v1::SlowTick) -> String {
    let mut grid = Grid::new(&["CONTROLLER", "VALUE", "READS", "READ"]);
    for (name, value, reads, read) in controller_rows(tick) {
        grid.row([
            name.to_owned(),
            number(value.0, value.1),
            reads.to_owned(),
            number(read.0, read.1),
        ]);
    }
    grid.numbers(&[1, 3]).text()
}

fn controller_rows(tick: &v1::SlowTick) -> [(&'static str, Shown, &'static str, Shown); 8] {
    let count = |n: u32| (Some(f64::from(n)), 0);
    let active = Some(f64::from(tick.n_active_jobs)).filter(|n| *n > 0.0);
    let rate = (active.map(|n| f64::from(tick.n_swapped_jobs) / n), 3);
    let regret = (tick.regret, 3);
    let weight = (Some(tick.explore_weight), 3);
    let target = (Some(tick.swap_target), 3);
    let ticks = (Some(tick.tick_count as f64), 0);
    let radius = (Some(tick.dro_radius), 3);
    let probed = (Some(tick.probe_usd_today), 2);
    [
        (
            "q1_rate",
            (tick.q1_rate, 3),
            "evidence rows",
            count(tick.n_evidence_rows),
        ),
        ("regret", regret, "q1_rate", (tick.q1_rate, 3)),
        ("explore_weight", weight, "regret", regret),
        ("swap_budget", count(tick.swap_budget), "regret", regret),
        (
            "churn_price",
            (Some(tick.churn_price), 3),
            "swap rate",
            rate,
        ),
        ("swap_target", target, "ticks", ticks),
        ("dro_radius", radius, "coverage", (tick.coverage, 3)),
        (
            "probe_usd_today",
            probed,
            "probes",
            count(tick.n_probed_jobs),
        ),
    ]
}

fn weights(tick: &v1::SlowTick) -> String {
    let mut grid = Grid::new(&["CLASS", "OBJECTIVE", "WEIGHT", "GRADIENT"]);
    let mut n = 0;
    for class in &tick.weights {
        for weight in &class.weights {
            let gradient = class.gradient.iter().find(|g| g.name == weight.name);
            grid.row([
                class.class.clone(),
                weight.name.clone(),
                number(Some(weight.value), 3),
                number(gradient.map(|g| g.value), 3),
            ]);
            n += 1;
        }
    }
    if n == 0 {
        String::new()
    } else {
        grid.numbers(&[2, 3]).text()
    }
}

fn ideal(points: &[v1::IdealPoint]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(&["CLASS", "MODELS", "OBJECTIVE", "IDEAL", "RANGE"]);
    for point in points {
        for best in &point.ideal {
            let range = point.range.iter().find(|r| r.name == best.name);
            grid.row([
                point.class.clone(),
                point.model_class.clone(),
                best.name.clone(),
                figure(best.value),
                range.map_or_else(|| "-".to_owned(), |r| figure(r.value)),
            ]);
        }
    }
    grid.numbers(&[3, 4]).text()
}

/// Costs per token are far below what three digits show.
fn figure(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 {
        format!("{value:.3e}")
    } else {
        number(Some(value), 3)
    }
}

fn convergence(tick: &v1::SlowTick) -> String {
    if tick.criteria.is_empty() {
        return "convergence: not judged yet".to_owned();
    }
    let mut grid = Grid::new(&["CRITERION", "VALUE", "", "BOUND", "HOLDS", "MEANING"]);
    for c in &tick.criteria {
        grid.row([
            c.name.clone(),
            number(c.value, 4),
            if c.is_floor { "≥" } else { "≤" }.to_owned(),
            number(Some(c.bound), 4),
            if c.holds { "yes" } else { "no" }.to_owned(),
            c.meaning.clone(),
        ]);
    }
    let n_open = tick.criteria.iter().filter(|c| !c.holds).count();
    let sentence = match tick.ticks_converged {
        0 => format!(
            "not converged: {n_open} of {} do not hold",
            tick.criteria.len()
        ),
        1 => "converged in this tick".to_owned(),
        n => format!("converged for {n} ticks"),
    };
    format!("{}\n{sentence}", grid.numbers(&[1, 3]).text())
}

async fn history(context: &Context, last: u32) -> anyhow::Result<()> {
    let request = v1::GetSlowHistoryRequest { last };
    let reply = context.client.beliefs().get_slow_history(request).await;
    let reply = context.client.answer(reply)?;
    emit(context.format, &reply.ticks, || {
        match reply.ticks.is_empty() {
            true => "no tick has stepped the slow loop yet".to_owned(),
            false => table(&reply.ticks),
        }
    })
}

fn table(ticks: &[v1::SlowTick]) -> String {
    let mut grid = Grid::new(&[
        "TICK", "ROWS", "Q1", "REGRET", "β", "B", "λ", "ε", "COVERAGE", "SWAPS", "PROBES", "HOLD",
    ]);
    for t in ticks {
        let held = t.criteria.iter().filter(|c| c.holds).count();
        grid.row([
            t.tick_id.to_string(),
            t.n_evidence_rows.to_string(),
            number(t.q1_rate, 3),
            number(t.regret, 3),
            number(Some(t.explore_weight), 3),
            t.swap_budget.to_string(),
            number(Some(t.churn_price), 3),
            number(Some(t.dro_radius), 3),
            number(t.coverage, 3),
            t.n_swapped_jobs.to_string(),
            t.n_probed_jobs.to_string(),
            format!("{held}/{}", t.criteria.len()),
        ]);
    }
    grid.numbers(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]).text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick() -> v1::SlowTick {
        v1::SlowTick {
            tick_id: 7,
            tick_count: 5,
            explore_weight: 0.5,
            criteria: vec![
                v1::Criterion {
                    name: "q1_rate".to_owned(),
                    value: Some(0.95),
                    bound: 0.9,
                    is_floor: true,
                    holds: true,
                    ..v1::Criterion::default()
                },
                v1::Criterion {
                    name: "uncertainty".to_owned(),
                    bound: 0.05,
                    ..v1::Criterion::default()
                },
            ],
            ..v1::SlowTick::default()
        }
    }

    #[test]
    fn every_criterion_shows_its_number_and_its_bound() {
        let text = convergence(&tick());
        assert!(text.contains("0.9500") && text.contains("≥"), "{text}");
        let unknown = text.lines().find(|l| l.contains("uncertainty")).unwrap();
        assert!(
            unknown.contains(" - ") && unknown.contains("no"),
            "{unknown}"
        );
        assert!(
            text.ends_with("not converged: 1 of 2 do not hold"),
            "{text}"
        );
        let done = v1::SlowTick {
            ticks_converged: 4,
            ..tick()
        };
        assert!(convergence(&done).ends_with("converged for 4 ticks"));
    }

    #[test]
    fn a_line_per_tick_and_absent_is_no_zero() {
        let text = table(&[tick(), tick()]);
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().nth(1).unwrap().contains('-'), "{text}");
        assert!(text.contains("1/2"));
        assert!(controllers(&tick()).contains("explore_weight"));
        assert_eq!(figure(1e-8), "1.000e-8");
    }
}
