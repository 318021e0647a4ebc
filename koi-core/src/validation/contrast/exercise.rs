//! What the contrasts of an environment mean for a mechanism: was it put to the test by a row, and is it
//! contradicted?
//!
//! An edge is exercised in an environment when it holds three contrasts there, whoever made them. Every
//! such edge of a mechanism can contradict it: a mechanism is a conjunction, and a row that tests one
//! half of it must not pay for the other half. A row counts as exercise when its deployment tests an edge
//! and every edge that it tests is shown to work there: an interval that still holds zero says nothing,
//! and early rows, whose intervals are wide, must not earn what later ones cannot take back. Spec §8, Contrast and bundle verdict.

use std::collections::{BTreeMap, BTreeSet};

use super::book::{ContrastBook, DeploymentRecord, SumKey};
use super::compare::CompareContext;
use super::errors::ChangeErrors;
use super::judgement::edge_judgement;
use super::verdict::EdgeVerdict;
use crate::causal::{Edge, Mechanism};
use crate::validation::evidence::{Exercise, MechanismVerdict};

/// Verdicts on edges in one tick, each found once however many rows ask.
pub(super) struct Tests<'a> {
    book: &'a ContrastBook,
    errors: &'a ChangeErrors,
    ctx: CompareContext<'a>,
    found: BTreeMap<SumKey, (EdgeVerdict, bool)>,
}

impl<'a> Tests<'a> {
    pub(super) fn new(
        book: &'a ContrastBook,
        errors: &'a ChangeErrors,
        ctx: CompareContext<'a>,
    ) -> Self {
        Self {
            book,
            errors,
            ctx,
            found: BTreeMap::new(),
        }
    }

    /// Exercise and contradicted edges of one mechanism in one row.
    pub(super) fn judge(
        &mut self,
        verdict: &mut MechanismVerdict,
        mechanism: &'a Mechanism,
        (environment, record): (&str, Option<&DeploymentRecord>),
    ) {
        let scope = mechanism.scope.canonical();
        let (mut tested, mut undecided, mut contradicted) = (0, 0, BTreeSet::new());
        let ctx = self.ctx;
        for edge in mechanism.edges.iter().filter_map(|id| ctx.model.edge(id)) {
            let (here, _) = self.verdict(edge, &scope, environment);
            // A contrast between two environments has a key of its own.
            let own = record.and_then(|r| r.contrast(&edge.id, &scope));
            let own = own.map(|own| self.verdict(edge, &scope, &own.environment));
            if let Some((_, proven)) = own.filter(|(v, _)| *v != EdgeVerdict::Unexercised) {
                tested += 1;
                undecided += u32::from(!proven);
            }
            if Some(here).max(own.map(|(v, _)| v)) == Some(EdgeVerdict::Contradicted) {
                contradicted.insert(edge.id.clone());
            }
        }
        verdict.exercise = if tested > 0 && undecided == 0 {
            Exercise::Exercised
        } else {
            Exercise::Unexercised
        };
        if !contradicted.is_empty() {
            verdict.quadrant = verdict.quadrant.map(|q| q.with_mediators_diverged());
        }
        verdict.contradicted = contradicted;
    }

    /// Verdict, and whether the claimed effect is shown.
    fn verdict(&mut self, edge: &Edge, scope: &str, environment: &str) -> (EdgeVerdict, bool) {
        let key = SumKey {
            edge: edge.id.clone(),
            scope: scope.to_owned(),
            environment: environment.to_owned(),
        };
        let (book, errors) = (self.book, self.errors);
        *self.found.entry(key).or_insert_with_key(|key| {
            let sums = book.sums_of(key);
            let judgement = sums.and_then(|sums| edge_judgement(edge, sums, errors));
            judgement.map_or((EdgeVerdict::Unexercised, false), |j| {
                (j.verdict, j.is_proven)
            })
        })
    }
}
