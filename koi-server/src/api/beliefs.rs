//! The `Beliefs` service.

use std::collections::BTreeMap;

use koi_core::causal::{Belief, BeliefKey};
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::paging::{cut, page};
use super::status::{refused, store_failed};
use crate::auth::TokenTable;
use crate::core_loop::Core;
use crate::store::Store;
use crate::tick::run::World;

/// The `Beliefs` service.
#[derive(Clone)]
pub struct BeliefsApi {
    /// Sums of belief events.
    pub core: Core,
    /// How many events there were.
    pub store: Store,
    /// Who may ask.
    pub tokens: TokenTable,
    /// Seeds.
    pub world: World,
}

impl BeliefsApi {
    async fn beliefs(&self) -> Result<BTreeMap<BeliefKey, v1::Belief>, Status> {
        let causal = self.world.causal.clone();
        let read = self.core.read(move |m| m.state().beliefs_from(&causal));
        let beliefs = read.await.map_err(|refusal| refused(&refusal))?;
        let counts = self
            .store
            .belief_event_counts()
            .await
            .map_err(|e| store_failed(&e))?;
        let wire = beliefs.into_iter().map(|(key, belief)| {
            let n_events = counts.get(&key).copied().unwrap_or(0);
            let wire = to_wire(&key, belief, n_events);
            (key, wire)
        });
        Ok(wire.collect())
    }
}

fn to_wire(key: &BeliefKey, belief: Belief, n_events: u64) -> v1::Belief {
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

#[tonic::async_trait]
impl v1::beliefs_server::Beliefs for BeliefsApi {
    async fn list_beliefs(
        &self,
        request: Request<v1::ListBeliefsRequest>,
    ) -> Result<Response<v1::ListBeliefsReply>, Status> {
        self.tokens.operator(&request)?;
        let page = page(request.into_inner().page)?;
        let beliefs = self.beliefs().await?;
        let (beliefs, next) = cut(&page, beliefs.into_iter(), |(key, _)| key.to_string());
        Ok(Response::new(v1::ListBeliefsReply {
            beliefs: beliefs.into_iter().map(|(_, b)| b).collect(),
            page: Some(next),
        }))
    }

    async fn list_mechanisms(
        &self,
        request: Request<v1::ListMechanismsRequest>,
    ) -> Result<Response<v1::ListMechanismsReply>, Status> {
        self.tokens.operator(&request)?;
        let page = page(request.into_inner().page)?;
        let beliefs = self.beliefs().await?;
        let mechanisms = self.world.causal.mechanisms().map(|m| v1::Mechanism {
            mechanism_id: m.id.clone(),
            edge_ids: m.edges.iter().cloned().collect(),
            scope: m.scope.canonical(),
            narrative: m.narrative.clone(),
            status: format!("{:?}", m.status).to_lowercase(),
            belief: beliefs.get(&BeliefKey::Mechanism(m.id.clone())).cloned(),
        });
        let (mechanisms, next) = cut(&page, mechanisms, |m| m.mechanism_id.clone());
        Ok(Response::new(v1::ListMechanismsReply {
            mechanisms,
            page: Some(next),
        }))
    }
}
