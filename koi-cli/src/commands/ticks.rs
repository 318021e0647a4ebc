//! `koi ticks`, `koi tick run`, `koi inspect tick`.

use koi_proto::v1;

use super::Context;
use super::values::short;
use crate::client::idempotency_key;
use crate::failure::{ExitCode, Failure};
use crate::output::{Grid, age, emit, escape, number};

pub(super) async fn run(context: &Context, limit: u32) -> anyhow::Result<()> {
    let page = Some(v1::PageRequest {
        size: limit,
        token: String::new(),
    });
    let reply = context.client.answer(
        context
            .client
            .ticks()
            .list_ticks(v1::ListTicksRequest { page })
            .await,
    )?;
    emit(context.format, &reply.ticks, || {
        match reply.ticks.is_empty() {
            true => "no ticks yet; run one with `koi tick run`".to_owned(),
            false => table(&reply.ticks),
        }
    })
}

fn seconds(tick: &v1::Tick) -> Option<f64> {
    tick.closed_at_us
        .map(|closed| (closed - tick.opened_at_us) as f64 / 1e6)
}

fn table(ticks: &[v1::Tick]) -> String {
    let mut grid = Grid::new(&[
        "TICK", "PHASE", "CAUSE", "OPENED", "SECONDS", "PLAN", "EVIDENCE", "OUTCOME",
    ]);
    for t in ticks {
        let outcome = match (&t.failure, t.plan_seq) {
            (failure, _) if !failure.is_empty() => format!("kept all: {failure}"),
            (_, Some(_)) => "planned".to_owned(),
            (_, None) => "-".to_owned(),
        };
        grid.row([
            t.tick_id.to_string(),
            t.phase.clone(),
            t.cause.clone(),
            format!("{} ago", age(t.opened_at_us)),
            number(seconds(t), 2),
            t.plan_seq.map_or_else(|| "-".to_owned(), |p| p.to_string()),
            t.n_evidence_rows.to_string(),
            outcome,
        ]);
    }
    grid.numbers(&[0, 4, 5, 6]).text()
}

pub(super) async fn run_now(context: &Context) -> anyhow::Result<()> {
    let request = v1::RunTickRequest {
        idempotency_key: idempotency_key(),
    };
    let reply = context
        .client
        .answer(context.client.ticks().run_tick(request).await)?;
    let tick = reply.tick.unwrap_or_default();
    emit(context.format, &tick, || table(std::slice::from_ref(&tick)))?;
    if tick.failure.is_empty() {
        return Ok(());
    }
    let message = format!("the tick changed nothing: {}", tick.failure);
    Err(Failure::new(ExitCode::Failed, message).into())
}

pub(super) async fn inspect(context: &Context, id: &str) -> anyhow::Result<()> {
    let request = v1::GetTickRequest {
        tick_id: serial(id)?,
    };
    let reply = context
        .client
        .answer(context.client.ticks().get_tick(request).await)?;
    emit(context.format, &reply, || text(&reply))
}

/// `latest` or a number; 0 on the wire asks for the newest.
pub(super) fn serial(id: &str) -> anyhow::Result<i64> {
    if id == "latest" {
        return Ok(0);
    }
    let number = id.parse().ok().filter(|n: &i64| *n > 0);
    let message = || {
        format!(
            "{:?} is not a number above 0, nor latest",
            id.chars().take(40).collect::<String>()
        )
    };
    number.ok_or_else(|| Failure::new(ExitCode::Invalid, message()).into())
}

fn text(reply: &v1::GetTickReply) -> String {
    let tick = reply.tick.clone().unwrap_or_default();
    let phases: Vec<String> = tick
        .phase_ms
        .iter()
        .map(|p| format!("{} {} ms", p.name, short(p.value)))
        .collect();
    let mut out = vec![table(std::slice::from_ref(&tick)), String::new()];
    out.push(escape(&format!("phases     {}", phases.join(", "))));
    out.extend(
        tick.first_violations
            .iter()
            .map(|v| escape(&format!("refused    {v}"))),
    );
    if !tick.prices.is_empty() {
        out.push(String::new());
        out.push(prices(&tick.prices));
    }
    if !reply.evidence.is_empty() {
        out.push(String::new());
        out.push(evidence(&reply.evidence));
    }
    out.join("\n")
}

fn prices(rows: &[v1::TickPrice]) -> String {
    let mut grid = Grid::new(&[
        "CLOUD",
        "REGION",
        "MARKET",
        "INSTANCE",
        "USD/h",
        "DATE",
        "NODES",
        "PRICE FROM",
    ]);
    for p in rows {
        grid.row([
            p.cloud.clone(),
            p.region.clone(),
            p.market.clone(),
            p.instance.clone(),
            number(Some(p.usd_per_hour), 3),
            p.date.clone(),
            p.n_nodes.to_string(),
            p.source.clone(),
        ]);
    }
    grid.numbers(&[4, 6]).text()
}

fn evidence(rows: &[v1::Evidence]) -> String {
    let mut grid = Grid::new(&[
        "JOB",
        "RANK",
        "MECHANISM",
        "VERDICT",
        "ICP",
        "POINTS",
        "DETAIL",
    ]);
    let is_open = |e: &&v1::Evidence| e.quadrant.is_empty();
    let n_open = rows.iter().filter(is_open).count();
    // Most mechanisms wait for a variable that the host does not show: said once, unless it is all.
    let shown = rows.iter().filter(|e| n_open == rows.len() || !is_open(e));
    for e in shown {
        let verdict = if e.quadrant.is_empty() {
            "undecided"
        } else {
            &e.quadrant
        };
        grid.row([
            e.job.as_str(),
            &e.rank.to_string(),
            &e.mechanism_id,
            verdict,
            &e.icp,
            &e.n_points.to_string(),
            &e.detail,
        ]);
    }
    let table = grid.numbers(&[1, 5]).text();
    if n_open == 0 || n_open == rows.len() {
        return table;
    }
    format!(
        "{table}\n{n_open} more verdicts are undecided: a variable was not seen or not predicted"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_numbers_or_latest() {
        assert_eq!((serial("latest").unwrap(), serial("12").unwrap()), (0, 12));
        for bad in ["0", "-1", "x", "", "1.5"] {
            assert!(serial(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_tick_that_kept_all_says_why() {
        let tick = v1::Tick {
            tick_id: 3,
            failure: "database away".into(),
            ..Default::default()
        };
        assert!(table(&[tick]).contains("kept all: database away"));
    }

    #[test]
    fn undecided_verdicts_are_counted_where_others_decided() {
        let one = |id: &str, quadrant: &str| v1::Evidence {
            mechanism_id: id.into(),
            quadrant: quadrant.into(),
            ..Default::default()
        };
        let mixed = evidence(&[one("M_a", "Q1"), one("M_b", "")]);
        assert!(mixed.contains("M_a") && !mixed.contains("M_b"), "{mixed}");
        assert!(mixed.contains("1 more verdicts are undecided"), "{mixed}");
        assert!(evidence(&[one("M_b", "")]).contains("M_b"));
    }
}
