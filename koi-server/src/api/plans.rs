//! The `Plans` service.

use std::collections::BTreeMap;

use koi_core::ids::{JobId, PlanSeq};
use koi_core::store::PlanRecord;
use koi_proto::v1;
use tonic::{Request, Response, Status};

use super::encode;
use super::status::{refused, store_failed};
use crate::auth::TokenTable;
use crate::core_loop::Core;
use crate::store::{PageRequest, Store};

/// The `Plans` service.
#[derive(Clone)]
pub struct PlansApi {
    /// Names of live jobs.
    pub core: Core,
    /// History.
    pub store: Store,
    /// Who may ask.
    pub tokens: TokenTable,
}

/// Names of the jobs the server remembers.
pub(super) async fn job_names(core: &Core) -> Result<BTreeMap<JobId, String>, Status> {
    let read = core.read(|m| {
        let jobs = m.state().jobs.values();
        jobs.map(|j| (j.id, j.spec.name.to_string()))
            .collect::<BTreeMap<_, _>>()
    });
    read.await.map_err(|refusal| refused(&refusal))
}

impl PlansApi {
    fn to_wire(plan: &PlanRecord, whole: bool, names: &BTreeMap<JobId, String>) -> v1::Plan {
        encode::plan(plan, whole, |id| {
            names.get(&id).cloned().unwrap_or_else(|| id.to_string())
        })
    }
}

#[tonic::async_trait]
impl v1::plans_server::Plans for PlansApi {
    async fn get_plan(
        &self,
        request: Request<v1::GetPlanRequest>,
    ) -> Result<Response<v1::GetPlanReply>, Status> {
        self.tokens.operator(&request)?;
        let seq = request.into_inner().seq;
        let wanted = (seq != 0).then_some(PlanSeq(seq));
        let plan = self
            .store
            .plan(wanted)
            .await
            .map_err(|e| store_failed(&e))?;
        let plan = plan.ok_or_else(|| match wanted {
            Some(seq) => Status::not_found(format!("there is no plan {seq}")),
            None => Status::not_found("no plan has been made yet"),
        })?;
        let plan = Self::to_wire(&plan, true, &job_names(&self.core).await?);
        Ok(Response::new(v1::GetPlanReply { plan: Some(plan) }))
    }

    async fn list_plans(
        &self,
        request: Request<v1::ListPlansRequest>,
    ) -> Result<Response<v1::ListPlansReply>, Status> {
        self.tokens.operator(&request)?;
        let page = request.into_inner().page.unwrap_or_default();
        let token = Some(page.token).filter(|t| !t.is_empty());
        let request = PageRequest {
            limit: page.size,
            token,
        };
        let found = self
            .store
            .plans(&request)
            .await
            .map_err(|e| store_failed(&e))?;
        let names = job_names(&self.core).await?;
        Ok(Response::new(v1::ListPlansReply {
            plans: found
                .items
                .iter()
                .map(|p| Self::to_wire(p, false, &names))
                .collect(),
            page: Some(v1::PageReply {
                next_token: found.next.unwrap_or_default(),
            }),
        }))
    }
}
