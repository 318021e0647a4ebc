//! What `koi up` shows while the cluster runs: a view that refreshes in place on a terminal, a line
//! now and then elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use koi_proto::v1;

use super::cluster::Cluster;
use super::startup::client;
use crate::client::Client;
use crate::commands::{job_grid, list_all_jobs, list_all_nodes};
use crate::output::{escape, span};

/// Time between refreshes on a terminal.
const REFRESH: Duration = Duration::from_secs(2);
/// Time between lines elsewhere.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Alternate screen on, no wrapping of long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?1049l";

/// Shows the cluster until `stop` completes.
pub(super) async fn until(cluster: &Cluster, stop: impl Future<Output = ()>) {
    let Ok(client) = client(cluster) else {
        return stop.await;
    };
    let is_terminal = std::io::stdout().is_terminal();
    if is_terminal {
        cluster.events.live();
        put(ENTER);
    }
    let interval = if is_terminal { REFRESH } else { LINE_INTERVAL };
    tokio::pin!(stop);
    loop {
        let look = tokio::time::timeout(Duration::from_secs(5), View::look(&client));
        tokio::select! {
            view = look => match view {
                Ok(Ok(view)) if is_terminal => put(&screen(&view.text(), &cluster.events.recent())),
                Ok(Ok(view)) => cluster.events.say(&view.line()),
                Ok(Err(problem)) if is_terminal => put(&screen(&problem, &cluster.events.recent())),
                Ok(Err(problem)) => cluster.events.say(&problem),
                Err(_) => {}
            },
            () = &mut stop => break,
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = &mut stop => break,
        }
    }
    if is_terminal {
        put(LEAVE);
    }
}

fn put(text: &str) {
    let mut out = std::io::stdout().lock();
    // A terminal that has gone must not stop the cluster.
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .ok();
}

/// Writes over the old picture line by line, so that nothing flickers.
fn screen(body: &str, events: &[String]) -> String {
    let mut text = String::from("\x1b[H");
    let head = ["koi up: Ctrl-C stops everything", ""].into_iter();
    let events = events.iter().map(String::as_str);
    for line in head.chain(body.lines()).chain([""]).chain(events) {
        text.push_str(line);
        text.push_str("\x1b[K\r\n");
    }
    text.push_str("\x1b[J");
    text
}

struct View {
    status: v1::GetStatusReply,
    jobs: Vec<v1::Job>,
    nodes: Vec<v1::Node>,
    tick: Option<v1::Tick>,
}

impl View {
    async fn look(client: &Client) -> Result<Self, String> {
        let problem = |e: anyhow::Error| format!("the server does not answer: {e:#}");
        let status = client
            .answer(client.admin().get_status(v1::GetStatusRequest {}).await)
            .map_err(problem)?;
        let jobs = list_all_jobs(client, false).await.map_err(problem)?;
        let nodes = list_all_nodes(client).await.map_err(problem)?;
        let page = Some(v1::PageRequest {
            size: 1,
            token: String::new(),
        });
        let ticks = client
            .ticks()
            .list_ticks(v1::ListTicksRequest { page })
            .await;
        let tick = ticks
            .ok()
            .and_then(|t| t.into_inner().ticks.into_iter().next());
        Ok(Self {
            status,
            jobs,
            nodes,
            tick,
        })
    }

    fn text(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(node).collect();
        [
            self.line(),
            self.tick_line(),
            String::new(),
            job_grid(&self.jobs),
            String::new(),
            nodes.join("\n"),
        ]
        .join("\n")
    }

    fn line(&self) -> String {
        let s = &self.status;
        let inside: u32 = self
            .jobs
            .iter()
            .filter_map(|j| j.measured.as_ref())
            .map(|m| m.n_windows_inside)
            .sum();
        let judged: u32 = self
            .jobs
            .iter()
            .filter_map(|j| j.measured.as_ref())
            .map(|m| m.n_windows_judged)
            .sum();
        let slo = if judged == 0 {
            "no window judged yet".to_owned()
        } else {
            format!("{inside}/{judged} windows inside the SLO")
        };
        escape(&format!(
            "{} jobs run, {} wait; {slo}; {}/{} nodes alive, {}/{} GPUs reserved; tick {}, next in {}{}",
            s.n_jobs_running,
            s.n_jobs_waiting,
            s.n_nodes_alive,
            s.n_nodes,
            s.n_gpus_reserved,
            s.n_gpus,
            s.tick_id,
            s.seconds_to_next_tick.map_or_else(|| "-".to_owned(), span),
            if s.database_ok {
                ""
            } else {
                "; database failing"
            },
        ))
    }

    fn tick_line(&self) -> String {
        let Some(t) = &self.tick else {
            return "no tick yet".to_owned();
        };
        let outcome = match (&t.failure, t.plan_seq) {
            (failure, _) if !failure.is_empty() => format!("kept all: {failure}"),
            (_, Some(seq)) => format!("plan {seq}"),
            (_, None) => format!("in {}", t.phase),
        };
        escape(&format!(
            "last tick {} ({}): {outcome}, {} evidence rows",
            t.tick_id, t.cause, t.n_evidence_rows
        ))
    }
}

fn node(n: &v1::Node) -> String {
    let gpu = n.environment.as_ref().map_or("?", |e| e.gpu_type.as_str());
    let market = n.environment.as_ref().map_or("?", |e| e.market.as_str());
    let bar: String = n
        .devices
        .iter()
        .map(|d| if d.replica_id.is_empty() { '.' } else { '#' })
        .collect();
    escape(&format!(
        "{:<12} {gpu:<6} {market:<10} {:<12} [{bar}]",
        n.host, n.liveness
    ))
}
