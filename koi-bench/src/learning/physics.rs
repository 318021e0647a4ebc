//! What moves what in the hidden truth, by finite differences of the truth itself.
//!
//! At random configurations of the study's jobs in all places one setting (or one mediator) is changed
//! and the noise-free reading taken again. An edge holds when the slope has its sign in every place; it
//! has no effect when nothing of the smallest size that matters shows anywhere. What lies between is
//! used for no claim of the study. Nothing here is shown to S1–S4.

use std::collections::BTreeMap;

use koi_core::catalog::Catalog;
use koi_core::configuration::Configuration;
use koi_core::model::ModelFacts;
use koi_core::rng::Rng;
use koi_core::validation::contrast::scale::natural;
use koi_core::validation::residual::Variable;
use koi_core::variables::{Mediator, MediatorValues, Outcome, OutcomeValues};
use koi_sim::world::{Demand, Levers, ReadingFacts};

use super::fleet::{Fleet, Place, chain, has_room};
use super::hidden::distance;
use super::knobs::{Knob, turned, with};

/// Random configurations per job.
const POINTS_PER_JOB: usize = 10;
/// Share of points that may contradict a direction.
const CONTRARY_SHARE: f64 = 0.1;
/// Share of points that must show an effect.
const MATERIAL_SHARE: f64 = 0.4;
/// Share of the smallest effect below which a slope counts as none.
const NOTHING: f64 = 0.3;

type Reading = (MediatorValues, OutcomeValues);

/// Finite differences of one (source, destination).
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    /// Σz², ΣzΔ and points by place.
    by_place: BTreeMap<usize, (f64, f64, u32)>,
    positive: u32,
    negative: u32,
    n: u32,
}

/// What the truth says of a source and a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Grows with the source, in every place.
    Positive,
    /// Falls with it, in every place.
    Negative,
    /// Moves, and not in one direction.
    Mixed,
    /// Does not move by what matters anywhere.
    Nothing,
    /// Between the others.
    Unclear,
}

impl Effect {
    fn add(&mut self, place: usize, z: f64, delta: f64, smallest: f64) {
        let sums = self.by_place.entry(place).or_default();
        sums.0 += z * z;
        sums.1 += z * delta;
        sums.2 += 1;
        self.n += 1;
        let per_unit = delta / z;
        self.positive += u32::from(per_unit >= smallest);
        self.negative += u32::from(per_unit <= -smallest);
    }

    /// Slope over all places.
    pub(super) fn slope(&self) -> Option<f64> {
        let (zz, zd) = self
            .by_place
            .values()
            .fold((0.0, 0.0), |a, s| (a.0 + s.0, a.1 + s.1));
        (zz > 0.0).then(|| zd / zz)
    }

    /// Points.
    pub(super) const fn n(&self) -> u32 {
        self.n
    }

    /// The verdict for this smallest effect.
    pub(super) fn direction(&self, smallest: f64) -> Direction {
        let slopes: Vec<f64> = self
            .by_place
            .values()
            .filter(|s| s.2 >= 5 && s.0 > 0.0)
            .map(|s| s.1 / s.0)
            .collect();
        if slopes.len() < 3 {
            return Direction::Unclear;
        }
        let share = |count: u32| f64::from(count) / f64::from(self.n.max(1));
        let all = |of: &dyn Fn(f64) -> bool| slopes.iter().all(|s| of(*s));
        let (positive, negative) = (share(self.positive), share(self.negative));
        if all(&|s| s.abs() < NOTHING * smallest) && positive + negative < 0.03 {
            Direction::Nothing
        } else if all(&|s| s > smallest) && positive > MATERIAL_SHARE && negative < CONTRARY_SHARE {
            Direction::Positive
        } else if all(&|s| s < -smallest) && negative > MATERIAL_SHARE && positive < CONTRARY_SHARE
        {
            Direction::Negative
        } else if positive > 0.2 && negative > 0.2 {
            Direction::Mixed
        } else {
            Direction::Unclear
        }
    }
}

/// All finite differences, by source and destination name.
#[derive(Debug, Default)]
pub(super) struct Physics {
    pub(super) effects: BTreeMap<(String, String), Effect>,
}

/// Features of the workload that are moved like settings.
pub(super) const WORKLOAD: [&str; 4] = [
    "request_arrival_rate",
    "isl_token_avg",
    "osl_token_avg",
    "workload_prefix_concentration",
];

