//! The `Beliefs` service: confidence in edges and mechanisms, their history, and its proof.
//!
//! Mechanisms are in [`super::mechanisms`], the slow loop in [`super::slow`].

use std::collections::BTreeMap;
use std::time::Instant;

use koi_core::causal::{Belief, BeliefKey, BeliefSource};
use koi_core::store::BeliefMove;
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::idempotency::Requests;
use super::paging::{cut, page};
use super::status::{invalid_field, refused, store_failed};
use crate::auth::TokenTable;
use crate::core_loop::Core;
use crate::store::{BeliefStep, Store};
use crate::tick::run::World;

/// Events shown with one belief.
const SHOWN_EVENTS: u32 = 10;
/// Events of one page when none is asked for, and the most.
const PAGE_SIZES: (u32, u32) = (100, 500);
/// Mismatches in one answer.
const MAX_MISMATCHES: usize = 1_000;

/// The `Beliefs` service.
#[derive(Clone)]
pub struct BeliefsApi {
    /// Sums of belief events.
    pub core: Core,
    /// The log.
    pub store: Store,
    /// Idempotency keys.
    pub requests: Requests,
    /// Who may ask.
    pub tokens: TokenTable,
    /// Seeds.
    pub world: World,
}

impl BeliefsApi {
    /// The world with stored mechanisms, and every belief as it stands.
    pub(super) async fn learned(&self) -> Result<(World, BTreeMap<BeliefKey, Belief>), Status> {
        let world = self.world.clone();
        let read = self.core.read(move |m| {
            let world = world.with_mechanisms(&m.state().mechanisms);
            let beliefs = m.state().beliefs_from(&world.causal);
            (world, beliefs)
        });
        read.await.map_err(|refusal| refused(&refusal))
    }

    /// The same on the wire.
    pub(super) async fn beliefs(&self) -> Result<(World, BTreeMap<BeliefKey, v1::Belief>), Status> {
        let (world, beliefs) = self.learned().await?;
        let counts = self.store.belief_event_counts().await;
        let counts = counts.map_err(|e| store_failed(&e))?;
        let wire = beliefs.into_iter().map(|(key, belief)| {
            let n_events = counts.get(&key).copied().unwrap_or(0);
            let wire = to_wire(&key, belief, n_events);
            (key, wire)
        });
        Ok((world, wire.collect()))
    }

    /// The belief that a subject names: an edge id, a mechanism id, or either with its kind.
    async fn subject(&self, subject: &str) -> Result<(World, BeliefKey, v1::Belief), Status> {
        let (world, mut beliefs) = self.beliefs().await?;
        let named = [
            subject.parse().ok(),
            Some(BeliefKey::Mechanism(subject.to_owned())),
            Some(BeliefKey::Edge(subject.to_owned())),
        ];
        for key in named.into_iter().flatten() {
            if let Some(belief) = beliefs.remove(&key) {
                return Ok((world, key, belief));
            }
        }
        let shown: String = subject.chars().take(120).collect();
        Err(Status::not_found(format!(
            "there is no edge or mechanism {shown:?}; `koi beliefs list` names all"
        )))
    }

    /// The newest events of a belief with what it was after each.
    async fn steps(
        &self,
        key: &BeliefKey,
        now: Belief,
        (before, limit): (Option<i64>, u32),
    ) -> Result<Vec<v1::BeliefEvent>, Status> {
        let history = |before, limit| self.store.belief_history(key, before, limit);
        let steps = history(before, limit).await.map_err(|e| store_failed(&e))?;
        Ok(wire_steps(now, &steps))
    }
}

pub(super) fn to_wire(key: &BeliefKey, belief: Belief, n_events: u64) -> v1::Belief {
    let (kind, subject) = match key {
        BeliefKey::Edge(id) => ("edge", id),
        BeliefKey::Mechanism(id) => ("mechanism", id),
    };
    v1::Belief {
        subject: subject.clone(),
        kind: kind.to_owned(),
        successes: belief.alpha(),
        failures: belief.beta(),
        confidence: belief.mean(),
        uncertainty: belief.uncertainty(),
        n_events,
    }
}

