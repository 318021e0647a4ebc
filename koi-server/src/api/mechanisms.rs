//! Mechanisms in the `Beliefs` service: list, show, propose, review.

use std::collections::BTreeMap;

use koi_core::causal::graph::id_kind;
use koi_core::causal::mechanism::MechanismDraft;
use koi_core::causal::{Belief, BeliefKey, Mechanism, Scope};
use koi_core::lifecycle::review::{seed_draft, seed_file};
use koi_core::lifecycle::{MechanismRecord, MechanismTrack, Origin, Review, admit, review, twin};
use koi_core::server::{Command, Reply};
use koi_proto::v1;
use prost::Message as _;
use tonic::Status;

use super::beliefs::BeliefsApi;
use super::idempotency::Asked;
use super::paging::{cut, page};
use super::status::{invalid, invalid_field, refused, store_failed};
use crate::auth::Identity;
use crate::core_loop::utc_now;

/// Longest scope.
const MAX_SCOPE_BYTES: usize = 8 * 1024;
/// Most edges looked at; the gate refuses fewer.
const MAX_EDGES: usize = 256;

fn wire(m: &Mechanism, beliefs: &BTreeMap<BeliefKey, v1::Belief>) -> v1::Mechanism {
    v1::Mechanism {
        mechanism_id: m.id.clone(),
        edge_ids: m.edges.iter().cloned().collect(),
        scope: m.scope.canonical(),
        narrative: m.narrative.clone(),
        status: format!("{:?}", m.status).to_lowercase(),
        belief: beliefs.get(&BeliefKey::Mechanism(m.id.clone())).cloned(),
    }
}

fn wire_track(track: &MechanismTrack) -> v1::MechanismTrack {
    v1::MechanismTrack {
        n_decided: track.n_decided,
        n_deployments: track.n_deployments,
        n_environments: track.n_environments,
        ticks_spanned: track.ticks_spanned(),
    }
}

fn reasons(review: Review) -> Vec<String> {
    match review {
        Review::Stay(reasons) => reasons,
        Review::Promote | Review::Archive => Vec::new(),
    }
}

impl BeliefsApi {
    pub(super) async fn mechanism_list(
        &self,
        request: v1::ListMechanismsRequest,
    ) -> Result<v1::ListMechanismsReply, Status> {
        let page = page(request.page)?;
        let (world, beliefs) = self.beliefs().await?;
        let all = world.causal.mechanisms().map(|m| wire(m, &beliefs));
        let (mechanisms, next) = cut(&page, all, |m| m.mechanism_id.clone());
        Ok(v1::ListMechanismsReply {
            mechanisms,
            page: Some(next),
        })
    }

    pub(super) async fn mechanism(&self, id: &str) -> Result<v1::GetMechanismReply, Status> {
        let (world, beliefs) = self.beliefs().await?;
        let shown: String = id.chars().take(120).collect();
        let missing = || {
            let text = format!("there is no mechanism {shown:?}; `koi mechanisms list` names all");
            Status::not_found(text)
        };
        let mechanism = world.causal.mechanism(id).ok_or_else(missing)?;
        let tracks = self.store.mechanism_tracks().await;
        let tracks = tracks.map_err(|e| store_failed(&e))?;
        let track = tracks.get(id).copied().unwrap_or_default();
        let (_, learned) = self.learned().await?;
        let key = BeliefKey::Mechanism(id.to_owned());
        let belief = learned
            .get(&key)
            .copied()
            .unwrap_or(Belief::of_counts(1, 1));
        let review = review(belief, &track, &world.params);
        let record = id.to_owned();
        let read = self.core.read(move |m| {
            m.state()
                .mechanisms
                .get(&record)
                .and_then(|r| r.proposed_by.clone())
        });
        let proposed_by = read.await.map_err(|refusal| refused(&refusal))?;
        let edges = || mechanism.edges.iter().filter_map(|e| world.causal.edge(e));
        let believed = edges().filter_map(|e| beliefs.get(&BeliefKey::Edge(e.id.clone())).cloned());
        Ok(v1::GetMechanismReply {
            mechanism: Some(wire(mechanism, &beliefs)),
            edges: believed.collect(),
            edge_docs: edges().map(|e| e.doc.clone()).collect(),
            track: Some(wire_track(&track)),
            review: review.name().to_owned(),
            reasons: reasons(review),
            proposed_by: proposed_by.unwrap_or_default(),
        })
    }

