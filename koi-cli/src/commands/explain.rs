//! `koi explain`: what runs, why this and not the next best, and what would change the decision.

use koi_proto::v1;

use super::values::{pairs, short, sigma_terms};
use super::{Context, inspect_job};
use crate::output::{Grid, emit, escape, number};

/// Options shown to people; programs get all.
const SHOWN_OPTIONS: usize = 5;
/// Mechanisms shown to people; the server puts those first that say most.
const SHOWN_MECHANISMS: usize = 5;

pub(super) async fn run(context: &Context, job: &str) -> anyhow::Result<()> {
    let request = v1::ExplainJobRequest {
        job: job.to_owned(),
    };
    let reply = context
        .client
        .answer(context.client.jobs().explain_job(request).await)?;
    emit(context.format, &reply, || text(&reply))
}

fn text(reply: &v1::ExplainJobReply) -> String {
    let job = reply.job.clone().unwrap_or_default();
    let mut out = vec![inspect_job::text(&job), String::new()];
    let rationale = if reply.rationale.is_empty() {
        "-"
    } else {
        &reply.rationale
    };
    out.push(escape(&format!(
        "decision   {} by plan {} in tick {}",
        reply.action, reply.plan_seq, reply.tick_id
    )));
    out.push(escape(&format!("why        {rationale}")));
    let now = reply.not_chosen.iter().find(|o| o.code == "CURRENT");
    if let Some(sigma) = now.and_then(|o| o.sigma.as_ref()) {
        out.push(escape(&format!("  as it runs:  {}", sigma_terms(sigma))));
    }
    if let Some(sigma) = job.active.as_ref().and_then(|a| a.sigma.as_ref()) {
        out.push(escape(&format!("  when chosen: {}", sigma_terms(sigma))));
        if !sigma.gaps.is_empty() {
            out.push(escape(&format!(
                "  weighted gaps to the ideal point: {}",
                pairs(&sigma.gaps)
            )));
        }
        if !sigma.switch_cost_usd.is_empty() {
            out.push(escape(&format!(
                "  switch cost in USD: {}",
                pairs(&sigma.switch_cost_usd)
            )));
        }
    }
    if !reply.members.is_empty() {
        out.push("\npredicted when it was planned:".to_owned());
        let lines = reply.members.iter();
        out.extend(lines.map(|s| format!("  - {}", escape(s))));
    }
    if !reply.not_chosen.is_empty() {
        out.push(format!(
            "\nnot chosen ({} options, the best {}):",
            reply.not_chosen.len(),
            reply.not_chosen.len().min(SHOWN_OPTIONS)
        ));
        out.push(options(&reply.not_chosen));
    }
    if !reply.mechanisms.is_empty() {
        out.push("\nmechanisms:".to_owned());
        let shown = reply.mechanisms.iter().take(SHOWN_MECHANISMS);
        out.extend(shown.map(mechanism));
        out.extend(others(&reply.mechanisms));
    }
    if !reply.would_change.is_empty() {
        out.push("\nwhat would change the decision:".to_owned());
        out.extend(
            reply
                .would_change
                .iter()
                .map(|s| format!("  - {}", escape(s))),
        );
    }
    out.join("\n")
}

fn options(options: &[v1::Option]) -> String {
    let mut grid = Grid::new(&[
        "OPTION",
        "σ",
        "GAIN",
        "Pr(breach)",
        "USD/h",
        "CODE",
        "REASON",
    ]);
    for o in options.iter().take(SHOWN_OPTIONS) {
        let sigma = o.sigma.clone().unwrap_or_default();
        grid.row([
            o.option.clone(),
            number(sigma.sigma, 4),
            number(sigma.gain, 4),
            number(sigma.breach_probability, 3),
            number(o.usd_per_hour, 2),
            o.code.clone(),
            o.reason.clone(),
        ]);
    }
    grid.numbers(&[1, 2, 3, 4]).text()
}

fn mechanism(m: &v1::MechanismEvidence) -> String {
    escape(&format!(
        "  {}: confidence {}, uncertainty {}, verdicts {}; {}",
        m.mechanism_id,
        short(m.confidence),
        short(m.uncertainty),
        runs(&m.recent_verdicts),
        m.narrative
    ))
}

/// One line for the mechanisms that are not shown.
fn others(all: &[v1::MechanismEvidence]) -> Option<String> {
    let rest = all
        .get(SHOWN_MECHANISMS..)
        .filter(|rest| !rest.is_empty())?;
    let is_open = |m: &&v1::MechanismEvidence| m.recent_verdicts.iter().all(|v| v == "undecided");
    Some(format!(
        "  and {} more, {} of them undecided so far; koi mechanisms lists all",
        rest.len(),
        rest.iter().filter(is_open).count()
    ))
}

/// Verdicts, newest first, equal neighbours counted.
fn runs(verdicts: &[String]) -> String {
    if verdicts.is_empty() {
        return "none yet".to_owned();
    }
    let runs = verdicts.chunk_by(|a, b| a == b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [one] => one.clone(),
            _ => format!("{} × {}", run.len(), run[0]),
        })
        .collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_names_every_part() {
        let reply = v1::ExplainJobReply {
            job: Some(v1::Job::default()),
            action: "place".into(),
            plan_seq: 7,
            tick_id: 9,
            rationale: "cheapest inside the SLO".into(),
            not_chosen: vec![v1::Option {
                option: "1 × A100".into(),
                code: "C7-SLO".into(),
                reason: "TTFT\n too long".into(),
                ..Default::default()
            }],
            mechanisms: vec![v1::MechanismEvidence {
                mechanism_id: "M1".into(),
                ..Default::default()
            }],
            would_change: vec!["a price below 2 USD/h".into()],
            members: vec!["mean TPOT 20.0 ms: first principles 10.0".into()],
        };
        let text = text(&reply);
        for part in [
            "place by plan 7 in tick 9",
            "cheapest",
            "C7-SLO",
            "TTFT\\n too long",
            "M1",
            "below 2 USD/h",
            "first principles 10.0",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn many_mechanisms_are_counted_and_equal_verdicts_too() {
        let one = |n: usize, verdicts: &[&str]| v1::MechanismEvidence {
            mechanism_id: format!("M_{n}"),
            recent_verdicts: verdicts.iter().map(|v| (*v).to_owned()).collect(),
            ..Default::default()
        };
        let mut all = vec![one(0, &["Q1", "Q1", "Q3"])];
        all.extend((1..8).map(|n| one(n, &["undecided", "undecided"])));
        let reply = v1::ExplainJobReply {
            mechanisms: all,
            ..Default::default()
        };
        let text = text(&reply);
        assert!(text.contains("verdicts 2 × Q1, Q3;"), "{text}");
        assert!(text.contains("M_4") && !text.contains("M_5"), "{text}");
        assert!(text.contains("and 3 more, 3 of them undecided"), "{text}");
        assert_eq!(runs(&[]), "none yet");
        assert_eq!(others(&[]), None);
    }
}
