//! The `Jobs` service.

mod over;

use std::sync::{Arc, Mutex};

use koi_core::ids::JobId;
use koi_core::job::JobSpec;
use koi_core::job::draft::JobDraft;
use koi_core::rollout::SloTally;
use koi_core::server::{Command, Reply};
use koi_core::store::JobRecord;
use koi_core::tick::observatory::Observatory;
use koi_core::violation::nearest;
use koi_proto::v1;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tonic::{Request, Response, Status};

use super::encode;
use super::explain::explain;
use super::idempotency::{Asked, Requests};
use super::job_view::{JobView, Lookback};
use super::paging::{cut, page};
use super::status::{invalid, invalid_field, not_found, refused, searchable, store_failed};
use crate::auth::TokenTable;
use crate::core_loop::{Core, utc_now};
use crate::endpoints::EndpointBoard;
use crate::store::Store;
use crate::tick::run::{World, lock};
use over::OVER;

/// The `Jobs` service.
#[derive(Clone)]
pub struct JobsApi {
    /// Decisions.
    pub core: Core,
    /// History.
    pub store: Store,
    /// Idempotency keys.
    pub requests: Requests,
    /// Who may ask.
    pub tokens: TokenTable,
    /// Endpoints.
    pub endpoints: Arc<EndpointBoard>,
    /// What agents showed.
    pub observatory: Arc<Mutex<Observatory>>,
    /// Closed world.
    pub world: World,
}

impl JobsApi {
    /// A live job by id or name, else one that is over.
    pub(super) async fn find(&self, text: &str) -> Result<JobView, Status> {
        self.find_over(text, Lookback::Recent).await
    }

    /// The same, measured over an interval.
    async fn find_over(&self, text: &str, lookback: Lookback) -> Result<JobView, Status> {
        if text.is_empty() || text.len() > 100 {
            return Err(invalid_field("job", "name a job by its name or id"));
        }
        searchable(text).map_err(|why| invalid_field("job", why))?;
        let wanted = text.to_owned();
        let is_wanted =
            move |job: &JobRecord| job.spec.name.as_str() == wanted || job.id.to_string() == wanted;
        let views = self.views(is_wanted, lookback);
        // Of a finished and a live job with one name, the live one is meant.
        let mut found = views.await?;
        found.sort_by_key(|v| (v.record.state.is_finished(), v.record.submitted_at));
        if let Some(view) = found.into_iter().next() {
            return Ok(view);
        }
        let record = self
            .store
            .job_by_name_or_id(text)
            .await
            .map_err(|e| store_failed(&e))?;
        let Some(record) = record else {
            return Err(self.no_such_job(text).await);
        };
        let tally = SloTally::default();
        Ok(JobView {
            record,
            replicas: Vec::new(),
            current: None,
            tally,
            usd_per_hour: None,
        })
    }

    async fn no_such_job(&self, text: &str) -> Status {
        let wrong = text.to_owned();
        let near = self.core.read(move |machine| {
            let jobs = machine.state().jobs.values();
            let names = jobs.map(|j| j.spec.name.as_str());
            nearest(&wrong, names).map(str::to_owned)
        });
        let near = near.await.ok().flatten();
        not_found("job", text, near.as_deref(), "koi jobs")
    }

    async fn views(
        &self,
        keep: impl Fn(&JobRecord) -> bool + Send + 'static,
        lookback: Lookback,
    ) -> Result<Vec<JobView>, Status> {
        let observatory = self.observatory.clone();
        let catalog = self.world.catalog;
        let read = self.core.read(move |machine| {
            let (state, live) = (machine.state(), machine.live());
            let observatory = lock(&observatory);
            let now = utc_now();
            let view = |job: &JobRecord| {
                let lookback = (lookback, now);
                JobView::of((state, live), &observatory, catalog, job, lookback)
            };
            state
                .jobs
                .values()
                .filter(|j| keep(j))
                .map(view)
                .collect::<Vec<_>>()
        });
        read.await.map_err(|refusal| refused(&refusal))
    }

    /// Validates a draft. A job that names no engine gets the fleet's.
    async fn validated(&self, mut draft: JobDraft) -> Result<JobSpec, Status> {
        if draft.engine.is_none() {
            let simulated = self.core.read(|m| {
                let mut hosts = m.state().hosts.values().peekable();
                hosts.peek().is_some() && hosts.all(|h| h.facts.simulated)
            });
            let simulated = simulated.await.map_err(|refusal| refused(&refusal))?;
            draft.engine = Some(if simulated { "sim" } else { "vllm" }.to_owned());
        }
        draft
            .validate(utc_now())
            .map_err(|violations| invalid(&violations))
    }
}

/// A draft as text that is the same for equal drafts: a map on the wire has no order.
fn canonical(draft: &JobDraft) -> Result<Vec<u8>, Status> {
    serde_json::to_vec(draft).map_err(|e| Status::internal(format!("the spec has no text: {e}")))
}

