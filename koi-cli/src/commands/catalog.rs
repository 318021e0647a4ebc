//! `koi catalog show | check | diff`: the closed world as tables. No server is asked.

mod folder;
mod rows;
mod show;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use koi_core::catalog::price::{Date, PriceBook, PriceFlag, PriceOverlay, PriceProblem};
use koi_core::catalog::{Catalog, DifferenceKind, check_all, differences};
use koi_core::violation::FieldViolation;
use serde_json::json;

use crate::args::{CatalogCheck, CatalogCommand, CatalogDiff};
use crate::failure::{ExitCode, Failure};
use crate::output::{Format, Grid, emit, now_us};

use folder::{Folder, read_bounded};

/// Runs a command.
///
/// # Errors
/// A folder that cannot be read, a catalog with problems (exit 2), a row that does not exist
/// (exit 3), or a closed standard output.
pub(crate) fn run(format: Format, command: &CatalogCommand) -> anyhow::Result<()> {
    match command {
        CatalogCommand::Show(args) => show::run(format, args),
        CatalogCommand::Check(args) => check(format, args),
        CatalogCommand::Diff(args) => diff(format, args),
    }
}

fn refused(what: &str, problems: Vec<FieldViolation>) -> anyhow::Error {
    Failure::invalid(what, problems).into()
}

/// List prices with an operator's file over them.
fn price_book(base: PriceBook, overlay: Option<&Path>) -> anyhow::Result<PriceBook> {
    let Some(path) = overlay else {
        return Ok(base);
    };
    let text = read_bounded(path)?;
    let overlay = PriceOverlay::parse(&text)
        .map_err(|problems| refused(&path.display().to_string(), problems))?;
    Ok(base.with_overlay(&overlay))
}

fn check(format: Format, args: &CatalogCheck) -> anyhow::Result<()> {
    let folder = Folder::read(args.dir.as_deref())?;
    let mut problems = Vec::new();
    let checked = check_all(&folder.text()).map_err(|found| problems.extend(found));
    let prices = folder.prices().map_err(|found| problems.extend(found));
    let (Ok((catalog, model)), Ok(prices)) = (checked, prices) else {
        return Err(refused(&folder.name, problems));
    };
    let listed = prices.places();
    let prices = price_book(prices, args.prices.as_deref())?;
    let as_of = match &args.as_of {
        Some(text) => text
            .parse::<Date>()
            .map_err(|e| Failure::new(ExitCode::Invalid, format!("--as-of: {e}")))?,
        None => today()?,
    };
    let mut flags = prices.flags(&catalog, as_of, args.max_age_days);
    flags.extend(prices.in_unknown_places(&listed));
    let wrong: Vec<FieldViolation> = flags.iter().filter_map(wrong_price).collect();
    if !wrong.is_empty() {
        return Err(refused(&folder.name, wrong));
    }
    let value = json!({
        "catalog": folder.name,
        "hash": catalog.hash(),
        "rows": BTreeMap::from_iter(rows::counts(&catalog, &model, &prices)),
        "as_of": as_of,
        "price_flags": flags,
    });
    emit(format, &value, || {
        let counts: Vec<String> = rows::counts(&catalog, &model, &prices)
            .into_iter()
            .map(|(table, n)| format!("{n} {table}"))
            .collect();
        let sound = format!(
            "{} is {}: {}",
            folder.name,
            soundness(flags.len()),
            counts.join(", ")
        );
        [sound, shown_flags(&flags)]
            .join("\n")
            .trim_end()
            .to_owned()
    })?;
    if args.strict && !flags.is_empty() {
        let why = format!(
            "{} of prices, and --strict allows none",
            counted(flags.len())
        );
        return Err(Failure::new(ExitCode::Failed, why).into());
    }
    Ok(())
}

fn counted(n_flags: usize) -> String {
    format!("{n_flags} flag{}", if n_flags == 1 { "" } else { "s" })
}

fn soundness(n_flags: usize) -> String {
    if n_flags == 0 {
        return "sound".to_owned();
    }
    format!("sound, with {}", counted(n_flags))
}

/// A flag that makes its row wrong, as a problem of the catalog.
fn wrong_price(flag: &PriceFlag) -> Option<FieldViolation> {
    let usd = flag.usd_per_hour.map_or_else(
        || "a number that is not finite".to_owned(),
        |usd| usd.to_string(),
    );
    flag.problem.is_error().then(|| FieldViolation {
        field: format!("price {}", flag.key),
        message: format!("{usd} {}", flag.problem),
    })
}

/// Today in UTC.
fn today() -> anyhow::Result<Date> {
    let days = now_us().div_euclid(86_400_000_000);
    Ok(Date::from_days(days)?)
}

/// Absurd prices one by one, stale ones counted by cloud.
fn shown_flags(flags: &[PriceFlag]) -> String {
    let mut stale: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for flag in flags {
        if let PriceProblem::Stale { age_days } = flag.problem {
            *stale.entry((&flag.key.cloud, age_days)).or_default() += 1;
            continue;
        }
        lines.push(crate::output::escape(&format!(
            "price {}: {}",
            flag.key, flag.problem
        )));
    }
    for ((cloud, age_days), n) in stale {
        lines.push(format!(
            "{n} prices of {} are {age_days} days old",
            crate::output::escape(cloud)
        ));
    }
    lines.join("\n")
}

fn load(path: &Path) -> anyhow::Result<Catalog> {
    let folder = Folder::read(Some(path).filter(|p| *p != Path::new("embedded")))?;
    Catalog::load(&folder.text()).map_err(|problems| refused(&folder.name, problems))
}

fn diff(format: Format, args: &CatalogDiff) -> anyhow::Result<()> {
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    let found = differences(&before, &after);
    let value = json!({
        "before": before.hash(),
        "after": after.hash(),
        "differences": found,
    });
    emit(format, &value, || {
        if found.is_empty() {
            return format!("no row differs ({} and {})", before.hash(), after.hash());
        }
        let mut grid = Grid::new(&["", "TABLE", "ROW", "FIELD", "BEFORE", "AFTER"]);
        let text = |v: &Option<serde_json::Value>| {
            let text = v
                .as_ref()
                .map_or_else(|| "-".to_owned(), ToString::to_string);
            text.chars().take(60).collect::<String>()
        };
        for d in &found {
            let mark = match d.kind {
                DifferenceKind::Added => "+",
                DifferenceKind::Removed => "-",
                DifferenceKind::Changed => "~",
            };
            let field = d.field.clone().unwrap_or_else(|| "-".to_owned());
            let whole = d.kind != DifferenceKind::Changed;
            let values = if whole {
                ["-".to_owned(), "-".to_owned()]
            } else {
                [text(&d.before), text(&d.after)]
            };
            let [before, after] = values;
            grid.row([
                mark.to_owned(),
                d.table.to_owned(),
                d.row.clone(),
                field,
                before,
                after,
            ]);
        }
        grid.text()
    })
}