/// Mediators that are held, with the lever that carries each.
fn holds() -> Vec<(Mediator, Hold)> {
    let levers = |change: fn(&mut Levers)| {
        let mut l = Levers::default();
        change(&mut l);
        Hold::Levers(l)
    };
    let live = || levers(|l| l.live = 1.25);
    vec![
        (Mediator::DecodeStepsPerSec, levers(|l| l.step = 1.2)),
        (Mediator::QueueDepth, levers(|l| l.wait = 2.5)),
        (Mediator::KvcacheHitRate, levers(|l| l.hit = 0.15)),
        (Mediator::PdImbalance, levers(|l| l.prefill = 1.4)),
        (Mediator::RunningRequests, live()),
        (Mediator::KvPressureScore, live()),
        (Mediator::KvCacheUtil, live()),
        (Mediator::GpuMemUsedFraction, live()),
        (Mediator::VramHeadroomGb, live()),
        (Mediator::InputLengthObserved, Hold::Prompt),
        (Mediator::OutputLengthObserved, Hold::Answer),
        (Mediator::PrefillTokensPerSec, Hold::Rate),
    ]
}

#[derive(Debug, Clone, Copy)]
enum Hold {
    Levers(Levers),
    Prompt,
    Answer,
    Rate,
}

struct Point<'a> {
    model: &'a ModelFacts,
    place: usize,
    places: &'a [Place],
    configuration: &'a Configuration,
    demand: Demand,
}

impl Point<'_> {
    /// `None` where the engine would not start or has no room.
    fn read(&self, levers: Levers) -> Option<Reading> {
        let place = &self.places[self.place];
        let chain = chain(self.model, place, self.configuration, levers).ok()?;
        let steady = chain.steady(&self.demand);
        let peak = place.gpu.nvlink_bytes_per_second;
        let facts = ReadingFacts {
            gpu_memory_bytes: place.gpu.memory_bytes,
            link_peak_bytes_per_s: peak.unwrap_or(place.gpu.pcie_bytes_per_second),
            has_fabric: peak.is_some(),
            usd_per_hour: Some(f64::from(self.configuration.shape().gpus())),
            p99_ttft_ms: Some(2_500.0),
            p99_tpot_ms: Some(90.0),
        };
        has_room(&steady).then(|| chain.reading(&steady, &self.demand, &facts))
    }
}

/// Change on the natural scale of contrasts.
fn change(variable: Variable, from: f64, to: f64) -> f64 {
    natural(variable, to) - natural(variable, from)
}

/// Smallest effects by destination scale, as the catalog's edges have them.
pub(super) const fn smallest(destination: Variable) -> f64 {
    if destination.is_log_scale() {
        koi_core::causal::edge::SMALLEST_LOG_EFFECT
    } else {
        koi_core::causal::edge::SMALLEST_PLAIN_EFFECT
    }
}

impl Physics {
    /// Finite differences over the fleet.
    pub(super) fn of(catalog: &Catalog, fleet: &Fleet, knobs: &[Knob], seed: u64) -> Self {
        let mut rng = Rng::stream(seed, "learning.physics");
        let mut physics = Self::default();
        for job in &fleet.jobs {
            let Some(record) = fleet.snapshot.state.jobs.get(&job.id) else {
                continue;
            };
            let mut configuration = job.configuration.clone();
            for _ in 0..POINTS_PER_JOB {
                let next = turned(catalog, knobs, &configuration, &mut rng);
                let point = Point {
                    model: &record.spec.model.facts,
                    place: rng.below(fleet.places.len()),
                    places: &fleet.places,
                    configuration: &next,
                    demand: job.demand,
                };
                let Some(reading) = point.read(Levers::default()) else {
                    continue;
                };
                physics.turn(catalog, knobs, &point, &reading, &mut rng);
                physics.load(&point, &reading);
                physics.hold(&point, &reading);
                configuration = next;
            }
        }
        physics
    }

    /// The effect of a source on a destination.
    pub(super) fn direction(&self, source: &str, destination: Variable) -> Direction {
        let key = (source.to_owned(), destination.name().to_owned());
        self.effects
            .get(&key)
            .map_or(Direction::Unclear, |e| e.direction(smallest(destination)))
    }