#[tonic::async_trait]
impl v1::jobs_server::Jobs for JobsApi {
    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let request = request.into_inner();
        let wire = request.spec;
        let draft = JobDraft::from(wire.ok_or_else(|| invalid_field("spec", "is missing"))?);
        let payload = canonical(&draft)?;
        let spec = self.validated(draft).await?;
        let name = spec.name.to_string();
        if request.validate_only {
            return Ok(Response::new(v1::SubmitJobReply {
                job_id: String::new(),
                name,
            }));
        }
        let asked = self
            .requests
            .ask(&identity, &request.idempotency_key, &payload);
        let turn = match asked.await? {
            Asked::Before(job_id) => {
                return Ok(Response::new(v1::SubmitJobReply { job_id, name }));
            }
            Asked::Now(turn) => turn,
        };
        let id = JobId(uuid::Uuid::now_v7());
        let command = Command::SubmitJob {
            id,
            spec: Box::new(spec),
            request: turn.record.clone(),
        };
        let core = self.core.clone();
        let done = turn.run(async move { core.command(command).await });
        done.await?.map_err(|refusal| refused(&refusal))?;
        Ok(Response::new(v1::SubmitJobReply {
            job_id: id.to_string(),
            name,
        }))
    }

    async fn get_job(
        &self,
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobReply>, Status> {
        self.tokens.operator(&request)?;
        let request = request.into_inner();
        let lookback = Lookback::of(&request, utc_now())?;
        let view = self.find_over(&request.job, lookback).await?;
        Ok(Response::new(v1::GetJobReply {
            job: Some(view.to_wire()),
        }))
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsReply>, Status> {
        self.tokens.operator(&request)?;
        let request = request.into_inner();
        let asked = request.page.unwrap_or_default();
        if let Some(token) = asked.token.strip_prefix(OVER) {
            let reply = self.finished_from(asked.size, token).await?;
            return Ok(Response::new(reply));
        }
        let page = page(Some(asked))?;
        let mut views = self
            .views(|job| !job.state.is_finished(), Lookback::Recent)
            .await?;
        views.sort_by_key(|v| v.record.id);
        let (views, next) = cut(&page, views.into_iter(), |v| v.record.id.to_string());
        let mut reply = v1::ListJobsReply {
            jobs: views.iter().map(JobView::to_wire).collect(),
            page: Some(next),
        };
        let is_last = reply.page.as_ref().is_none_or(|p| p.next_token.is_empty());
        if request.include_finished && is_last {
            self.fill_with_finished(&page, &mut reply).await?;
        }
        Ok(Response::new(reply))
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobReply>, Status> {
        let identity = self.tokens.operator(&request)?;
        let request = request.into_inner();
        if request.reason.len() > 1024 {
            return Err(invalid_field("reason", "at most 1024 bytes"));
        }
        let record = self.find(&request.job).await?.record;
        let job = record.id;
        if record.state.is_finished() {
            // Over is over, whether or not the server still remembers it.
            let job_id = job.to_string();
            return Ok(Response::new(v1::CancelJobReply { job_id }));
        }
        let payload = format!("cancel {job}").into_bytes();
        let asked = self
            .requests
            .ask(&identity, &request.idempotency_key, &payload);
        let turn = match asked.await? {
            Asked::Before(job_id) => return Ok(Response::new(v1::CancelJobReply { job_id })),
            Asked::Now(turn) => turn,
        };
        let command = Command::CancelJob {
            job,
            reason: request.reason,
            request: turn.record.clone(),
        };
        let core = self.core.clone();
        let done = turn.run(async move { core.command(command).await });
        match done.await?.map_err(|refusal| refused(&refusal))? {
            Reply::Object(job_id) => Ok(Response::new(v1::CancelJobReply { job_id })),
            Reply::TickOpened(_) | Reply::Done => Err(Status::internal("no job id came back")),
        }
    }

    async fn explain_job(
        &self,
        request: Request<v1::ExplainJobRequest>,
    ) -> Result<Response<v1::ExplainJobReply>, Status> {
        self.tokens.operator(&request)?;
        let view = self.find(&request.into_inner().job).await?;
        let job = view.record.id;
        let plan = self
            .store
            .plan_for_job(job)
            .await
            .map_err(|e| store_failed(&e))?;
        let evidence = self
            .store
            .evidence_of_job(job, 50)
            .await
            .map_err(|e| store_failed(&e))?;
        let causal = self.world.causal.clone();
        let beliefs = self.core.read(move |m| m.state().beliefs_from(&causal));
        let beliefs = beliefs.await.map_err(|refusal| refused(&refusal))?;
        let reply = explain(
            &view,
            plan.as_ref(),
            &evidence,
            &beliefs,
            &self.world.causal,
        );
        Ok(Response::new(reply))
    }

    type WatchEndpointsStream =
        std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::EndpointSet, Status>> + Send>>;

    async fn watch_endpoints(
        &self,
        request: Request<v1::WatchEndpointsRequest>,
    ) -> Result<Response<Self::WatchEndpointsStream>, Status> {
        self.tokens.operator(&request)?;
        let job = self
            .find(&request.into_inner().job)
            .await?
            .record
            .spec
            .name
            .to_string();
        let (newest, changes) = self.endpoints.watch(&job);
        let first = newest.map(|set| Ok(encode::endpoints(&set)));
        let later = BroadcastStream::new(changes).filter_map(move |change| match change {
            Ok(set) if set.job == job => Some(Ok(encode::endpoints(&set))),
            Ok(_) => None,
            Err(BroadcastStreamRecvError::Lagged(_)) => Some(Err(Status::data_loss(
                "the watcher fell behind; watch again",
            ))),
        });
        Ok(Response::new(Box::pin(
            tokio_stream::iter(first).chain(later),
        )))
    }
}
