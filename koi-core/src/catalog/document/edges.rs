//! What the page says of edges: which of them no seed carries, and which the surrogate does not show.

use super::table;
use crate::causal::{CausalModel, Edge, Sign};

const fn sign(edge: &Edge) -> &'static str {
    match edge.sign {
        Sign::Positive => "+",
        Sign::Negative => "-",
        Sign::NonMonotone => "non-monotone",
    }
}

fn rows<'a>(
    edges: impl Iterator<Item = &'a Edge> + 'a,
    says: impl Fn(&'a Edge) -> String + 'a,
) -> impl Iterator<Item = Vec<String>> + 'a {
    edges.map(move |edge| vec![edge.id.clone(), sign(edge).to_owned(), says(edge)])
}

/// How many edges are seeded, and the two tables of those that stand apart.
pub(super) fn edges(model: &CausalModel) -> String {
    let seeded = model.seeded_edges().count();
    let exceptions = || model.seeded_edges().filter(|e| e.exception.is_some());
    let unseeded = || model.edges().filter(|e| !e.seeded);
    let mut text = format!(
        "\n## Edges\n\n{} edges, {seeded} of them seeded. A test of koi-core moves one end of each at random feasible\npoints: a sign holds where at least 20 points moved the other end and three quarters of them the\nway it says (non-monotone: where 20 moved). It holds for every seeded edge but {}.\n",
        model.edges().count(),
        exceptions().count(),
    );
    let reason = |edge: &Edge| edge.exception.clone().unwrap_or_default();
    let apart = [
        table(
            "Seeded edges that the surrogate does not show",
            &["edge", "sign", "reason"],
            rows(exceptions(), reason),
        ),
        table(
            "Edges that are not seeded: the surrogate does not follow their source",
            &["edge", "sign", "physics"],
            rows(unseeded(), |edge| edge.doc.clone()),
        ),
    ];
    text.extend(apart);
    text
}
