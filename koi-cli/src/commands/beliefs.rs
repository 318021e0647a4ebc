//! `koi beliefs` and `koi mechanisms`.

use koi_proto::v1;

use super::Context;
use crate::output::{Grid, emit, number};

const MAX_PAGES: usize = 100;
const PAGE_SIZE: u32 = 500;

pub(super) async fn beliefs(context: &Context) -> anyhow::Result<()> {
    let (mut beliefs, mut token) = (vec![], String::new());
    for _ in 0..MAX_PAGES {
        let page = Some(v1::PageRequest {
            size: PAGE_SIZE,
            token,
        });
        let reply = context
            .client
            .beliefs()
            .list_beliefs(v1::ListBeliefsRequest { page })
            .await;
        let reply = context.client.answer(reply)?;
        beliefs.extend(reply.beliefs);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    emit(context.format, &beliefs, || {
        let mut grid = Grid::new(&[
            "SUBJECT",
            "KIND",
            "CONFIDENCE",
            "UNCERTAINTY",
            "SUCCESSES",
            "FAILURES",
            "EVENTS",
        ]);
        for b in &beliefs {
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
    })
}

pub(super) async fn mechanisms(context: &Context) -> anyhow::Result<()> {
    let (mut mechanisms, mut token) = (vec![], String::new());
    for _ in 0..MAX_PAGES {
        let page = Some(v1::PageRequest {
            size: PAGE_SIZE,
            token,
        });
        let reply = context
            .client
            .beliefs()
            .list_mechanisms(v1::ListMechanismsRequest { page })
            .await;
        let reply = context.client.answer(reply)?;
        mechanisms.extend(reply.mechanisms);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    emit(context.format, &mechanisms, || {
        let mut grid = Grid::new(&[
            "MECHANISM",
            "STATUS",
            "CONFIDENCE",
            "SCOPE",
            "EDGES",
            "NARRATIVE",
        ]);
        for m in &mechanisms {
            grid.row([
                m.mechanism_id.clone(),
                m.status.clone(),
                number(m.belief.as_ref().map(|b| b.confidence), 3),
                m.scope.clone(),
                m.edge_ids.len().to_string(),
                m.narrative.clone(),
            ]);
        }
        grid.numbers(&[2, 4]).text()
    })
}
