//! The catalog as one readable page: `docs/catalog.md`, made from the rows and compared by a test.
//!
//! Not a place for facts: everything here stands in a row.

mod edges;
mod tables;

use std::fmt::Write as _;

use super::Catalog;
use crate::causal::CausalModel;

/// The page.
#[must_use]
pub fn document(catalog: &Catalog, model: &CausalModel) -> String {
    let mut page = String::from(
        "# The catalog\n\nMade from `configs/catalog` by a test of koi-core; edit the rows, then run it with\n`UPDATE_EXPECT=1`. X are decisions and their context, V mediators, Y outcomes.\n",
    );
    let knobs = catalog.knobs().count();
    let rows = catalog.features().count();
    let gpus = catalog.gpu_types().count();
    let machines = catalog.instance_types().count();
    write_line(
        &mut page,
        &format!(
            "\n{rows} X rows, {knobs} of them knobs; {gpus} GPU types; {machines} machine types.\n"
        ),
    );
    let with_terms = catalog
        .knobs()
        .filter(|k| !catalog.effects_of(&k.id).is_empty());
    write_line(
        &mut page,
        &format!(
            "The prediction follows {} knobs through terms that it reads from their rows, and the main\nsettings by themselves. Each term's magnitude is a mechanism (it is what the setting means),\nmeasured, published, or a prior that nobody has measured; the row says which and from where.\n",
            with_terms.count()
        ),
    );
    for section in [
        tables::knobs(catalog, model),
        tables::terms(),
        tables::context(catalog),
        tables::mediators(catalog),
        tables::outcomes(catalog),
        edges::edges(model),
        tables::gpus(catalog),
        tables::machines(catalog),
        tables::flags(catalog),
        tables::metrics(catalog),
    ] {
        page.push_str(&section);
    }
    page
}

fn write_line(page: &mut String, line: &str) {
    writeln!(page, "{line}").expect("invariant: writing to a String cannot fail");
}

/// A section with one table.
fn table(title: &str, headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut text = format!("\n## {title}\n\n");
    write_line(&mut text, &format!("| {} |", headings.join(" | ")));
    write_line(&mut text, &format!("|{}", "---|".repeat(headings.len())));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        write_line(&mut text, &format!("| {} |", cells.join(" | ")));
    }
    text
}
