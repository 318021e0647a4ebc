//! `koi mechanisms`: list, show, propose, promote.

use koi_core::causal::mechanism::MechanismDraft;
use koi_proto::v1;

use super::Context;
use super::beliefs::belief_grid;
use super::{contrasts_of, contrasts_text};
use crate::args::{Global, MechanismsArgs, MechanismsCommand, ProposeArgs};
use crate::client::idempotency_key;
use crate::failure::{ExitCode, Failure};
use crate::job_file::read_text;
use crate::output::{Grid, emit, escape, number};

const MAX_PAGES: usize = 100;
const PAGE_SIZE: u32 = 500;
/// Largest proposal.
const MAX_FILE_BYTES: usize = 64 * 1024;

/// Runs a command.
///
/// # Errors
/// A file that cannot be read or is refused (exit 2), a server that cannot be reached or refuses.
pub(super) async fn run(global: &Global, args: MechanismsArgs) -> anyhow::Result<()> {
    match args.command.unwrap_or(MechanismsCommand::List) {
        MechanismsCommand::List => list(&Context::connect(global).await?).await,
        MechanismsCommand::Show { id } => show(&Context::connect(global).await?, id).await,
        MechanismsCommand::Propose(args) => {
            // The file is read before anybody is asked.
            let text = read_text(&args.file, MAX_FILE_BYTES)?;
            let draft = parse(&text, &args.file.display().to_string())?;
            propose(&Context::connect(global).await?, &args, draft).await
        }
        MechanismsCommand::Promote { out } => {
            promote(&Context::connect(global).await?, out.as_deref()).await
        }
    }
}

/// One mechanism in TOML or JSON; a seed file with one `[[mechanism]]` will do.
fn parse(text: &str, name: &str) -> anyhow::Result<MechanismDraft> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct SeedFile {
        mechanism: Vec<MechanismDraft>,
    }
    let refused = |why: String| Failure::new(ExitCode::Invalid, format!("{name}: {why}"));
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|e| refused(e.to_string()).into());
    }
    let of_list = toml::from_str::<SeedFile>(text).ok();
    if let Some(SeedFile { mechanism }) = of_list {
        let n = mechanism.len();
        let [one] = <[MechanismDraft; 1]>::try_from(mechanism)
            .map_err(|_| refused(format!("{n} mechanisms; propose them one by one")))?;
        return Ok(one);
    }
    toml::from_str(text).map_err(|e| refused(e.to_string()).into())
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let (mut mechanisms, mut token) = (vec![], String::new());
    for _ in 0..MAX_PAGES {
        let page = Some(v1::PageRequest {
            size: PAGE_SIZE,
            token,
        });
        let request = v1::ListMechanismsRequest { page };
        let reply = context.client.beliefs().list_mechanisms(request).await;
        let reply = context.client.answer(reply)?;
        mechanisms.extend(reply.mechanisms);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    emit(context.format, &mechanisms, || {
        let headings = [
            "MECHANISM",
            "STATUS",
            "CONFIDENCE",
            "SCOPE",
            "EDGES",
            "NARRATIVE",
        ];
        let mut grid = Grid::new(&headings);
        for m in &mechanisms {
            grid.row([
                m.mechanism_id.clone(),
                m.status.clone(),
                number(m.belief.as_ref().map(|b| b.confidence), 3),
                m.scope.clone(),
                m.edge_ids.len().to_string(),
                m.narrative.clone(),
            ]);
        }
        grid.numbers(&[2, 4]).text()
    })
}

/// What is known of a mechanism, and the contrasts that say so.
#[derive(serde::Serialize)]
struct Told {
    #[serde(flatten)]
    mechanism: v1::GetMechanismReply,
    contrasts: v1::GetContrastsReply,
}

async fn show(context: &Context, mechanism_id: String) -> anyhow::Result<()> {
    let request = v1::GetMechanismRequest {
        mechanism_id: mechanism_id.clone(),
    };
    let reply = context.client.beliefs().get_mechanism(request).await;
    let told = Told {
        mechanism: context.client.answer(reply)?,
        contrasts: contrasts_of(&context.client, &mechanism_id).await?,
    };
    emit(context.format, &told, || {
        format!(
            "{}\n\n{}",
            shown(&told.mechanism),
            contrasts_text(&told.contrasts)
        )
    })
}

fn shown(reply: &v1::GetMechanismReply) -> String {
    let m = reply.mechanism.clone().unwrap_or_default();
    let track = reply.track.unwrap_or_default();
    let mut out = vec![
        format!("{} ({})", m.mechanism_id, m.status),
        m.narrative.clone(),
        format!("scope: {}", m.scope),
    ];
    if !reply.proposed_by.is_empty() {
        out.push(format!("proposed by {}", reply.proposed_by));
    }
    out.push(format!(
        "decided: {} rows from {} deployments in {} environments over {} ticks",
        track.n_decided, track.n_deployments, track.n_environments, track.ticks_spanned
    ));
    let why = match reply.reasons.is_empty() {
        true => String::new(),
        false => format!(": {}", reply.reasons.join(", ")),
    };
    out.push(format!("review: {}{why}", reply.review));
    let lines: Vec<String> = out.iter().map(|line| escape(line)).collect();
    let beliefs: Vec<v1::Belief> = m.belief.into_iter().chain(reply.edges.clone()).collect();
    let docs = reply.edges.iter().zip(&reply.edge_docs);
    let docs: Vec<String> = docs
        .map(|(e, doc)| escape(&format!("{}: {doc}", e.subject)))
        .collect();
    format!(
        "{}\n\n{}\n\n{}",
        lines.join("\n"),
        belief_grid(&beliefs),
        docs.join("\n")
    )
}

