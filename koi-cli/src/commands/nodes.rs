//! `koi nodes`, `koi inspect node`, and changes to a node.

use koi_proto::v1;

use super::Context;
use super::values::place;
use crate::args::NodeChange;
use crate::client::{Client, idempotency_key};
use crate::output::{Grid, emit, escape, number, span};

const MAX_PAGES: usize = 100;
const PAGE_SIZE: u32 = 500;

/// Every node, page by page.
///
/// # Errors
/// A [`crate::failure::Failure`].
pub async fn list_all(client: &Client) -> anyhow::Result<Vec<v1::Node>> {
    let (mut nodes, mut token) = (vec![], String::new());
    for _ in 0..MAX_PAGES {
        let page = Some(v1::PageRequest {
            size: PAGE_SIZE,
            token,
        });
        let reply = client.answer(
            client
                .fleet()
                .list_nodes(v1::ListNodesRequest { page })
                .await,
        )?;
        nodes.extend(reply.nodes);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    Ok(nodes)
}

pub(super) async fn run(context: &Context, gpus: bool) -> anyhow::Result<()> {
    let nodes = list_all(&context.client).await?;
    emit(context.format, &nodes, || match (nodes.is_empty(), gpus) {
        (true, _) => "no nodes; agents register themselves when they connect".to_owned(),
        (false, true) => devices(&nodes),
        (false, false) => table(&nodes),
    })
}

fn status(node: &v1::Node) -> String {
    let flags = [
        (node.draining, "draining"),
        (node.cordoned && !node.draining, "cordoned"),
    ];
    let flags: Vec<&str> = flags
        .into_iter()
        .filter(|(on, _)| *on)
        .map(|(_, name)| name)
        .collect();
    std::iter::once(node.liveness.as_str())
        .chain(flags)
        .collect::<Vec<_>>()
        .join(",")
}

fn table(nodes: &[v1::Node]) -> String {
    let mut grid = Grid::new(&[
        "NODE",
        "STATUS",
        "GPUS USED",
        "ENVIRONMENT",
        "INSTANCE",
        "USD/h",
        "PRICE FROM",
        "HEARD",
    ]);
    for n in nodes {
        let used = n
            .devices
            .iter()
            .filter(|d| !d.replica_id.is_empty())
            .count();
        let price = if n.price_source.is_empty() {
            "-".to_owned()
        } else {
            format!("{}, {}", n.price_source, n.price_date)
        };
        grid.row([
            n.host.clone(),
            status(n),
            format!("{used}/{}", n.devices.len()),
            place(n.environment.as_ref()),
            n.instance_type.clone(),
            number(n.usd_per_hour, 2),
            price,
            n.seconds_since_heard
                .map_or_else(|| "-".to_owned(), |s| format!("{} ago", span(s))),
        ]);
    }
    grid.numbers(&[2, 5]).text()
}

fn devices(nodes: &[v1::Node]) -> String {
    let mut grid = Grid::new(&[
        "NODE",
        "GPU",
        "NAME",
        "MEMORY GiB",
        "USED GiB",
        "UTIL %",
        "POWER W",
        "REPLICA",
    ]);
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    for (n, d) in nodes
        .iter()
        .flat_map(|n| n.devices.iter().map(move |d| (n, d)))
    {
        grid.row([
            n.host.clone(),
            d.uuid.clone(),
            d.name.clone(),
            number(Some(gib(d.memory_bytes)), 0),
            number(d.memory_used_bytes.map(gib), 1),
            number(d.utilization_fraction.map(|f| 100.0 * f), 0),
            number(d.power_w, 0),
            if d.replica_id.is_empty() {
                "free".to_owned()
            } else {
                d.replica_id.clone()
            },
        ]);
    }
    grid.numbers(&[3, 4, 5, 6]).text()
}

pub(super) async fn inspect(context: &Context, host: &str) -> anyhow::Result<()> {
    let request = v1::GetNodeRequest {
        host: host.to_owned(),
    };
    let reply = context
        .client
        .answer(context.client.fleet().get_node(request).await)?;
    let node = reply.node.unwrap_or_default();
    emit(context.format, &node, || text(&node))
}

fn text(node: &v1::Node) -> String {
    let engines: Vec<String> = node
        .engines
        .iter()
        .map(|e| format!("{} {}", e.engine, e.version))
        .collect();
    let lines = [
        format!(
            "desired set  generation {}, observed {}",
            node.host_generation, node.observed_generation
        ),
        format!("engines      {}", engines.join(", ")),
        format!("address      {}", node.address),
        format!(
            "agent        build {}{}",
            node.build_id,
            if node.simulated {
                ", simulated devices"
            } else {
                ""
            }
        ),
    ];
    let lines: Vec<String> = lines.iter().map(|l| escape(l)).collect();
    let nodes = std::slice::from_ref(node);
    format!(
        "{}\n\n{}\n\n{}",
        table(nodes),
        lines.join("\n"),
        devices(nodes)
    )
}

pub(super) async fn cordon(
    context: &Context,
    change: NodeChange,
    cordoned: bool,
) -> anyhow::Result<()> {
    let request = v1::CordonNodeRequest {
        idempotency_key: idempotency_key(),
        host: change.host,
        cordoned,
        reason: change.reason,
    };
    let reply = context
        .client
        .answer(context.client.fleet().cordon_node(request).await)?;
    let node = reply.node.unwrap_or_default();
    emit(context.format, &node, || table(std::slice::from_ref(&node)))
}

pub(super) async fn drain(context: &Context, change: NodeChange) -> anyhow::Result<()> {
    let request = v1::DrainNodeRequest {
        idempotency_key: idempotency_key(),
        host: change.host,
        reason: change.reason,
    };
    let reply = context
        .client
        .answer(context.client.fleet().drain_node(request).await)?;
    let node = reply.node.unwrap_or_default();
    emit(context.format, &node, || table(std::slice::from_ref(&node)))
}
