//! `koi endpoints`: the ready endpoints of a job, once or at every change.

use koi_proto::v1;
use tonic::Request;

use super::Context;
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, Grid, emit, number, print};

pub(super) async fn run(context: &Context, job: &str, watch: bool) -> anyhow::Result<()> {
    let mut request = Request::new(v1::WatchEndpointsRequest {
        job: job.to_owned(),
    });
    if watch {
        // A watch has no end; the longest deadline that the header can say.
        request.set_timeout(std::time::Duration::from_secs(99_999_999));
    }
    let mut stream = context
        .client
        .answer(context.client.jobs().watch_endpoints(request).await)?;
    let mut seen = false;
    loop {
        let next = tokio::select! {
            next = stream.message() => next,
            _ = tokio::signal::ctrl_c(), if watch => return Ok(()),
        };
        match next.map_err(|s| Failure::from_status(&s, "the server"))? {
            Some(set) => show(context.format, &set, watch)?,
            None if seen => return Ok(()),
            None => {
                return Err(Failure::new(
                    ExitCode::Unavailable,
                    "the server ended the stream without an answer",
                )
                .into());
            }
        }
        seen = true;
        if !watch {
            return Ok(());
        }
    }
}

fn show(format: Format, set: &v1::EndpointSet, watch: bool) -> anyhow::Result<()> {
    match (format, watch) {
        // One document a line while watching, so that programs can read it as it comes.
        (Format::Json, true) => print(&serde_json::to_string(set)?),
        (Format::Yaml, true) => print(&format!(
            "---\n{}",
            serde_yaml_ng::to_string(set)?.trim_end()
        )),
        _ => emit(format, set, || text(set)),
    }
}

fn text(set: &v1::EndpointSet) -> String {
    let mut grid = Grid::new(&["ENDPOINT", "REPLICA", "WEIGHT", "MODEL"]);
    for e in &set.endpoints {
        grid.row([
            format!("http://{}:{}", e.address, e.port),
            e.replica_id.clone(),
            number(Some(e.weight), 3),
            e.served_model_name.clone(),
        ]);
    }
    format!(
        "{} version {}: {} ready\n{}",
        crate::output::escape(&set.job),
        set.version,
        set.endpoints.len(),
        grid.numbers(&[2]).text()
    )
}
