//! Predicts, checks and scores a part of the space, candidate by candidate in order of position.
//!
//! Per shape: legality and mechanisms from the tables. Per shape and number of replicas: one
//! prediction. Per candidate: capacity of the place, the job's bounds, price, breach probability of
//! every limit, J and σ. Not the joint choice between jobs. Spec §7, §10.1, §11.

use std::ops::Range;

use super::axes::AXES;
use super::found::{Found, Refusal, Scored};
use super::tables::{Mask, Value};
use super::{Candidate, Kind, Site, Space};
use crate::configuration::EngineShape;
use crate::planner::enumerate::rules::amount_refusal;
use crate::planner::forecast::{NoForecast, RankPlan, Summary, forecast_rank, summarize_at};
use crate::planner::pools::CHAIN_SIZES;
use crate::score::{Eig, PreparedLimits};
use crate::surrogate::Told;

/// A shape with what its candidates share.
struct Group<'s, 'a> {
    kind: &'s Kind<'a>,
    shape: EngineShape,
    mechanisms: Mask,
    /// Position of its first candidate.
    first: u64,
    /// Chain size as a position in [`CHAIN_SIZES`]; absent for one that no pool counts.
    level: Option<usize>,
}

impl<'a> Space<'a> {
    /// Looks at every candidate of a part.
    #[must_use]
    pub fn evaluate(&self, part: Range<u64>) -> Found {
        let mut found = Found::default();
        for kind in &self.kinds {
            let end = kind.first_shape + kind.n_shapes();
            let here = part.start.max(kind.first_shape)..part.end.min(end);
            for shape in here {
                if let Some(group) = self.group(kind, shape - kind.first_shape) {
                    self.look_at(&group, &mut found);
                }
            }
        }
        found
    }

    fn group<'s>(&'s self, kind: &'s Kind<'a>, shape: u64) -> Option<Group<'s, 'a>> {
        let values: [Value; AXES] = kind.values(shape)?;
        let each = self.replicas.len() as u64 * kind.sites.len() as u64;
        let settings = kind.shape(&values);
        Some(Group {
            kind,
            shape: settings,
            mechanisms: values.iter().fold(Mask::MAX, |m, v| m & v.mechanisms),
            first: kind.first_candidate + shape * each,
            level: CHAIN_SIZES.iter().position(|s| *s == settings.gpus()),
        })
    }

    fn look_at(&self, group: &Group<'_, 'a>, found: &mut Found) {
        let n_sites = group.kind.sites.len() as u64;
        let n_group = self.replicas.len() as u64 * n_sites;
        found.n_candidates += n_group;
        let Some(first_site) = group.kind.sites.first() else {
            return;
        };
        let mut position = group.first;
        for n_replicas in self.replicas.clone() {
            // A chain that no place holds so often needs no prediction.
            if !group.kind.sites.iter().any(|s| group.holds(s, n_replicas)) {
                found.refuse(Refusal::Capacity, n_sites);
                position += n_sites;
                continue;
            }
            let rank = RankPlan {
                place: first_site.place,
                shape: group.shape,
                n_replicas,
            };
            found.n_predictions += 1;
            let shared = match forecast_rank(self.view, &rank) {
                Ok(shared) => shared,
                // No number of replicas makes a chain fit.
                Err(NoForecast::DoesNotFit(_)) => {
                    let left = group.first + n_group - position;
                    return found.refuse(Refusal::NoFit, left);
                }
                Err(NoForecast::Unsupported(_)) => {
                    found.refuse(Refusal::Unsupported, n_sites);
                    position += n_sites;
                    continue;
                }
            };
            for site in &group.kind.sites {
                self.judge(group, (site, n_replicas, position), &shared, found);
                position += 1;
            }
        }
    }

    /// Checks and scores one candidate whose prediction is known.
    fn judge(
        &self,
        group: &Group<'_, 'a>,
        (site, n_replicas, position): (&Site<'a>, u32, u64),
        (told, shared): &(Told, Summary),
        found: &mut Found,
    ) {
        if !group.holds(site, n_replicas) {
            return found.refuse(Refusal::Capacity, 1);
        }
        let rank = RankPlan {
            place: site.place,
            shape: group.shape,
            n_replicas,
        };
        let summary = if site.own.is_empty() {
            shared.priced(&rank)
        } else {
            summarize_at(self.view, &rank, told, site.own).priced(&rank)
        };
        let constraints = &self.view.record.spec.constraints;
        let stated = summary.stated_usd_per_hour;
        if amount_refusal(constraints, n_replicas, stated).is_some() {
            return found.refuse(Refusal::Price, 1);
        }
        let Some(limits) = self.limits(group, site) else {
            return self.judge_in_full(group, (site, n_replicas, position), &summary, found);
        };
        self.score(
            group,
            (site, n_replicas, position),
            (&summary, limits),
            found,
        );
    }

    /// The limits under the most believed mechanism that holds; `None` in an entangled space.
    fn limits<'s>(&self, group: &Group<'s, 'a>, site: &Site<'a>) -> Option<&'s PreparedLimits> {
        if self.is_entangled {
            return None;
        }
        let speaking = group.mechanisms & site.mechanisms;
        let mechanism = if speaking == 0 {
            self.mechanisms.len()
        } else {
            speaking.trailing_zeros() as usize
        };
        let kind = group.kind;
        kind.limits.get(*kind.limits_of.get(mechanism)?)
    }

    /// The same with settings and mechanism looked up for this candidate alone.
    fn judge_in_full(
        &self,
        group: &Group<'_, 'a>,
        (site, n_replicas, position): (&Site<'a>, u32, u64),
        summary: &Summary,
        found: &mut Found,
    ) {
        let candidate = Candidate {
            site,
            shape: group.shape,
            n_replicas,
        };
        let Ok(rank) = self.rank(&candidate) else {
            return found.refuse(Refusal::Unsupported, 1);
        };
        let scope = crate::planner::scoring::ResidualScope::of(&rank);
        let limits = self.scorer.limits(self.view, scope);
        self.score(
            group,
            (site, n_replicas, position),
            (summary, &limits),
            found,
        );
    }

    fn score(
        &self,
        group: &Group<'_, 'a>,
        (site, n_replicas, position): (&Site<'a>, u32, u64),
        (summary, limits): (&Summary, &PreparedLimits),
        found: &mut Found,
    ) {
        let breach = limits.any(&summary.outcomes, self.scorer.context.params);
        let Ok(rating) =
            self.scorer
                .rate(self.view, summary, breach, (self.change, Eig::NotComputed))
        else {
            return found.refuse(Refusal::NotScored, 1);
        };
        let scored = Scored {
            candidate: position,
            sigma: rating.sigma,
            breach_probability: breach,
            n_gpus: group.shape.gpus() * n_replicas,
        };
        let meets = self.scorer.meets(self.view, summary, breach);
        found.add(scored, meets, group.is_free(site, n_replicas));
    }
}

impl<'a> Group<'_, 'a> {
    /// Whether a place would hold so many chains if it were empty.
    fn holds(&self, site: &Site<'a>, n_replicas: u32) -> bool {
        let most = self.level.and_then(|level| site.when_empty.get(level));
        most.is_some_and(|most| n_replicas <= *most)
    }

    /// Whether it holds them now.
    fn is_free(&self, site: &Site<'a>, n_replicas: u32) -> bool {
        let most = self.level.and_then(|level| site.free.get(level));
        most.is_some_and(|most| n_replicas <= *most)
    }
}