/// Events newest first; `after` is the belief after the newest of them.
fn wire_steps(after: Belief, steps: &[BeliefStep]) -> Vec<v1::BeliefEvent> {
    let mut belief = after;
    let mut wire = Vec::with_capacity(steps.len());
    for step in steps {
        let moved = Belief {
            alpha_micro: step.moved.alpha_micro,
            beta_micro: step.moved.beta_micro,
        };
        let (source, row) = match &step.source {
            BeliefSource::Evidence {
                job,
                rank,
                generation,
            } => ("evidence", Some((job.to_string(), *rank, generation.0))),
            BeliefSource::Forget => ("forget", None),
        };
        let (job_id, rank, generation) = row.unwrap_or_default();
        wire.push(v1::BeliefEvent {
            event_seq: step.event_seq,
            tick_id: step.tick.0,
            source: source.to_owned(),
            job_id,
            rank,
            generation,
            successes_change: moved.alpha(),
            failures_change: moved.beta(),
            successes: belief.alpha(),
            failures: belief.beta(),
            confidence: belief.mean(),
        });
        belief = belief.plus(
            step.moved.alpha_micro.saturating_neg(),
            step.moved.beta_micro.saturating_neg(),
        );
    }
    wire
}

fn current(belief: &v1::Belief) -> Belief {
    let micro = |count: f64| (count * 1e6).round() as i64;
    Belief {
        alpha_micro: micro(belief.successes),
        beta_micro: micro(belief.failures),
    }
}

#[tonic::async_trait]
impl v1::beliefs_server::Beliefs for BeliefsApi {
    async fn list_beliefs(
        &self,
        request: Request<v1::ListBeliefsRequest>,
    ) -> Result<Response<v1::ListBeliefsReply>, Status> {
        self.tokens.operator(&request)?;
        let page = page(request.into_inner().page)?;
        let (_, beliefs) = self.beliefs().await?;
        let (beliefs, next) = cut(&page, beliefs.into_iter(), |(key, _)| key.to_string());
        Ok(Response::new(v1::ListBeliefsReply {
            beliefs: beliefs.into_iter().map(|(_, b)| b).collect(),
            page: Some(next),
        }))
    }

    async fn get_belief(
        &self,
        request: Request<v1::GetBeliefRequest>,
    ) -> Result<Response<v1::GetBeliefReply>, Status> {
        self.tokens.operator(&request)?;
        let (world, key, belief) = self.subject(&request.into_inner().subject).await?;
        let seed = world.causal.seed_beliefs().get(&key).copied();
        let seed = seed.unwrap_or(Belief::of_counts(1, 1));
        let carriers = world.causal.mechanisms().filter(|m| match &key {
            BeliefKey::Edge(id) => m.edges.contains(id),
            BeliefKey::Mechanism(_) => false,
        });
        let events = self
            .steps(&key, current(&belief), (None, SHOWN_EVENTS))
            .await?;
        Ok(Response::new(v1::GetBeliefReply {
            belief: Some(belief),
            seed_successes: seed.alpha(),
            seed_failures: seed.beta(),
            carried_by: carriers.map(|m| m.id.clone()).collect(),
            events,
        }))
    }

    async fn get_belief_history(
        &self,
        request: Request<v1::GetBeliefHistoryRequest>,
    ) -> Result<Response<v1::GetBeliefHistoryReply>, Status> {
        self.tokens.operator(&request)?;
        let request = request.into_inner();
        let page = request.page.unwrap_or_default();
        let limit = match page.size {
            0 => PAGE_SIZES.0,
            n => n.min(PAGE_SIZES.1),
        };
        let (_, key, belief) = self.subject(&request.subject).await?;
        let (before, now) = match HistoryToken::read(&page.token)? {
            Some(token) => (Some(token.before), token.belief),
            None => (None, current(&belief)),
        };
        let events = self.steps(&key, now, (before, limit)).await?;
        let is_full = events.len() >= limit as usize;
        let next = events.last().filter(|_| is_full).map(HistoryToken::after);
        Ok(Response::new(v1::GetBeliefHistoryReply {
            events,
            page: Some(v1::PageReply {
                next_token: next.unwrap_or_default(),
            }),
        }))
    }

    async fn verify_beliefs(
        &self,
        request: Request<v1::VerifyBeliefsRequest>,
    ) -> Result<Response<v1::VerifyBeliefsReply>, Status> {
        self.tokens.operator(&request)?;
        let begun = Instant::now();
        let verified = self
            .store
            .beliefs_replay()
            .await
            .map_err(|e| store_failed(&e))?;
        let mismatches = verified.mismatches.iter().take(MAX_MISMATCHES);
        let mismatches = mismatches.map(|m| mismatch(&m.subject, m.stored, m.summed));
        Ok(Response::new(v1::VerifyBeliefsReply {
            n_events: verified.n_events,
            n_changes: verified.n_changes,
            n_beliefs: verified.sums.len() as u64,
            mismatches: mismatches.collect(),
            seconds: begun.elapsed().as_secs_f64(),
        }))
    }

