//! The `Ticks` service.

use std::collections::BTreeMap;

use koi_core::ids::{JobId, TickId};
use koi_core::tick::TickRecord;
use koi_core::validation::EvidenceRow;
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::encode;
use super::idempotency::{Asked, Requests};
use super::plans::job_names;
use super::status::store_failed;
use crate::auth::TokenTable;
use crate::core_loop::Core;
use crate::store::{PageRequest, Store};
use crate::tick::driver::TickHandle;
use crate::tick::run::TickError;

/// The payload of every request for a tick: they differ by nothing but their key.
const RUN_TICK: &[u8] = b"run tick";

/// The `Ticks` service.
#[derive(Clone)]
pub struct TicksApi {
    /// Names of live jobs.
    pub core: Core,
    /// History.
    pub store: Store,
    /// Idempotency keys.
    pub requests: Requests,
    /// Who may ask.
    pub tokens: TokenTable,
    /// Runs ticks.
    pub ticks: TickHandle,
}

#[tonic::async_trait]
impl v1::ticks_server::Ticks for TicksApi {
    async fn get_tick(
        &self,
        request: Request<v1::GetTickRequest>,
    ) -> Result<Response<v1::GetTickReply>, Status> {
        self.tokens.operator(&request)?;
        let id = request.into_inner().tick_id;
        let wanted = (id != 0).then_some(TickId(id));
        let tick = self
            .store
            .tick(wanted)
            .await
            .map_err(|e| store_failed(&e))?;
        let tick = tick.ok_or_else(|| match wanted {
            Some(id) => Status::not_found(format!("there is no tick {id}")),
            None => Status::not_found("no tick has run yet"),
        })?;
        let rows = self
            .store
            .evidence_of_tick(tick.id)
            .await
            .map_err(|e| store_failed(&e))?;
        let names = job_names(&self.core).await?;
        Ok(Response::new(v1::GetTickReply {
            tick: Some(encode::tick(&tick)),
            evidence: rows.iter().flat_map(|row| evidence(row, &names)).collect(),
        }))
    }

    async fn list_ticks(
        &self,
        request: Request<v1::ListTicksRequest>,
    ) -> Result<Response<v1::ListTicksReply>, Status> {
        self.tokens.operator(&request)?;
        let page = request.into_inner().page.unwrap_or_default();
        let token = Some(page.token).filter(|t| !t.is_empty());
        let request = PageRequest {
            limit: page.size,
            token,
        };
        let found = self
            .store
            .ticks(&request)
            .await
            .map_err(|e| store_failed(&e))?;
        Ok(Response::new(v1::ListTicksReply {
            ticks: found.items.iter().map(without_prices).collect(),
            page: Some(v1::PageReply {
                next_token: found.next.unwrap_or_default(),
            }),
        }))
    }

    async fn run_tick(
        &self,
        request: Request<v1::RunTickRequest>,
    ) -> Result<Response<v1::RunTickReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let key = request.into_inner().idempotency_key;
        let turn = match self.requests.ask(&identity, &key, RUN_TICK).await? {
            Asked::Before(id) => return self.ran_before(&id).await,
            Asked::Now(turn) => turn,
        };
        let (ticks, record) = (self.ticks.clone(), turn.record.clone());
        let ran = turn.run(async move { ticks.run_now(record).await }).await?;
        match ran {
            Ok(tick) => Ok(reply(&tick)),
            Err(error @ (TickError::Unavailable(_) | TickError::Stopping)) => {
                Err(Status::unavailable(error.to_string()))
            }
            Err(error @ TickError::Refused(_)) => Err(Status::aborted(error.to_string())),
            Err(error @ TickError::Panicked(_)) => Err(Status::internal(error.to_string())),
        }
    }
}

impl TicksApi {
    /// The tick that a key ran before, as it stands now.
    async fn ran_before(&self, id: &str) -> Result<Response<v1::RunTickReply>, Status> {
        let unknown = || Status::internal("the tick of this key is not known");
        let id = id.parse().map_err(|_| unknown())?;
        let found = self.store.tick(Some(TickId(id))).await;
        let tick = found.map_err(|e| store_failed(&e))?;
        Ok(reply(&tick.ok_or_else(unknown)?))
    }
}

fn reply(tick: &TickRecord) -> Response<v1::RunTickReply> {
    let tick = Some(encode::tick(tick));
    Response::new(v1::RunTickReply { tick })
}

/// A line of a list: prices are shown with one tick only.
fn without_prices(tick: &TickRecord) -> v1::Tick {
    v1::Tick {
        prices: Vec::new(),
        ..encode::tick(tick)
    }
}

fn evidence(row: &EvidenceRow, names: &BTreeMap<JobId, String>) -> Vec<v1::Evidence> {
    row.mechanisms
        .iter()
        .map(|m| {
            let mut notes = Vec::new();
            let verdicts = m.v_verdicts.iter().map(|(v, x)| (v.name(), x));
            let outcomes = m.y_verdicts.iter().map(|(y, x)| (y.name(), x));
            for (name, verdict) in verdicts.chain(outcomes) {
                match verdict {
                    None => notes.push(format!("{name} not judged")),
                    Some(koi_core::validation::Verdict::Diverged) => {
                        notes.push(format!("{name} diverged"));
                    }
                    Some(koi_core::validation::Verdict::Matched) => {}
                }
            }
            v1::Evidence {
                tick_id: row.tick.0,
                job: names
                    .get(&row.job)
                    .cloned()
                    .unwrap_or_else(|| row.job.to_string()),
                rank: row.rank,
                mechanism_id: m.id.clone(),
                quadrant: m.quadrant.map(|q| format!("{q:?}")).unwrap_or_default(),
                icp: "undecided".to_owned(),
                detail: notes.join(", "),
                n_points: row.points,
            }
        })
        .collect()
}
