//! An overlay's prices as a table: a header with cloud, region, market, instance and usd_per_hour in
//! any order, one machine a line; cells may be quoted.
//!
//! A table has no place for source and day, so they come in beside it; nothing is made up for them.

use csv::{ReaderBuilder, StringRecord, Trim};

use super::{Date, MAX_FILE_BYTES, MAX_PRICES, OverlayPrice, PriceOverlay};
use crate::environment::Market;
use crate::violation::{FieldViolation, Violations};

/// Columns of the table.
const COLUMNS: [&str; 5] = ["cloud", "region", "market", "instance", "usd_per_hour"];
/// Most wrong lines that are named.
const MAX_NAMED: usize = 100;

/// What a table does not say.
#[derive(Debug, Clone, PartialEq)]
pub struct CsvOrigin {
    /// Where the prices come from.
    pub source: String,
    /// When they were so.
    pub date: Date,
}

impl PriceOverlay {
    /// Reads a table of prices.
    ///
    /// # Errors
    /// A header that lacks columns or has others, lines with other than five cells, unknown markets,
    /// cells that are no numbers, and what [`PriceOverlay::checked`] refuses.
    pub fn parse_csv(text: &str, origin: CsvOrigin) -> Result<Self, Vec<FieldViolation>> {
        let mut problems = Violations::default();
        if text.len() > MAX_FILE_BYTES {
            problems.add("", format!("is larger than {MAX_FILE_BYTES} bytes"));
            return Err(problems.into_vec());
        }
        let text = text.trim_start_matches('\u{feff}');
        let mut rows = records(text);
        let header = rows.next().and_then(Result::ok);
        let Some(places) = header.and_then(|header| columns(&header)) else {
            let wanted = COLUMNS.join(",");
            problems.add("line 1", format!("the header is {wanted}, in any order"));
            return Err(problems.into_vec());
        };
        let mut overlay = Self {
            source: origin.source,
            date: origin.date,
            discounts: Vec::new(),
            prices: Vec::new(),
        };
        let mut n_bad = 0;
        for record in rows {
            if overlay.prices.len() > MAX_PRICES || n_bad >= MAX_NAMED {
                break;
            }
            let read = record.as_ref().map_err(ToString::to_string);
            match read.and_then(|record| row(record, &places)) {
                Ok(price) => overlay.prices.push(price),
                Err(message) => {
                    n_bad += 1;
                    problems.add(format!("line {}", line_of(text, &record)), message);
                }
            }
        }
        match overlay.checked() {
            Ok(overlay) => problems.finish(overlay),
            Err(found) => {
                problems.extend("", found);
                Err(problems.into_vec())
            }
        }
    }
}

/// The lines of a table, blank ones left out.
fn records(text: &str) -> impl Iterator<Item = csv::Result<StringRecord>> + use<'_> {
    let mut builder = ReaderBuilder::new();
    let builder = builder.has_headers(false).flexible(true).trim(Trim::All);
    let records = builder.from_reader(text.as_bytes()).into_records();
    let is_blank = |record: &StringRecord| record.len() == 1 && record.get(0) == Some("");
    records.filter(move |record| !record.as_ref().is_ok_and(is_blank))
}

/// The line on which a record begins, counted from 1. The reader's own count is one short after a line
/// that ends in CR LF, and at empty lines.
fn line_of(text: &str, record: &csv::Result<StringRecord>) -> usize {
    let position = match record {
        Ok(record) => record.position(),
        Err(error) => error.position(),
    };
    let after_last = position.map_or(0, |p| usize::try_from(p.byte()).unwrap_or(usize::MAX));
    let rest = text.as_bytes().get(after_last..).unwrap_or_default();
    let n_blank = rest
        .iter()
        .take_while(|b| matches!(b, b'\r' | b'\n'))
        .count();
    let before = text
        .as_bytes()
        .get(..after_last + n_blank)
        .unwrap_or_default();
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// Place of every column in the header.
fn columns(header: &StringRecord) -> Option<[usize; 5]> {
    let mut places = [0; 5];
    for (place, wanted) in places.iter_mut().zip(COLUMNS) {
        *place = header.iter().position(|name| name == wanted)?;
    }
    (header.len() == COLUMNS.len()).then_some(places)
}

fn row(cells: &StringRecord, places: &[usize; 5]) -> Result<OverlayPrice, String> {
    if cells.len() != COLUMNS.len() {
        return Err(format!("has {} cells, not 5", cells.len()));
    }
    let cell = |column: usize| places.get(column).and_then(|at| cells.get(*at));
    let text = |column: usize| cell(column).unwrap_or_default().to_owned();
    let market = Market::from_name(&text(2)).ok_or_else(|| {
        format!(
            "market {:.40?} is not one of reserved, on_demand, spot",
            text(2)
        )
    })?;
    let usd_per_hour = text(4)
        .parse()
        .map_err(|_| format!("usd_per_hour {:.40?} is not a number", text(4)))?;
    Ok(OverlayPrice {
        cloud: text(0),
        region: text(1),
        market,
        instance: text(3),
        usd_per_hour,
    })
}