    /// True when a source moved nothing by what matters at any point.
    pub(super) fn is_idle(&self, source: &str) -> bool {
        let own = self.effects.iter().filter(|(key, _)| key.0 == source);
        own.map(|(_, effect)| effect.positive + effect.negative)
            .sum::<u32>()
            == 0
    }

    /// What is known of an edge by its id, in words.
    pub(super) fn describe(&self, edge: &str) -> String {
        let Some((source, destination)) = edge.split_once("->") else {
            return edge.to_owned();
        };
        let key = (source.to_owned(), destination.to_owned());
        let Some(effect) = self.effects.get(&key) else {
            return format!("{edge}: not moved");
        };
        let variable = Variable::from_name(destination);
        let direction = variable.map(|v| effect.direction(smallest(v)));
        let slope = effect.slope().unwrap_or(0.0);
        format!("{edge}: {direction:?}, slope {slope:+.3}, n {}", effect.n())
    }

    fn turn(
        &mut self,
        catalog: &Catalog,
        knobs: &[Knob],
        point: &Point<'_>,
        before: &Reading,
        rng: &mut Rng,
    ) {
        for knob in knobs {
            let Some(from) = point.configuration.get(knob.id) else {
                continue;
            };
            let to = &knob.levels[rng.below(knob.levels.len())];
            let z = distance(from, to);
            if z.abs() < 0.2 {
                continue;
            }
            let Some(changed) = with(catalog, point.configuration, knob.id, to) else {
                continue;
            };
            let there = Point {
                configuration: &changed,
                ..*point
            };
            if let Some(after) = there.read(Levers::default()) {
                self.record(knob.id, point.place, z, before, &after);
            }
        }
    }

    fn load(&mut self, point: &Point<'_>, before: &Reading) {
        for feature in WORKLOAD {
            let mut demand = point.demand;
            let z = 0.25_f64;
            match feature {
                "request_arrival_rate" => demand.rate_rps *= z.exp(),
                "isl_token_avg" => demand.prompt *= z.exp(),
                "osl_token_avg" => demand.answer *= z.exp(),
                _ => demand.concentration = (demand.concentration * z.exp()).min(1.0),
            }
            let there = Point { demand, ..*point };
            if let Some(after) = there.read(Levers::default()) {
                self.record(feature, point.place, z, before, &after);
            }
        }
    }

    fn hold(&mut self, point: &Point<'_>, before: &Reading) {
        for (mediator, hold) in holds() {
            let mut demand = point.demand;
            let mut levers = Levers::default();
            match hold {
                Hold::Levers(l) => levers = l,
                Hold::Prompt => demand.prompt *= 1.2,
                Hold::Answer => demand.answer *= 1.2,
                Hold::Rate => demand.rate_rps *= 1.1,
            }
            let there = Point { demand, ..*point };
            let Some(after) = there.read(levers) else {
                continue;
            };
            let values = before.0.get(mediator).zip(after.0.get(mediator));
            let Some((a, b)) = values else { continue };
            let z = change(Variable::V(mediator), a, b);
            if z.abs() > 1e-3 {
                self.record_outcomes(mediator.name(), point.place, z, before, &after);
            }
        }
    }

    fn record(&mut self, source: &str, place: usize, z: f64, before: &Reading, after: &Reading) {
        for mediator in Mediator::ALL {
            if let Some((a, b)) = before.0.get(mediator).zip(after.0.get(mediator)) {
                self.add(source, Variable::V(mediator), place, (z, a, b));
            }
        }
        self.record_outcomes(source, place, z, before, after);
    }

    fn record_outcomes(
        &mut self,
        source: &str,
        place: usize,
        z: f64,
        before: &Reading,
        after: &Reading,
    ) {
        for outcome in Outcome::ALL {
            if let Some((a, b)) = before.1.get(outcome).zip(after.1.get(outcome)) {
                self.add(source, Variable::Y(outcome), place, (z, a, b));
            }
        }
    }

    fn add(&mut self, source: &str, to: Variable, place: usize, (z, a, b): (f64, f64, f64)) {
        let key = (source.to_owned(), to.name().to_owned());
        let delta = change(to, a, b);
        self.effects
            .entry(key)
            .or_default()
            .add(place, z, delta, smallest(to));
    }
}
