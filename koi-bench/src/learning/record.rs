//! What a run leaves behind: beliefs, counts, coverage and slopes, tick by tick.

use std::collections::BTreeMap;

use koi_core::causal::{Belief, BeliefKey, CausalModel};
use koi_core::slow_loop::convergence::Convergence;
use koi_core::validation::contrast::errors::ChangeErrors;
use koi_core::validation::contrast::judgement::{EdgeJudgement, edge_judgement};
use koi_core::validation::contrast::{ContrastBook, EdgeSums, EffectClaim, SumKey};
use koi_core::validation::{EvidenceRow, Exercise, Icp, MechanismVerdict, Quadrant, Verdict};
use koi_core::variables::{Mediator, Outcome};

/// One mechanism in one tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// Rows that decided about it.
    pub(super) decided: u32,
    /// Rows in which a variable of its bundle diverged by CUSUM.
    pub(super) fired: u32,
    /// Rows that put it to the test.
    pub(super) exercised: u32,
    /// Rows in which its mediators' verdict was diverged.
    pub(super) v_diverged: u32,
}

/// What the contrasts of one environment say of an edge.
#[derive(Debug, Clone)]
pub(super) struct Slope {
    pub(super) edge: String,
    pub(super) environment: String,
    pub(super) judgement: EdgeJudgement,
    /// s₀ and noise of the claim.
    pub(super) claim: EffectClaim,
}

/// What a run left behind.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Belief of each mechanism after each tick.
    pub(super) beliefs: BTreeMap<String, Vec<f64>>,
    /// Counts of each mechanism in each tick.
    pub(super) counts: BTreeMap<String, Vec<Count>>,
    /// Share of decided (row, mechanism) pairs in Q1, by tick.
    pub(super) q1_share: Vec<f64>,
    /// Share of variables that diverged, by tick.
    pub(super) diverged_share: Vec<f64>,
    /// Share of rows in which the pace of generation diverged (steps or time per token), by tick.
    pub(super) pace_diverged: Vec<f64>,
    /// Swaps by tick.
    pub(super) swaps: Vec<u32>,
    /// (inside, judged) by tick and outcome.
    pub(super) coverage: Vec<BTreeMap<&'static str, (u32, u32)>>,
    /// Evidence rows.
    pub(super) rows: u64,
    /// Mechanisms that the review archived, with the tick.
    pub(super) archived: BTreeMap<String, i64>,
    /// Every bullet of Assumption 2, by tick.
    pub(super) converged: Vec<Convergence>,
    /// What the contrasts say of every edge in every environment, at the end.
    pub(super) slopes: Vec<Slope>,
    /// Edges of which the invariance verdict was a rejection, accepted or neither, by mechanism, at
    /// the end.
    pub(super) invariance: BTreeMap<String, BTreeMap<String, Icp>>,
}

impl Count {
    fn add(&mut self, m: &MechanismVerdict, quadrant: Quadrant) {
        let fired = |v: &Option<Verdict>| *v == Some(Verdict::Diverged);
        let any = m.v_verdicts.values().any(fired) || m.y_verdicts.values().any(fired);
        self.decided += 1;
        self.fired += u32::from(any);
        self.exercised += u32::from(m.exercise == Exercise::Exercised);
        self.v_diverged += u32::from(matches!(quadrant, Quadrant::Q3 | Quadrant::Q4));
    }
}

/// Whether a variable of a row diverged by itself.
fn diverged_at(row: &EvidenceRow, name: &str) -> bool {
    let judged = row.variables.get(name).and_then(|v| v.verdict);
    judged == Some(Verdict::Diverged)
}

fn share(part: usize, all: usize) -> f64 {
    part as f64 / all.max(1) as f64
}

impl Course {
    /// Reads the sums of contrasts as they stand.
    pub(super) fn read_slopes(&mut self, book: &ContrastBook, model: &CausalModel) {
        let errors = ChangeErrors::of(book);
        let of = |(key, sums): (&SumKey, &EdgeSums)| {
            let edge = model.edge(&key.edge)?;
            Some(Slope {
                edge: key.edge.clone(),
                environment: key.environment.clone(),
                judgement: edge_judgement(edge, sums, &errors)?,
                claim: errors.claim(edge, sums)?,
            })
        };
        self.slopes = book.sums().filter_map(of).collect();
    }

    /// Keeps the beliefs of a tick.
    pub(super) fn remember(&mut self, beliefs: &BTreeMap<BeliefKey, Belief>, model: &CausalModel) {
        for mechanism in model.mechanisms() {
            let key = BeliefKey::Mechanism(mechanism.id.clone());
            let mean = beliefs.get(&key).map_or(0.5, |b| b.mean());
            let all = self.beliefs.entry(mechanism.id.clone()).or_default();
            all.push(mean);
        }
    }

    /// Counts the rows of a tick.
    pub(super) fn count(&mut self, rows: &[EvidenceRow], model: &CausalModel) {
        self.rows += rows.len() as u64;
        self.count_variables(rows);
        self.count_coverage(rows);
        self.count_mechanisms(rows, model);
    }

    fn count_variables(&mut self, rows: &[EvidenceRow]) {
        let judged = rows.iter().flat_map(|row| row.variables.values());
        let verdicts: Vec<Verdict> = judged.filter_map(|v| v.verdict).collect();
        let diverged = verdicts.iter().filter(|v| **v == Verdict::Diverged);
        self.diverged_share
            .push(share(diverged.count(), verdicts.len()));
        let pace = [
            Mediator::DecodeStepsPerSec.name(),
            Outcome::P99TpotMs.name(),
        ];
        let of_pace = rows
            .iter()
            .filter(|row| pace.iter().any(|name| diverged_at(row, name)));
        self.pace_diverged.push(share(of_pace.count(), rows.len()));
    }

    fn count_coverage(&mut self, rows: &[EvidenceRow]) {
        let mut coverage: BTreeMap<&'static str, (u32, u32)> = BTreeMap::new();
        for (outcome, inside) in rows.iter().flat_map(|row| &row.inside_band) {
            let entry = coverage.entry(outcome.name()).or_default();
            entry.0 += u32::from(*inside);
            entry.1 += 1;
        }
        self.coverage.push(coverage);
    }

    fn count_mechanisms(&mut self, rows: &[EvidenceRow], model: &CausalModel) {
        let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
        let (mut decided, mut q1) = (0, 0);
        for m in rows.iter().flat_map(|row| &row.mechanisms) {
            if !m.icp.is_empty() {
                self.invariance.insert(m.id.clone(), m.icp.clone());
            }
            let Some(quadrant) = m.quadrant else { continue };
            counts.entry(&m.id).or_default().add(m, quadrant);
            decided += 1;
            q1 += usize::from(quadrant == Quadrant::Q1);
        }
        self.q1_share.push(share(q1, decided));
        for mechanism in model.mechanisms() {
            let count = counts.remove(mechanism.id.as_str()).unwrap_or_default();
            let all = self.counts.entry(mechanism.id.clone()).or_default();
            all.push(count);
        }
    }
}
