//! `koi prices`: what machines cost, updates of the server's feed and removals from it.

use koi_core::catalog::price::{CsvOrigin, Date, PriceOverlay};
use koi_core::violation::FieldViolation;
use koi_proto::v1;

use super::Context;
use crate::args::{Global, Layer, PricesCommand, PricesList, PricesRemove, PricesUpdate};
use crate::client::idempotency_key;
use crate::failure::{ExitCode, Failure};
use crate::job_file::read_text;
use crate::output::{Grid, emit, escape, number};

/// Largest file.
const MAX_FILE_BYTES: usize = 8 * 1024 * 1024;
/// Warnings shown to people.
const SHOWN_WARNINGS: usize = 20;

/// Runs a command.
///
/// # Errors
/// A file that cannot be read or is refused (exit 2), a server that cannot be reached or refuses.
pub(super) async fn run(global: &Global, command: &PricesCommand) -> anyhow::Result<()> {
    match command {
        PricesCommand::List(args) => list(&Context::connect(global).await?, args).await,
        PricesCommand::Remove(args) => remove(&Context::connect(global).await?, args).await,
        PricesCommand::Update(args) => {
            // The file is read before anybody is asked.
            let overlay = read(args)?;
            update(&Context::connect(global).await?, args, overlay).await
        }
    }
}

fn invalid(message: impl Into<String>) -> anyhow::Error {
    Failure::new(ExitCode::Invalid, message).into()
}

fn read(args: &PricesUpdate) -> anyhow::Result<PriceOverlay> {
    let text = read_text(&args.file, MAX_FILE_BYTES)?;
    let given = args
        .date
        .as_deref()
        .map(str::parse::<Date>)
        .transpose()
        .map_err(|e| invalid(format!("--date: {e}")))?;
    let name = args.file.display().to_string();
    parse(&text, args.source.clone(), given)
        .map_err(|problems| Failure::invalid(&name, problems).into())
}

/// An overlay in TOML, or a table.
fn parse(
    text: &str,
    source: Option<String>,
    date: Option<Date>,
) -> Result<PriceOverlay, Vec<FieldViolation>> {
    if !is_table(text) {
        let mut overlay = PriceOverlay::parse(text)?;
        overlay.source = source.unwrap_or(overlay.source);
        overlay.date = date.unwrap_or(overlay.date);
        return Ok(overlay);
    }
    let missing = |field: &str, option: &str| FieldViolation {
        field: field.to_owned(),
        message: format!("a CSV does not say it: add {option}"),
    };
    match (source, date) {
        (Some(source), Some(date)) => PriceOverlay::parse_csv(text, CsvOrigin { source, date }),
        (source, date) => {
            let source = source.is_none().then(|| missing("source", "--source"));
            let date = date.is_none().then(|| missing("date", "--date"));
            Err(source.into_iter().chain(date).collect())
        }
    }
}

/// A table's first line has commas and sets no key.
fn is_table(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    first.is_some_and(|line| line.contains(',') && !line.contains('='))
}

async fn update(
    context: &Context,
    args: &PricesUpdate,
    overlay: PriceOverlay,
) -> anyhow::Result<()> {
    if !overlay.discounts.is_empty() {
        return Err(invalid(
            "a feed carries prices only: name a file with discounts as price_overlay in the server's settings",
        ));
    }
    let row = |p: &koi_core::catalog::price::OverlayPrice| (&p.key(), Some(p.usd_per_hour)).into();
    let request = v1::UpdatePricesRequest {
        idempotency_key: args.idempotency_key.clone().unwrap_or_else(idempotency_key),
        source: overlay.source.clone(),
        date: overlay.date.to_string(),
        prices: overlay.prices.iter().map(row).collect(),
        validate_only: args.dry_run,
    };
    let reply = context
        .client
        .answer(context.client.fleet().update_prices(request).await)?;
    emit(context.format, &reply, || updated(&reply, args.dry_run))
}

fn updated(reply: &v1::UpdatePricesReply, dry_run: bool) -> String {
    let mut out = vec![format!(
        "{} added, {} replaced, {} unchanged, {} left out because the feed has later ones",
        reply.n_added, reply.n_replaced, reply.n_unchanged, reply.n_older
    )];
    if dry_run {
        out.push("nothing was stored".to_owned());
    }
    for warning in reply.warnings.iter().take(SHOWN_WARNINGS) {
        let row = warning.price.clone().unwrap_or_default();
        out.push(escape(&format!(
            "warning: {}/{}/{}/{} {}",
            row.cloud, row.region, row.market, row.instance, warning.message
        )));
    }
    let shown = reply.warnings.len().min(SHOWN_WARNINGS);
    let rest = (reply.n_warnings as usize).saturating_sub(shown);
    if rest > 0 {
        out.push(format!("{rest} more warnings; -o json shows 1000"));
    }
    out.join("\n")
}