    pub(super) async fn mechanism_propose(
        &self,
        identity: &Identity,
        request: v1::ProposeMechanismRequest,
    ) -> Result<v1::ProposeMechanismReply, Status> {
        let (key, validate_only) = (request.idempotency_key.clone(), request.validate_only);
        let payload = v1::ProposeMechanismRequest {
            idempotency_key: String::new(),
            ..request.clone()
        };
        let draft = draft(request)?;
        let (world, _) = self.learned().await?;
        if let Some(known) = twin(&draft, &world.causal) {
            return Ok(v1::ProposeMechanismReply {
                mechanism_id: known.id.clone(),
                is_new: false,
            });
        }
        let kind_of = |name: &str| id_kind(world.catalog, name);
        let admitted = admit(draft, Origin::Proposal, &world.causal, &kind_of);
        let mechanism = admitted.map_err(|problems| invalid(&problems))?;
        let mut mechanism_id = mechanism.id.clone();
        if !validate_only {
            let payload = payload.encode_to_vec();
            mechanism_id = match self.requests.ask(identity, &key, &payload).await? {
                Asked::Before(object) => object,
                Asked::Now(turn) => {
                    let record = MechanismRecord::proposal(&mechanism, &identity.name(), utc_now());
                    let (record, request) = (Box::new(record), turn.record.clone());
                    let command = Command::ProposeMechanism { record, request };
                    let core = self.core.clone();
                    let done = turn.run(async move { core.command(command).await });
                    match done.await?.map_err(|refusal| refused(&refusal))? {
                        Reply::Object(id) => id,
                        Reply::TickOpened(_) | Reply::Done => {
                            return Err(Status::internal("no id came back"));
                        }
                    }
                }
            };
        }
        Ok(v1::ProposeMechanismReply {
            mechanism_id,
            is_new: true,
        })
    }

    pub(super) async fn mechanisms_promote(&self) -> Result<v1::PromoteMechanismsReply, Status> {
        let (world, beliefs) = self.learned().await?;
        let tracks = self.store.mechanism_tracks().await;
        let tracks = tracks.map_err(|e| store_failed(&e))?;
        let (mut reviews, mut drafts) = (Vec::new(), Vec::new());
        for m in world.causal.mechanisms() {
            let belief = beliefs.get(&BeliefKey::Mechanism(m.id.clone())).copied();
            let belief = belief.unwrap_or(Belief::of_counts(1, 1));
            let track = tracks.get(&m.id).copied().unwrap_or_default();
            let is_seed = self.world.causal.mechanism(&m.id).is_some();
            let verdict = review(belief, &track, &world.params);
            if verdict == Review::Promote && !is_seed {
                drafts.push(seed_draft(m, belief));
            }
            reviews.push(v1::MechanismReview {
                mechanism_id: m.id.clone(),
                verdict: verdict.name().to_owned(),
                reasons: reasons(verdict),
                track: Some(wire_track(&track)),
                confidence: belief.mean(),
                is_seed,
            });
        }
        let written = |e| Status::internal(format!("the seed file cannot be written: {e}"));
        let seed_file_toml = if drafts.is_empty() {
            String::new()
        } else {
            seed_file(&drafts).map_err(written)?
        };
        Ok(v1::PromoteMechanismsReply {
            seed_file_toml,
            promoted: drafts.into_iter().filter_map(|d| d.id).collect(),
            reviews,
        })
    }
}

/// The draft of a request, bounded before anything is made of it.
fn draft(request: v1::ProposeMechanismRequest) -> Result<MechanismDraft, Status> {
    if request.edge_ids.len() > MAX_EDGES {
        return Err(invalid_field("edge_ids", format!("at most {MAX_EDGES}")));
    }
    if request.scope_json.len() > MAX_SCOPE_BYTES {
        return Err(invalid_field(
            "scope_json",
            format!("at most {MAX_SCOPE_BYTES} bytes"),
        ));
    }
    let scope = if request.scope_json.is_empty() {
        Scope::default()
    } else {
        let read = serde_json::from_str(&request.scope_json);
        read.map_err(|e| invalid_field("scope_json", e.to_string()))?
    };
    Ok(MechanismDraft {
        id: None,
        edges: request.edge_ids,
        scope,
        narrative: request.narrative,
        prior: None,
    })
}
