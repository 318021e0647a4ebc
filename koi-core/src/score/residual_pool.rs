//! Residual sets for the risk of a candidate, pooled from narrow to wide.
//!
//! Holds what deployments missed their promises by; it judges nothing. Spec §7: sets are per
//! objective, pooled hierarchically (mechanism and GPU, then GPU, then all).

use std::collections::BTreeMap;

use crate::params::Params;
use crate::validation::EvidenceRow;
use crate::variables::Outcome;

/// Most residuals of one set: the newest ones describe the fleet of today, and the cost of a
/// score stays bounded.
pub const MAX_RESIDUALS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    MechanismAndGpu { mechanism: String, gpu_type: String },
    Gpu(String),
    All,
}

/// Residual sets by level and outcome, each sorted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResidualPool {
    sets: BTreeMap<(Outcome, Level), Vec<f64>>,
}

impl ResidualPool {
    /// Pools the rows' promise residuals; rows come newest first.
    #[must_use]
    pub fn from_newest_first<'a>(rows: impl IntoIterator<Item = &'a EvidenceRow>) -> Self {
        let mut pool = Self::default();
        for row in rows {
            for (outcome, residual) in row.promise_residuals.present() {
                for level in levels(row.committed_mechanism(), &row.environment.gpu_type) {
                    let set = pool.sets.entry((outcome, level)).or_default();
                    if set.len() < MAX_RESIDUALS {
                        set.push(residual);
                    }
                }
            }
        }
        for set in pool.sets.values_mut() {
            set.sort_by(f64::total_cmp);
        }
        pool
    }

    /// The narrowest set that is large enough, else the widest; empty when nothing was observed.
    #[must_use]
    pub fn residuals(
        &self,
        outcome: Outcome,
        mechanism: Option<&str>,
        gpu_type: &str,
        params: &Params,
    ) -> &[f64] {
        let enough = params.dro_residuals_min as usize;
        let sets = levels(mechanism, gpu_type)
            .into_iter()
            .filter_map(|level| self.sets.get(&(outcome, level)))
            .map(Vec::as_slice);
        let mut widest: &[f64] = &[];
        for set in sets {
            if set.len() >= enough {
                return set;
            }
            widest = set;
        }
        widest
    }
}

/// From narrow to wide.
fn levels(mechanism: Option<&str>, gpu_type: &str) -> Vec<Level> {
    let narrow = mechanism.map(|m| Level::MechanismAndGpu {
        mechanism: m.to_owned(),
        gpu_type: gpu_type.to_owned(),
    });
    narrow
        .into_iter()
        .chain([Level::Gpu(gpu_type.to_owned()), Level::All])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::evidence::testing::row;
    use crate::variables::OutcomeValues;

    fn rows(n: usize, gpu: &str, mechanism: &str, residual: f64) -> Vec<EvidenceRow> {
        let mut one = row(1, Vec::new());
        one.environment.gpu_type = gpu.to_owned();
        one.promise_residuals = OutcomeValues::absent().with(Outcome::P99TtftMs, residual);
        one.mechanisms = vec![crate::validation::evidence::testing::committed(mechanism)];
        vec![one; n]
    }

    #[test]
    fn the_narrowest_set_that_is_large_enough_is_used() {
        let all = [
            rows(20, "H100", "M_a", 0.1),
            rows(5, "H100", "M_b", 0.2),
            rows(3, "L40S", "M_b", 0.3),
        ]
        .concat();
        let pool = ResidualPool::from_newest_first(&all);
        let n = |mechanism, gpu| {
            pool.residuals(Outcome::P99TtftMs, mechanism, gpu, &Params::default())
                .len()
        };
        assert_eq!(n(Some("M_a"), "H100"), 20);
        assert_eq!(n(Some("M_b"), "H100"), 25);
        assert_eq!(n(None, "H100"), 25);
        assert_eq!(n(Some("M_b"), "L40S"), 28);
        assert_eq!(n(Some("M_b"), "A100"), 28);
        assert!(
            pool.residuals(Outcome::P99TpotMs, None, "H100", &Params::default())
                .is_empty()
        );
    }

    #[test]
    fn sets_keep_the_newest() {
        let newest_first = [rows(200, "H100", "M_a", 0.1), rows(50, "H100", "M_a", 9.0)].concat();
        let pool = ResidualPool::from_newest_first(&newest_first);
        let set = pool.residuals(Outcome::P99TtftMs, Some("M_a"), "H100", &Params::default());
        assert_eq!((set.len(), set.last().copied()), (200, Some(0.1)));
    }
}