async fn remove(context: &Context, args: &PricesRemove) -> anyhow::Result<()> {
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let request = v1::RemovePricesRequest {
        idempotency_key: args.idempotency_key.clone().unwrap_or_else(idempotency_key),
        cloud: text(&args.scope.cloud),
        region: text(&args.scope.region),
        market: text(&args.scope.market),
        instance: text(&args.scope.instance),
        all: args.all,
        reason: args.reason.clone(),
        validate_only: args.dry_run,
    };
    let reply = context
        .client
        .answer(context.client.fleet().remove_prices(request).await)?;
    emit(context.format, &reply, || match args.dry_run {
        true => format!("{} would be removed", reply.n_removed),
        false => format!("{} removed", reply.n_removed),
    })
}

async fn list(context: &Context, args: &PricesList) -> anyhow::Result<()> {
    let (limit, mut token) = (args.limit as usize, String::new());
    let mut prices = Vec::new();
    let text = |t: &Option<String>| t.clone().unwrap_or_default();
    let origin = match args.origin {
        Some(Layer::List) => "list",
        Some(Layer::Overlay) => "overlay",
        Some(Layer::Feed) => "feed",
        None => "",
    };
    while prices.len() < limit {
        let size = u32::try_from((limit - prices.len()).min(500)).unwrap_or(500);
        let request = v1::ListPricesRequest {
            page: Some(v1::PageRequest { size, token }),
            cloud: text(&args.scope.cloud),
            region: text(&args.scope.region),
            market: text(&args.scope.market),
            instance: text(&args.scope.instance),
            origin: origin.to_owned(),
        };
        let reply = context
            .client
            .answer(context.client.fleet().list_prices(request).await)?;
        prices.extend(reply.prices);
        token = reply.page.unwrap_or_default().next_token;
        if token.is_empty() {
            break;
        }
    }
    emit(context.format, &prices, || match prices.is_empty() {
        true => "no such prices".to_owned(),
        false => table(&prices),
    })
}

fn table(prices: &[v1::HeldPrice]) -> String {
    let mut grid = Grid::new(&[
        "CLOUD", "REGION", "MARKET", "INSTANCE", "USD/h", "FROM", "DATE", "SOURCE", "DOUBTS",
    ]);
    for held in prices {
        let row = held.price.clone().unwrap_or_default();
        grid.row([
            row.cloud,
            row.region,
            row.market,
            row.instance,
            number(row.usd_per_hour, 3),
            held.origin.clone(),
            held.date.clone(),
            held.source.clone(),
            held.problems.join(", "),
        ]);
    }
    grid.numbers(&[4]).text()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: &str =
        "cloud,region,market,instance,usd_per_hour\naws,us-east-1,spot,g5.xlarge,0.4\n";

    #[test]
    fn both_forms_are_read() {
        let day = "2026-11-30".parse().unwrap();
        let from_csv = parse(CSV, Some("a test".into()), Some(day)).unwrap();
        let toml = "source = \"a test\"\ndate = \"2026-11-30\"\n[[price]]\ncloud = \"aws\"\nregion = \"us-east-1\"\nmarket = \"spot\"\ninstance = \"g5.xlarge\"\nusd_per_hour = 0.4\n";
        assert_eq!(parse(toml, None, None).unwrap(), from_csv);
        let other = parse(toml, Some("b".into()), None).unwrap();
        assert_eq!(other.source, "b");
    }

    #[test]
    fn a_table_without_source_and_day_says_both() {
        let problems = parse(CSV, None, None).unwrap_err();
        let fields: Vec<&str> = problems.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(fields, ["source", "date"]);
    }

    #[test]
    fn warnings_are_shown_and_counted() {
        let warning = v1::PriceWarning {
            price: None,
            problem: "stale".into(),
            message: "is 900 days old".into(),
        };
        let reply = v1::UpdatePricesReply {
            n_added: 30,
            warnings: vec![warning; 30],
            n_warnings: 30,
            ..Default::default()
        };
        let text = updated(&reply, true);
        assert!(text.contains("30 added") && text.contains("nothing was stored"));
        assert_eq!(text.matches("900 days old").count(), SHOWN_WARNINGS);
        assert!(text.contains("10 more warnings"), "{text}");
    }
}