    async fn list_mechanisms(
        &self,
        request: Request<v1::ListMechanismsRequest>,
    ) -> Result<Response<v1::ListMechanismsReply>, Status> {
        self.tokens.operator(&request)?;
        self.mechanism_list(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn get_mechanism(
        &self,
        request: Request<v1::GetMechanismRequest>,
    ) -> Result<Response<v1::GetMechanismReply>, Status> {
        self.tokens.operator(&request)?;
        self.mechanism(&request.into_inner().mechanism_id)
            .await
            .map(Response::new)
    }

    async fn propose_mechanism(
        &self,
        request: Request<v1::ProposeMechanismRequest>,
    ) -> Result<Response<v1::ProposeMechanismReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let proposed = self.mechanism_propose(&identity, request.into_inner());
        proposed.await.map(Response::new)
    }

    async fn promote_mechanisms(
        &self,
        request: Request<v1::PromoteMechanismsRequest>,
    ) -> Result<Response<v1::PromoteMechanismsReply>, Status> {
        self.tokens.operator(&request)?;
        self.mechanisms_promote().await.map(Response::new)
    }

    async fn get_slow_state(
        &self,
        request: Request<v1::GetSlowStateRequest>,
    ) -> Result<Response<v1::GetSlowStateReply>, Status> {
        self.tokens.operator(&request)?;
        self.slow_state().await.map(Response::new)
    }

    async fn get_slow_history(
        &self,
        request: Request<v1::GetSlowHistoryRequest>,
    ) -> Result<Response<v1::GetSlowHistoryReply>, Status> {
        self.tokens.operator(&request)?;
        self.slow_ticks(request.into_inner().last)
            .await
            .map(Response::new)
    }
}

fn mismatch(subject: &str, stored: BeliefMove, summed: BeliefMove) -> v1::BeliefMismatch {
    v1::BeliefMismatch {
        subject: subject.to_owned(),
        stored_alpha_micro: stored.alpha_micro,
        stored_beta_micro: stored.beta_micro,
        summed_alpha_micro: summed.alpha_micro,
        summed_beta_micro: summed.beta_micro,
    }
}

/// Where a page of a belief's history begins: before which event, and what the belief was then.
struct HistoryToken {
    before: i64,
    belief: Belief,
}

impl HistoryToken {
    fn after(last: &v1::BeliefEvent) -> String {
        let micro = |count: f64| (count * 1e6).round() as i64;
        let alpha = micro(last.successes) - micro(last.successes_change);
        let beta = micro(last.failures) - micro(last.failures_change);
        format!("{}.{alpha}.{beta}", last.event_seq)
    }

    fn read(token: &str) -> Result<Option<Self>, Status> {
        if token.is_empty() {
            return Ok(None);
        }
        let numbers: Vec<i64> = token
            .split('.')
            .map_while(|part| part.parse().ok())
            .collect();
        match numbers.as_slice() {
            [before, alpha_micro, beta_micro] => Ok(Some(Self {
                before: *before,
                belief: Belief {
                    alpha_micro: *alpha_micro,
                    beta_micro: *beta_micro,
                },
            })),
            _ => Err(invalid_field("page.token", "is not a token of this list")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use koi_core::ids::TickId;

    fn step(event_seq: i64, alpha_micro: i64) -> BeliefStep {
        BeliefStep {
            event_seq,
            tick: TickId(event_seq),
            source: BeliefSource::Forget,
            moved: BeliefMove {
                alpha_micro,
                beta_micro: 0,
            },
        }
    }

    #[test]
    fn what_a_belief_was_is_counted_back_from_what_it_is() {
        let now = Belief::of_counts(5, 1);
        let wire = wire_steps(now, &[step(9, 3_000_000), step(4, -1_000_000)]);
        let after: Vec<f64> = wire.iter().map(|e| e.successes).collect();
        assert_eq!(after, [5.0, 2.0]);
        let token = HistoryToken::read(&HistoryToken::after(&wire[1]))
            .unwrap()
            .unwrap();
        assert_eq!((token.before, token.belief), (4, Belief::of_counts(3, 1)));
        for bad in ["x", "1.2", "1.2.3.4", "9.9.99999999999999999999"] {
            assert!(HistoryToken::read(bad).is_err(), "{bad}");
        }
    }
}
