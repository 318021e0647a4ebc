//! The `Contrasts` service: what contrasts between deployments say of a mechanism's edges.

use std::collections::BTreeMap;

use koi_core::causal::{CausalModel, Mechanism};
use koi_core::ids::{JobId, TickId};
use koi_core::store::ServerState;
use koi_core::validation::contrast::errors::ChangeErrors;
use koi_core::validation::contrast::judgement::edge_judgement;
use koi_core::validation::contrast::{
    ContrastRow, DeploymentId, DeploymentRecord, EdgeSums, EdgeVerdict,
};
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::status::refused;
use crate::auth::TokenTable;
use crate::core_loop::Core;
use crate::tick::run::World;

/// Most contrasts of one answer.
const MAX_CONTRASTS: usize = 500;

/// The `Contrasts` service.
#[derive(Clone)]
pub struct ContrastsApi {
    /// The book of deployments.
    pub core: Core,
    /// Who may ask.
    pub tokens: TokenTable,
    /// Edges and mechanisms.
    pub world: World,
}

#[tonic::async_trait]
impl v1::contrasts_server::Contrasts for ContrastsApi {
    async fn get_contrasts(
        &self,
        request: Request<v1::GetContrastsRequest>,
    ) -> Result<Response<v1::GetContrastsReply>, Status> {
        self.tokens.operator(&request)?;
        let id = request.into_inner().mechanism_id;
        let causal = self.world.causal.clone();
        let unknown = || Status::not_found(format!("there is no mechanism {id:.80?}"));
        let mechanism = causal.mechanism(&id).cloned().ok_or_else(unknown)?;
        let read = self
            .core
            .read(move |m| reply(m.state(), &causal, &mechanism));
        let reply = read.await.map_err(|refusal| refused(&refusal))?;
        Ok(Response::new(reply))
    }
}

fn reply(state: &ServerState, model: &CausalModel, m: &Mechanism) -> v1::GetContrastsReply {
    let book = &state.contrasts;
    let errors = ChangeErrors::of(book);
    let scope = m.scope.canonical();
    let mut edges = Vec::new();
    for edge in m.edges.iter().filter_map(|id| model.edge(id)) {
        for (environment, sums) in book.sums_by_environment(&edge.id, &scope) {
            let Some(judgement) = edge_judgement(edge, sums, &errors).filter(|j| j.n > 0) else {
                continue;
            };
            edges.push(v1::EdgeContrast {
                edge_id: edge.id.clone(),
                environment: environment.to_owned(),
                slope: judgement.effect.map(|e| e.slope),
                standard_error: judgement.effect.map(|e| e.standard_error),
                n_contrasts: judgement.n,
                verdict: verdict_name(judgement.verdict).to_owned(),
                levels: levels(sums),
            });
        }
    }
    let mut found: Vec<(TickId, &DeploymentRecord, &ContrastRow)> = book
        .deployments()
        .flat_map(|d| d.contrasts.iter().map(move |c| (d.life.first_tick, d, c)))
        .filter(|(_, _, c)| c.scope == scope && m.edges.contains(&c.edge))
        .collect();
    found.sort_by_key(|(tick, d, _)| std::cmp::Reverse((*tick, d.subject.id)));
    let n_left_out = found.len().saturating_sub(MAX_CONTRASTS) as u64;
    let names: BTreeMap<JobId, &str> = state
        .jobs
        .values()
        .map(|j| (j.id, j.spec.name.as_str()))
        .collect();
    let contrasts = found.into_iter().take(MAX_CONTRASTS);
    v1::GetContrastsReply {
        edges,
        contrasts: contrasts
            .map(|(_, d, c)| contrast(d.subject.id, c, &names))
            .collect(),
        n_left_out,
    }
}

fn levels(sums: &EdgeSums) -> Vec<v1::LevelPair> {
    let pair = |(from, to, sums): (&str, &str, &koi_core::validation::contrast::ContrastSums)| {
        v1::LevelPair {
            from: from.to_owned(),
            to: to.to_owned(),
            n_contrasts: sums.n,
            mean_change: sums.zd / sums.zz.max(f64::MIN_POSITIVE),
        }
    };
    sums.levels.pairs().map(pair).collect()
}

fn contrast(id: DeploymentId, row: &ContrastRow, names: &BTreeMap<JobId, &str>) -> v1::Contrast {
    let refer = |id: DeploymentId| v1::DeploymentRef {
        job_id: id.job.to_string(),
        job_name: names
            .get(&id.job)
            .map_or_else(String::new, |n| (*n).to_owned()),
        generation: id.generation.0,
        rank: id.rank,
    };
    let (from_level, to_level) = row.levels.clone().unwrap_or_default();
    v1::Contrast {
        edge_id: row.edge.clone(),
        environment: row.environment.clone(),
        deployment: Some(refer(id)),
        reference: Some(refer(row.reference)),
        z: row.z,
        delta: row.delta,
        from_level,
        to_level,
    }
}

const fn verdict_name(verdict: EdgeVerdict) -> &'static str {
    match verdict {
        EdgeVerdict::Unexercised => "unexercised",
        EdgeVerdict::Exercised => "exercised",
        EdgeVerdict::Contradicted => "contradicted",
    }
}
