//! S2's contrasts: each deployment with a new row against its references, edge by edge, and what
//! they say of every mechanism of the row.
//!
//! Reads the book with this tick's rows in it and writes into the rows alone; S3 moves the sums.
//! Spec §8, Contrast and bundle verdict.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::book::{ContrastBook, ContrastRow, DeploymentRecord};
use super::counterfactual::{Point, holding, value_of};
use super::errors::ChangeErrors;
use super::exercise::Tests;
use super::reference::{Change, References, environment_key};
use super::scale::{Step, feature_step, is_by_ratio, mediator_step, natural};
use crate::catalog::Catalog;
use crate::causal::{CausalModel, Edge, EdgeEnds, FeatureValues, Mechanism, Scope, ScopeMatch};
use crate::params::Params;
use crate::validation::evidence::EvidenceRow;
use crate::validation::icp::{Icp, combined};
use crate::validation::residual::Variable;
use crate::variables::{Mediator, MediatorValues, OutcomeValues};

/// References tried for one edge, where the surrogate has no answer at the changed point.
const MAX_TRIED: usize = 4;

/// What contrasts are made with.
#[derive(Clone, Copy)]
pub struct CompareContext<'a> {
    /// Closed world.
    pub catalog: &'a Catalog,
    /// Edges and mechanisms.
    pub model: &'a CausalModel,
    /// Hyper-parameters.
    pub params: &'a Params,
    /// Leg (a) of the invariance verdict by edge; one that is not there is undecided.
    pub residual_invariance: &'a BTreeMap<String, Icp>,
}

/// Adds contrasts, exercise, contradicted edges and invariance verdicts to one tick's rows.
pub fn compare(book: &ContrastBook, rows: &mut [EvidenceRow], ctx: CompareContext<'_>) {
    let mut book = book.clone();
    for row in rows.iter() {
        book.observe(row);
    }
    let contrasts: Vec<Vec<ContrastRow>> = {
        let references = References::of(&book);
        let of = |row: &EvidenceRow| contrasts_of(&book, &references, row, ctx);
        rows.iter().map(of).collect()
    };
    for (row, contrasts) in rows.iter_mut().zip(contrasts) {
        row.contrasts = contrasts;
        book.apply(row);
    }
    let errors = ChangeErrors::of(&book);
    let mut tests = Tests::new(&book, &errors, ctx);
    let mut invariance = BTreeMap::new();
    for row in rows.iter_mut() {
        let record = book.deployment(row.deployment_id());
        let environment = row.environment.to_string();
        for verdict in &mut row.mechanisms {
            let Some(mechanism) = ctx.model.mechanism(&verdict.id) else {
                continue;
            };
            tests.judge(verdict, mechanism, (&environment, record));
            verdict.icp = invariance
                .entry(verdict.id.clone())
                .or_insert_with(|| invariance_of(mechanism, &book, &errors, ctx))
                .clone();
        }
    }
}

/// Both legs together; edges that are undecided are left out.
fn invariance_of(
    mechanism: &Mechanism,
    book: &ContrastBook,
    errors: &ChangeErrors,
    ctx: CompareContext<'_>,
) -> BTreeMap<String, Icp> {
    let scope = mechanism.scope.canonical();
    let edges = mechanism.edges.iter().filter_map(|id| ctx.model.edge(id));
    let verdicts = edges.map(|edge| {
        let of_effect = super::judgement::effect_leg(edge, &scope, book, errors);
        let of_residuals = ctx.residual_invariance.get(&edge.id).copied();
        let of_residuals = of_residuals.unwrap_or(Icp::Undecided);
        let verdict = combined(ctx.params.invariance_rule, of_residuals, Some(of_effect));
        (edge.id.clone(), verdict)
    });
    verdicts.filter(|(_, v)| *v != Icp::Undecided).collect()
}

