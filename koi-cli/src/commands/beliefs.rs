//! `koi beliefs`: confidence in edges and mechanisms, one belief, its history, the proof of all.

use koi_proto::v1;

use super::Context;
use crate::args::{BeliefsArgs, BeliefsCommand};
use crate::failure::{ExitCode, Failure};
use crate::output::{Grid, emit, escape, number};

const MAX_PAGES: usize = 1_000;
const PAGE_SIZE: u32 = 500;
/// Mismatches shown to people.
const SHOWN_MISMATCHES: usize = 20;

pub(super) async fn run(context: &Context, args: BeliefsArgs) -> anyhow::Result<()> {
    match args.command.unwrap_or(BeliefsCommand::List) {
        BeliefsCommand::List => list(context).await,
        BeliefsCommand::Show { subject } => show(context, subject).await,
        BeliefsCommand::History { subject, limit } => history(context, subject, limit).await,
        BeliefsCommand::Verify => verify(context).await,
    }
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let (mut beliefs, mut token) = (vec![], String::new());
    for _ in 0..MAX_PAGES {
        let page = Some(v1::PageRequest {
            size: PAGE_SIZE,
            token,
        });
        let request = v1::ListBeliefsRequest { page };
        let reply = context.client.beliefs().list_beliefs(request).await;
        let reply = context.client.answer(reply)?;
        beliefs.extend(reply.beliefs);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    emit(context.format, &beliefs, || belief_grid(&beliefs))
}

/// Beliefs as lines.
pub(super) fn belief_grid(beliefs: &[v1::Belief]) -> String {
    let mut grid = Grid::new(&[
        "SUBJECT",
        "KIND",
        "CONFIDENCE",
        "UNCERTAINTY",
        "SUCCESSES",
        "FAILURES",
        "EVENTS",
    ]);
    for b in beliefs {
        grid.row([
            b.subject.clone(),
            b.kind.clone(),
            number(Some(b.confidence), 3),
            number(Some(b.uncertainty), 3),
            number(Some(b.successes), 2),
            number(Some(b.failures), 2),
            b.n_events.to_string(),
        ]);
    }
    grid.numbers(&[2, 3, 4, 5, 6]).text()
}

async fn show(context: &Context, subject: String) -> anyhow::Result<()> {
    let request = v1::GetBeliefRequest { subject };
    let reply = context.client.beliefs().get_belief(request).await;
    let reply = context.client.answer(reply)?;
    emit(context.format, &reply, || {
        let belief = reply.belief.clone().unwrap_or_default();
        let mut out = vec![
            belief_grid(&[belief]),
            String::new(),
            format!(
                "seed: {} successes, {} failures",
                number(Some(reply.seed_successes), 0),
                number(Some(reply.seed_failures), 0)
            ),
        ];
        if !reply.carried_by.is_empty() {
            out.push(escape(&format!(
                "carried by: {}",
                reply.carried_by.join(", ")
            )));
        }
        out.push(String::new());
        out.push(event_grid(&reply.events));
        out.join("\n")
    })
}

async fn history(context: &Context, subject: String, limit: u32) -> anyhow::Result<()> {
    let (mut events, mut token) = (vec![], String::new());
    while events.len() < limit as usize {
        let left = limit as usize - events.len();
        let size = u32::try_from(left).unwrap_or(PAGE_SIZE).min(PAGE_SIZE);
        let request = v1::GetBeliefHistoryRequest {
            subject: subject.clone(),
            page: Some(v1::PageRequest { size, token }),
        };
        let reply = context.client.beliefs().get_belief_history(request).await;
        let reply = context.client.answer(reply)?;
        events.extend(reply.events);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    emit(context.format, &events, || event_grid(&events))
}

fn event_grid(events: &[v1::BeliefEvent]) -> String {
    if events.is_empty() {
        return "no event has moved it".to_owned();
    }
    let mut grid = Grid::new(&[
        "TICK",
        "SOURCE",
        "JOB",
        "RANK",
        "GENERATION",
        "Δ SUCCESSES",
        "Δ FAILURES",
        "CONFIDENCE AFTER",
    ]);
    for e in events {
        let of_row = |text: String| {
            if e.job_id.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        grid.row([
            e.tick_id.to_string(),
            e.source.clone(),
            of_row(e.job_id.clone()),
            of_row(e.rank.to_string()),
            of_row(e.generation.to_string()),
            number(Some(e.successes_change), 3),
            number(Some(e.failures_change), 3),
            number(Some(e.confidence), 3),
        ]);
    }
    grid.numbers(&[0, 3, 4, 5, 6, 7]).text()
}

async fn verify(context: &Context) -> anyhow::Result<()> {
    let request = v1::VerifyBeliefsRequest {};
    let reply = context.client.beliefs().verify_beliefs(request).await;
    let reply = context.client.answer(reply)?;
    emit(context.format, &reply, || verified(&reply))?;
    if reply.mismatches.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} belief(s) are not their seed plus the sum of their events",
        reply.mismatches.len()
    );
    Err(Failure::new(ExitCode::Failed, message).into())
}

fn verified(reply: &v1::VerifyBeliefsReply) -> String {
    let mut out = vec![format!(
        "{} events with {} changes of {} beliefs replayed in {} s",
        reply.n_events,
        reply.n_changes,
        reply.n_beliefs,
        number(Some(reply.seconds), 2)
    )];
    for m in reply.mismatches.iter().take(SHOWN_MISMATCHES) {
        out.push(escape(&format!(
            "{}: stored {}, {}; events add up to {}, {} (millionths)",
            m.subject,
            m.stored_alpha_micro,
            m.stored_beta_micro,
            m.summed_alpha_micro,
            m.summed_beta_micro
        )));
    }
    if reply.mismatches.is_empty() {
        out.push("every belief is exactly its seed plus the sum of its events".to_owned());
    }
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_says_what_was_replayed_and_what_differs() {
        let mut reply = v1::VerifyBeliefsReply {
            n_events: 3,
            n_changes: 40,
            n_beliefs: 12,
            ..v1::VerifyBeliefsReply::default()
        };
        let text = verified(&reply);
        assert!(
            text.contains("3 events with 40 changes of 12 beliefs"),
            "{text}"
        );
        assert!(text.contains("exactly its seed"), "{text}");
        reply.mismatches = vec![v1::BeliefMismatch {
            subject: "edge:a->b".to_owned(),
            stored_alpha_micro: 7,
            ..v1::BeliefMismatch::default()
        }];
        let text = verified(&reply);
        assert!(text.contains("edge:a->b: stored 7, 0"), "{text}");
        assert!(!text.contains("exactly its seed"), "{text}");
    }

    #[test]
    fn forgetting_has_no_row() {
        let event = v1::BeliefEvent {
            tick_id: 4,
            source: "forget".to_owned(),
            ..v1::BeliefEvent::default()
        };
        let text = event_grid(&[event]);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line.matches(" -").count(), 3, "{text}");
        assert!(event_grid(&[]).contains("no event"));
    }
}
