//! Pages of jobs that are over; they follow the live ones.

use koi_core::rollout::SloTally;
use koi_proto::v1;
use tonic::Status;

use super::JobsApi;
use crate::api::job_view::JobView;
use crate::api::paging::Page;
use crate::api::status::store_failed;
use crate::store::PageRequest;

/// Before the tokens of these pages, so that they are told from those of live jobs.
pub(super) const OVER: &str = "over:";

impl JobsApi {
    /// Jobs that are over, behind the live ones of the last page of those.
    pub(super) async fn fill_with_finished(
        &self,
        page: &Page,
        reply: &mut v1::ListJobsReply,
    ) -> Result<(), Status> {
        let room = page.size.saturating_sub(reply.jobs.len()) as u32;
        if room == 0 {
            let next_token = OVER.to_owned();
            reply.page = Some(v1::PageReply { next_token });
            return Ok(());
        }
        let finished = self.finished_from(room, "").await?;
        reply.jobs.extend(finished.jobs);
        reply.page = finished.page;
        Ok(())
    }

    /// A page of jobs that are over, the last one first.
    pub(super) async fn finished_from(
        &self,
        limit: u32,
        token: &str,
    ) -> Result<v1::ListJobsReply, Status> {
        let request = PageRequest {
            limit,
            token: Some(token.to_owned()).filter(|t| !t.is_empty()),
        };
        let found = self
            .store
            .jobs_finished(&request)
            .await
            .map_err(|e| store_failed(&e))?;
        let jobs = found.items.into_iter().map(|finished| {
            JobView {
                record: finished.record,
                replicas: Vec::new(),
                current: None,
                usd_per_hour: None,
                tally: SloTally::default(),
            }
            .to_wire()
        });
        let next_token = found
            .next
            .map_or_else(String::new, |t| format!("{OVER}{t}"));
        Ok(v1::ListJobsReply {
            jobs: jobs.collect(),
            page: Some(v1::PageReply { next_token }),
        })
    }
}
