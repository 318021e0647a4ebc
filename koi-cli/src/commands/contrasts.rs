//! What contrasts say of a mechanism, for `koi mechanisms show`: a table of effects, and the
//! deployments behind them.

use koi_proto::v1;

use crate::client::Client;
use crate::output::{Grid, number};

/// Contrasts shown to people; programs get them all.
const SHOWN: usize = 40;

/// Asks the server.
///
/// # Errors
/// A server that cannot be reached or knows no such mechanism.
pub async fn contrasts_of(
    client: &Client,
    mechanism_id: &str,
) -> anyhow::Result<v1::GetContrastsReply> {
    let request = v1::GetContrastsRequest {
        mechanism_id: mechanism_id.to_owned(),
    };
    client.answer(client.contrasts().get_contrasts(request).await)
}

/// Both tables, or one sentence when there are no contrasts yet.
#[must_use]
pub fn contrasts_text(reply: &v1::GetContrastsReply) -> String {
    if reply.edges.is_empty() {
        return "no contrasts yet: no two deployments differ in one of its sources".to_owned();
    }
    let mut text = format!("{}\n\n{}", effects(reply), behind(reply));
    let shown = reply.contrasts.len().min(SHOWN);
    let more = (reply.contrasts.len() - shown) as u64 + reply.n_left_out;
    if more > 0 {
        text += &format!("\nand {more} more");
    }
    text
}

fn effects(reply: &v1::GetContrastsReply) -> String {
    let headings = [
        "EDGE",
        "ENVIRONMENT",
        "SLOPE",
        "ERROR",
        "CONTRASTS",
        "VERDICT",
    ];
    let mut grid = Grid::new(&headings);
    for e in &reply.edges {
        grid.row([
            e.edge_id.clone(),
            e.environment.clone(),
            number(e.slope, 3),
            number(e.standard_error, 3),
            e.n_contrasts.to_string(),
            e.verdict.clone(),
        ]);
        for pair in &e.levels {
            grid.row([
                format!("  {} to {}", pair.from, pair.to),
                String::new(),
                number(Some(pair.mean_change), 3),
                String::new(),
                pair.n_contrasts.to_string(),
                String::new(),
            ]);
        }
    }
    grid.numbers(&[2, 3, 4]).text()
}

fn behind(reply: &v1::GetContrastsReply) -> String {
    let headings = ["DEPLOYMENT", "AGAINST", "EDGE", "SOURCE", "LEFT OVER"];
    let mut grid = Grid::new(&headings);
    for c in reply.contrasts.iter().take(SHOWN) {
        let source = if c.from_level.is_empty() {
            format!("{:+.3}", c.z)
        } else {
            format!("{} to {}", c.from_level, c.to_level)
        };
        grid.row([
            named(c.deployment.as_ref()),
            named(c.reference.as_ref()),
            c.edge_id.clone(),
            source,
            format!("{:+.3}", c.delta),
        ]);
    }
    grid.numbers(&[3, 4]).text()
}

fn named(deployment: Option<&v1::DeploymentRef>) -> String {
    let Some(d) = deployment else {
        return String::new();
    };
    let job = if d.job_name.is_empty() {
        &d.job_id
    } else {
        &d.job_name
    };
    format!("{job}.g{}.r{}", d.generation, d.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_and_the_deployments_behind_them_are_shown() {
        let at = |name: &str, generation| {
            Some(v1::DeploymentRef {
                job_id: "id".to_owned(),
                job_name: name.to_owned(),
                generation,
                rank: 0,
            })
        };
        let reply = v1::GetContrastsReply {
            edges: vec![v1::EdgeContrast {
                edge_id: "max_num_seqs->running_requests".to_owned(),
                environment: "spot/aws/us-east-1/b/H100".to_owned(),
                slope: Some(0.8125),
                standard_error: Some(0.0416),
                n_contrasts: 7,
                verdict: "exercised".to_owned(),
                levels: Vec::new(),
            }],
            contrasts: vec![v1::Contrast {
                edge_id: "max_num_seqs->running_requests".to_owned(),
                environment: "spot/aws/us-east-1/b/H100".to_owned(),
                deployment: at("chat", 4),
                reference: at("", 3),
                z: 0.7042,
                delta: -0.25,
                ..v1::Contrast::default()
            }],
            n_left_out: 2,
        };
        let text = contrasts_text(&reply);
        for part in [
            "0.812",
            "0.042",
            "exercised",
            "chat.g4.r0",
            "id.g3.r0",
            "+0.704",
            "-0.250",
            "and 2 more",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let none = contrasts_text(&v1::GetContrastsReply::default());
        assert!(none.starts_with("no contrasts yet"));
    }
}
