//! Stored rows as points: models and devices by name, and which of a scope's points a planner keeps.
//!
//! A planner listens to [`MAX_PLANNED_POINTS`] points of a scope at most, because it does so for every
//! candidate. Of points that lie within one bandwidth of each other the newest is taken first, then
//! of every such cell the next newest, until there are enough: what is far apart is kept before
//! what repeats. Spec §4, member 2.

use std::collections::BTreeMap;

use super::{MAX_PLANNED_POINTS, MeasuredPoints, Origin, Points};
use crate::catalog::Catalog;
use crate::model::{KnownModel, ModelFacts};
use crate::performance::PerformanceRow;
use crate::surrogate::measured_row::{MeasuredRow, Question};
use crate::surrogate::stack::Calibration;

/// Points for a planner, and rows that taught nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlannedPoints {
    /// At most [`MAX_PLANNED_POINTS`] a scope.
    pub points: MeasuredPoints,
    /// [`MeasuredPoints::digest`] of them.
    pub digest: String,
    /// Rows about unknown models or devices, or that no member could have predicted.
    pub n_left_out: usize,
}

impl MeasuredPoints {
    /// The points that a planner keeps of stored rows, whatever their order.
    #[must_use]
    pub fn planned(rows: &[PerformanceRow], catalog: &Catalog) -> PlannedPoints {
        let calibration = Calibration::embedded();
        let mut models: BTreeMap<&str, Option<ModelFacts>> = BTreeMap::new();
        let mut planned = PlannedPoints::default();
        for row in rows {
            let facts = models
                .entry(row.model.as_str())
                .or_insert_with(|| KnownModel::find(&row.model)?.facts().ok());
            let taught = facts.as_ref().is_some_and(|facts| {
                let points = &mut planned.points;
                points.teach(row, facts, (catalog, &calibration)).is_some()
            });
            planned.n_left_out += usize::from(!taught);
        }
        planned.points.keep_planned();
        planned.digest = planned.points.digest();
        planned
    }

    fn teach(
        &mut self,
        row: &PerformanceRow,
        facts: &ModelFacts,
        (catalog, calibration): (&Catalog, &Calibration<'_>),
    ) -> Option<()> {
        let gpu = catalog.gpu_type(&row.gpu_type)?;
        let question = Question::of(&MeasuredRow::from(row), facts, gpu).ok()?;
        let origin = Origin {
            row_id: format!("{} {}", row.source, row.row_id),
            date: row.date.clone(),
        };
        self.add_of(origin, (&question, gpu), &row.measured, calibration)
            .ok()
    }

    fn keep_planned(&mut self) {
        for points in self.scopes.values_mut() {
            points.keep_planned();
        }
        self.n_points = self.scopes.values().map(|p| p.heard.len()).sum();
    }
}

impl Points {
    fn keep_planned(&mut self) {
        let origins = std::mem::take(&mut self.origins);
        let heard = std::mem::take(&mut self.heard);
        let mut all: Vec<_> = origins.into_iter().zip(heard).collect();
        all.sort_by(|(a, _), (b, _)| b.date.cmp(&a.date).then_with(|| a.row_id.cmp(&b.row_id)));
        let mut in_cell = BTreeMap::new();
        let mut ranked: Vec<_> = all
            .into_iter()
            .map(|(origin, point)| {
                let before: &mut u32 = in_cell.entry(point.spot.cell()).or_default();
                *before += 1;
                (*before, origin, point)
            })
            .collect();
        // Stable: within a rank the newest stays first.
        ranked.sort_by_key(|(rank, _, _)| *rank);
        ranked.truncate(MAX_PLANNED_POINTS);
        for (_, origin, point) in ranked {
            self.origins.push(origin);
            self.heard.push(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performance::import::{Given, import};

    /// One row a line: concurrency, month, TPOT.
    fn rows(lines: &[(u32, u32, f64)]) -> Vec<PerformanceRow> {
        let mut text = "source,row_id,model,gpu_type,num_gpus,tp,engine,date,isl,osl,load_kind,\
             concurrency_or_rate,tpot_ms,tpot_stat\n"
            .to_owned();
        for (index, (concurrency, month, tpot)) in lines.iter().enumerate() {
            text.push_str(&format!(
                "s,r{index:03},llama-3.1-8b,H100,1,1,vllm,2026-{month:02},1000,200,concurrency,\
                 {concurrency},{tpot},mean\n"
            ));
        }
        let imported = import(&text, None, &Given::default()).unwrap();
        assert!(imported.problems.is_empty(), "{:?}", imported.problems);
        imported.rows
    }

    fn planned(rows: &[PerformanceRow]) -> PlannedPoints {
        MeasuredPoints::planned(rows, Catalog::embedded())
    }

    #[test]
    fn a_planner_keeps_the_newest_of_every_cell_first() {
        // A hundred repeats of one run, and one old run elsewhere.
        let mut lines: Vec<_> = (0..100).map(|i| (16, 1 + i % 12, 10.0)).collect();
        lines.push((512, 1, 30.0));
        let kept = planned(&rows(&lines));
        assert_eq!(kept.points.len(), MAX_PLANNED_POINTS);
        assert_eq!(kept.n_left_out, 0);
        let points = kept.points.scopes.values().next().unwrap();
        let dates: Vec<&str> = points.origins.iter().map(|o| o.date.as_str()).collect();
        assert_eq!(dates[..2], ["2026-12", "2026-01"], "one of each cell");
        assert!(!dates[2..].contains(&"2026-01"), "{dates:?}");
    }

    #[test]
    fn the_digest_follows_what_is_kept_and_not_the_order() {
        let some = rows(&[(16, 1, 10.0), (64, 1, 12.0), (512, 1, 30.0)]);
        let mut turned = some.clone();
        turned.reverse();
        let digest = planned(&some).points.digest();
        assert_eq!(digest.len(), 16);
        assert_eq!(planned(&turned).points.digest(), digest);
        let mut other = some;
        other[1].measured.tpot.as_mut().unwrap().ms = 12.5;
        assert_ne!(planned(&other).points.digest(), digest);
        assert_eq!(planned(&[]).points.digest(), "");
    }

    #[test]
    fn rows_that_nobody_can_place_are_counted() {
        let mut odd = rows(&[(16, 1, 10.0), (16, 1, 10.0), (16, 1, 10.0)]);
        odd[0].model = "nobody/knows-it".to_owned();
        odd[1].gpu_type = "abacus".to_owned();
        let kept = planned(&odd);
        assert_eq!((kept.points.len(), kept.n_left_out), (1, 2));
    }
}
