//! `koi status`.

use koi_proto::v1;

use super::jobs::{job_grid, list_all};
use super::{Context, nodes};
use crate::output::{age, emit, escape, span};

pub(super) async fn run(context: &Context) -> anyhow::Result<()> {
    let client = &context.client;
    let status = client.answer(client.admin().get_status(v1::GetStatusRequest {}).await)?;
    let jobs = list_all(client, false).await?;
    let nodes = nodes::list_all(client).await?;
    let value = serde_json::json!({ "status": status, "jobs": jobs, "nodes": nodes });
    emit(context.format, &value, || {
        format!("{}\n\n{}", text(&status), job_grid(&jobs))
    })
}

/// The server's status as lines.
pub(crate) fn text(s: &v1::GetStatusReply) -> String {
    let next = s.seconds_to_next_tick.map_or_else(|| "-".to_owned(), span);
    let database = if s.database_ok {
        "ok".to_owned()
    } else {
        format!("failing: {}", s.database_error)
    };
    let lines = [
        format!(
            "server    build {}, epoch {}, up {}",
            s.build_id,
            s.epoch,
            age(s.started_at_us)
        ),
        format!("database  {database}"),
        format!(
            "tick      {} of {} s, next in {next}, plan {}",
            s.tick_id, s.tick_interval_s, s.plan_seq
        ),
        format!(
            "jobs      {} running, {} waiting",
            s.n_jobs_running, s.n_jobs_waiting
        ),
        format!(
            "nodes     {}/{} alive, {}/{} GPUs reserved",
            s.n_nodes_alive, s.n_nodes, s.n_gpus_reserved, s.n_gpus
        ),
    ];
    lines
        .iter()
        .map(|l| escape(l))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(reply: &v1::GetStatusReply, name: &str) -> String {
        let text = text(reply);
        let mut lines = text.lines().filter(|l| l.starts_with(name));
        lines.next().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_database_line_says_ok_only_when_it_is() {
        let well = v1::GetStatusReply {
            database_ok: true,
            ..v1::GetStatusReply::default()
        };
        assert_eq!(line(&well, "database"), "database  ok");
        let away = v1::GetStatusReply {
            database_ok: false,
            database_error: "no answer for 7 s: \u{1b}[2J".to_owned(),
            ..well
        };
        assert_eq!(
            line(&away, "database"),
            "database  failing: no answer for 7 s: \\u{1b}[2J"
        );
        // What a server does not say is not called well.
        let silent = v1::GetStatusReply::default();
        assert!(line(&silent, "database").starts_with("database  failing"));
        assert!(line(&silent, "tick").contains("next in -"));
    }
}