/// The contrasts that a row adds or revises, in the order of edge and scope.
fn contrasts_of<'a>(
    book: &'a ContrastBook,
    references: &References<'a>,
    row: &EvidenceRow,
    ctx: CompareContext<'a>,
) -> Vec<ContrastRow> {
    let record = book.deployment(row.deployment_id());
    // A row that the life did not take in is no news.
    let Some(record) = record.filter(|r| r.life.last_tick == row.tick && r.life.is_due()) else {
        return Vec::new();
    };
    let Ok(point) = Point::of(&record.subject, &record.life, ctx.catalog) else {
        return Vec::new();
    };
    let mechanisms = row
        .mechanisms
        .iter()
        .filter_map(|v| ctx.model.mechanism(&v.id));
    let mut claims: BTreeMap<(&str, String), (&Edge, &Scope)> = BTreeMap::new();
    for mechanism in mechanisms {
        for edge in mechanism.edges.iter().filter_map(|id| ctx.model.edge(id)) {
            let key = (edge.id.as_str(), mechanism.scope.canonical());
            claims.entry(key).or_insert((edge, &mechanism.scope));
        }
    }
    let mut comparison = Comparison {
        record,
        features: record.subject.features(),
        point,
        references,
        candidates: BTreeMap::new(),
        ctx,
    };
    let of = |((_, scope_text), (edge, scope))| comparison.contrast(edge, scope, scope_text);
    claims.into_iter().filter_map(of).collect()
}

/// Whether a deployment of these features lies inside a scope.
fn is_inside(features: &FeatureValues, scope: &Scope) -> bool {
    scope.matches(features) == ScopeMatch::Exact
}

/// One deployment against its candidates.
struct Comparison<'a, 'r> {
    record: &'a DeploymentRecord,
    features: FeatureValues,
    point: Point<'a>,
    references: &'r References<'a>,
    candidates: BTreeMap<Change, Vec<Candidate<'a>>>,
    ctx: CompareContext<'a>,
}

/// A candidate with its point and what the surrogate says there.
struct Candidate<'a> {
    record: &'a DeploymentRecord,
    features: FeatureValues,
    point: Point<'a>,
    /// Asked for once it is the reference of an edge.
    predicted: OnceCell<Option<(MediatorValues, OutcomeValues)>>,
}

impl Candidate<'_> {
    fn predicted(&self) -> Option<(MediatorValues, OutcomeValues)> {
        let ask = || self.point.predict(&MediatorValues::absent()).ok();
        *self.predicted.get_or_init(ask)
    }
}