async fn propose(
    context: &Context,
    args: &ProposeArgs,
    draft: MechanismDraft,
) -> anyhow::Result<()> {
    let request = v1::ProposeMechanismRequest {
        idempotency_key: args.idempotency_key.clone().unwrap_or_else(idempotency_key),
        edge_ids: draft.edges,
        scope_json: serde_json::to_string(&draft.scope)?,
        narrative: draft.narrative,
        validate_only: args.dry_run,
    };
    let reply = context.client.beliefs().propose_mechanism(request).await;
    let reply = context.client.answer(reply)?;
    emit(context.format, &reply, || {
        let id = escape(&reply.mechanism_id);
        match (reply.is_new, args.dry_run) {
            (false, _) => format!("{id} says the same already; nothing was stored"),
            (true, true) => format!("{id} would be admitted; nothing was stored"),
            (true, false) => {
                format!("{id} was admitted at Beta(1, 1); it speaks from the next tick")
            }
        }
    })
}

async fn promote(context: &Context, out: Option<&std::path::Path>) -> anyhow::Result<()> {
    let request = v1::PromoteMechanismsRequest {};
    let reply = context.client.beliefs().promote_mechanisms(request).await;
    let reply = context.client.answer(reply)?;
    if let Some(path) = out.filter(|_| !reply.seed_file_toml.is_empty()) {
        let written = std::fs::write(path, &reply.seed_file_toml);
        written.map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
    }
    emit(context.format, &reply, || reviewed(&reply, out))
}

fn reviewed(reply: &v1::PromoteMechanismsReply, out: Option<&std::path::Path>) -> String {
    let headings = [
        "MECHANISM",
        "ORIGIN",
        "REVIEW",
        "CONFIDENCE",
        "ROWS",
        "DEPLOYMENTS",
        "ENVIRONMENTS",
        "WHY",
    ];
    let mut grid = Grid::new(&headings);
    for r in &reply.reviews {
        let track = r.track.unwrap_or_default();
        let origin = if r.is_seed { "seed" } else { "proposal" };
        grid.row([
            r.mechanism_id.clone(),
            origin.to_owned(),
            r.verdict.clone(),
            number(Some(r.confidence), 3),
            track.n_decided.to_string(),
            track.n_deployments.to_string(),
            track.n_environments.to_string(),
            r.reasons.join(", "),
        ]);
    }
    let table = grid.numbers(&[3, 4, 5, 6]).text();
    let sentence = match (reply.promoted.len(), out) {
        (0, _) => "no proposal is promoted; no seed file was written".to_owned(),
        (n, Some(path)) => format!("{n} promoted; {} is the next seed file", path.display()),
        (_, None) => escape_lines(&reply.seed_file_toml),
    };
    format!("{table}\n\n{sentence}")
}

/// Escapes line by line, so that the lines of a file stay lines.
fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str =
        "edges = [\"a->b\"]\nnarrative = \"Why.\"\n[scope]\nworkload_type = \"online\"\n";

    #[test]
    fn toml_json_and_a_seed_file_of_one_are_read_alike() {
        let plain = parse(TOML, "f").unwrap();
        let json =
            r#"{"edges": ["a->b"], "narrative": "Why.", "scope": {"workload_type": "online"}}"#;
        assert_eq!(parse(json, "f").unwrap(), plain);
        let seed = "[[mechanism]]\nedges = [\"a->b\"]\nnarrative = \"Why.\"\nscope = { workload_type = \"online\" }\n";
        assert_eq!(parse(seed, "f").unwrap(), plain);
        let two = format!("{seed}{seed}");
        assert!(
            parse(&two, "f")
                .unwrap_err()
                .to_string()
                .contains("one by one")
        );
        assert!(parse("edges = 3", "f").is_err());
        assert!(parse("confidence = 0.99\nedges = []\nnarrative = \"\"", "f").is_err());
    }

    #[test]
    fn a_review_says_where_the_seed_file_is() {
        let mut reply = v1::PromoteMechanismsReply::default();
        assert!(reviewed(&reply, None).contains("no proposal is promoted"));
        reply.promoted = vec!["M_1".to_owned()];
        reply.seed_file_toml = "[[mechanism]]\nid = \"M_1\"\n".to_owned();
        assert!(reviewed(&reply, None).contains("[[mechanism]]\nid = \"M_1\""));
        let path = std::path::Path::new("learned.toml");
        assert!(reviewed(&reply, Some(path)).contains("learned.toml is the next seed file"));
    }
}
