//! `koi submit`: everything is checked here, then again by the server.

use koi_core::time::UtcMicros;
use koi_proto::v1;

use crate::args::{Global, SubmitArgs};
use crate::client::{Client, Target, idempotency_key};
use crate::failure::{ExitCode, Failure};
use crate::job_file::{self, Changes, JobFile};
use crate::output::{emit, now_us};

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// Accepted under this id.
    Accepted(String),
    /// A live job of this name exists already.
    Exists,
}

pub(super) async fn run(global: &Global, args: &SubmitArgs) -> anyhow::Result<()> {
    let changes = Changes {
        set: &args.set,
        name: args.name.as_deref(),
    };
    let file = job_file::read(&args.file, &changes, UtcMicros(now_us()))?;
    let client = Client::connect(&Target::resolve(global)?).await?;
    let request = v1::SubmitJobRequest {
        idempotency_key: args.idempotency_key.clone().unwrap_or_else(idempotency_key),
        spec: Some(file.draft.into()),
        validate_only: args.validate_only,
    };
    let reply = client.answer(client.jobs().submit_job(request).await)?;
    let name = file.spec.name.as_str();
    emit(global.output, &reply, || {
        if args.validate_only {
            format!("{name} is valid; nothing was stored")
        } else {
            format!(
                "accepted {name} ({}); follow it with `koi inspect job {name}`",
                reply.job_id
            )
        }
    })
}

/// Submits a checked job file; a live job of the same name counts as done.
///
/// # Errors
/// A [`Failure`] of any other kind.
pub async fn send(client: &Client, file: &JobFile, key: String) -> anyhow::Result<Submission> {
    let request = v1::SubmitJobRequest {
        idempotency_key: key,
        spec: Some(file.draft.clone().into()),
        validate_only: false,
    };
    match client.answer(client.jobs().submit_job(request).await) {
        Ok(reply) => Ok(Submission::Accepted(reply.job_id)),
        Err(e)
            if e.downcast_ref::<Failure>()
                .is_some_and(|f| f.code == ExitCode::Conflict) =>
        {
            Ok(Submission::Exists)
        }
        Err(e) => Err(e),
    }
}