impl<'a> Comparison<'a, '_> {
    fn contrast(&mut self, edge: &Edge, scope: &Scope, scope_text: String) -> Option<ContrastRow> {
        if !is_inside(&self.features, scope) {
            return None;
        }
        let change = self.change_of(edge)?;
        self.find_candidates(change);
        let before = self.record.contrast(&edge.id, &scope_text);
        let kept = before.map(|c| c.reference);
        let candidates = self.candidates.get(&change)?;
        // What it was once compared with stays what it is compared with.
        let first = candidates
            .iter()
            .filter(|c| Some(c.record.subject.id) == kept);
        let all = first.chain(candidates.iter());
        let (reference, step, delta) = all
            .filter(|c| is_inside(&c.features, scope))
            .filter_map(|c| Some((c, self.step(edge, c)?)))
            .take(MAX_TRIED)
            .find_map(|(c, step)| Some((c, step, self.delta(edge, c)?)))?;
        let (z, levels) = match step {
            Step::By(z) => (z, None),
            Step::Levels { from, to } => (1.0, Some((from, to))),
        };
        super::sums::is_contrast(z, delta).then(|| ContrastRow {
            edge: edge.id.clone(),
            scope: scope_text,
            environment: environment_key(reference.record, self.record),
            reference: reference.record.subject.id,
            z,
            delta,
            levels,
            z_variance: self.z_variance(edge, reference),
        })
    }

    fn change_of(&self, edge: &Edge) -> Option<Change> {
        match &edge.ends {
            EdgeEnds::FeatureToMediator(feature, _) => {
                Some(Change::of(self.ctx.catalog.feature(feature)?.set_by))
            }
            EdgeEnds::MediatorToMediator(..) | EdgeEnds::MediatorToOutcome(..) => {
                Some(Change::Within)
            }
        }
    }

    fn find_candidates(&mut self, change: Change) {
        let (references, record, catalog) = (self.references, self.record, self.ctx.catalog);
        self.candidates.entry(change).or_insert_with(|| {
            let all = references.candidates(record, change).into_iter();
            let with_point = all.filter_map(|l| {
                let point = Point::of(&l.subject, &l.life, catalog).ok()?;
                Some(Candidate {
                    record: l,
                    features: l.subject.features(),
                    point,
                    predicted: OnceCell::new(),
                })
            });
            with_point.collect()
        });
    }

    /// How the edge's source changed from the reference, if materially.
    fn step(&self, edge: &Edge, reference: &Candidate<'_>) -> Option<Step> {
        match &edge.ends {
            EdgeEnds::FeatureToMediator(feature, _) => {
                let row = self.ctx.catalog.feature(feature)?;
                let from = reference.point.value(row, self.ctx.catalog);
                let to = self.point.value(row, self.ctx.catalog);
                feature_step(row, from.as_ref(), to.as_ref())
            }
            EdgeEnds::MediatorToMediator(v, _) | EdgeEnds::MediatorToOutcome(v, _) => {
                let (from, to) = self.ends(Variable::V(*v), reference)?;
                mediator_step(*v, from, to)
            }
        }
    }

    /// Means of a variable at the reference and here, on the natural scale.
    fn ends(&self, variable: Variable, reference: &Candidate<'_>) -> Option<(f64, f64)> {
        let from = reference.record.life.observed_as_reference(variable)?;
        let to = self.record.life.observed(variable)?;
        from.mean().zip(to.mean())
    }

    /// # Formula
    /// Δ = (d_k − d_l) − (d̂(x_k with p := p_l) − d̂(x_l)), on the destination's natural scale
    fn delta(&self, edge: &Edge, reference: &Candidate<'a>) -> Option<f64> {
        let destination = Variable::from_name(edge.ends.destination())?;
        let (from, to) = self.ends(destination, reference)?;
        let catalog = self.ctx.catalog;
        let (changed, at_reference) = match &edge.ends {
            EdgeEnds::FeatureToMediator(feature, _) => {
                let row = catalog.feature(feature)?;
                let changed = self.point.with_feature_of(row, &reference.point, catalog);
                let nothing = MediatorValues::absent();
                (
                    changed.ok()?.predict(&nothing).ok()?,
                    reference.predicted()?,
                )
            }
            EdgeEnds::MediatorToMediator(v, _) | EdgeEnds::MediatorToOutcome(v, _) => {
                let held = holding(*v, self.observed_at(*v, reference)?);
                let changed = self.point.predict(&held).ok()?;
                (changed, reference.point.predict(&held).ok()?)
            }
        };
        let said = |answer| value_of(destination, answer).map(|x| natural(destination, x));
        Some((to - from) - (said(&changed)? - said(&at_reference)?))
    }

    /// The mean of a mediator at the reference in its own unit.
    fn observed_at(&self, mediator: Mediator, reference: &Candidate<'_>) -> Option<f64> {
        let variable = Variable::V(mediator);
        let life = &reference.record.life;
        let mean = life.observed_as_reference(variable)?.mean()?;
        Some(if is_by_ratio(variable) {
            mean.exp()
        } else {
            mean
        })
    }

    fn z_variance(&self, edge: &Edge, reference: &Candidate<'_>) -> f64 {
        let Some(mediator) = edge.ends.source_mediator() else {
            return 0.0;
        };
        let variable = Variable::V(mediator);
        let own = self.record.life.observed(variable);
        let other = reference.record.life.observed_as_reference(variable);
        [own, other]
            .into_iter()
            .flatten()
            .map(|m| m.variance_of_mean())
            .sum()
    }
}
