//! All seeds and rules of a study, over a few threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use koi_core::catalog::Catalog;
use koi_core::params::{CalibrationRule, InvarianceRule, LearningContrast, Params};

use super::LearningArgs;
use super::claims::{Claim, Claims, Counts, draw};
use super::course::{Rule, Run};
use super::fleet::{Fleet, fleet};
use super::hidden::Hidden;
use super::knobs::knobs;
use super::physics::Physics;
use super::planner::Planner;
use super::record::Course;
use super::world::{DRIFT_SPREAD, World};

/// True claims of a seed, and false ones of each kind.
const COUNTS: Counts = Counts {
    of_true: 14,
    of_each_false: 4,
};

/// How much slower a new engine version generates tokens, and for how many ticks it is watched.
const REGIME_FACTOR: f64 = 1.3;
pub(super) const REGIME_TICKS: u32 = 100;

/// One world under one rule.
pub(super) struct Outcome {
    pub(super) seed: u64,
    pub(super) rule: Rule,
    pub(super) claims: Vec<Claim>,
    pub(super) hidden: Vec<Hidden>,
    pub(super) course: Course,
    pub(super) seconds: f64,
}

/// The hyper-parameters of a rule.
pub(super) fn params(rule: Rule) -> Params {
    match rule {
        Rule::Paper => Params {
            calibration: CalibrationRule::Off,
            invariance_rule: InvarianceRule::Tail,
            learning_contrast: LearningContrast::Off,
            ..Params::default()
        },
        Rule::Calibrated => Params {
            learning_contrast: LearningContrast::Off,
            ..Params::default()
        },
        Rule::Contrast => Params::default(),
    }
}

/// The fleet and the claims of a seed.
pub(super) fn world_of(args: &LearningArgs, seed: u64) -> anyhow::Result<(Fleet, Claims, Physics)> {
    let catalog = Catalog::embedded();
    let size = (args.jobs as usize, args.environments as usize);
    let fleet = fleet(catalog, &Params::default(), size, seed)?;
    let knobs = knobs();
    let physics = Physics::of(catalog, &fleet, &knobs, seed);
    let claims = draw(
        catalog,
        &physics,
        &knobs,
        (fleet.places.len(), COUNTS),
        seed,
    )?;
    Ok((fleet, claims, physics))
}

/// Every seed under every rule.
pub(super) fn all(args: &LearningArgs, first: u64) -> anyhow::Result<Vec<Outcome>> {
    let rules = if args.rules.is_empty() {
        Rule::ALL.to_vec()
    } else {
        args.rules.clone()
    };
    let work: Vec<(u64, Rule)> = (0..u64::from(args.seeds))
        .flat_map(|i| rules.iter().map(move |rule| (first + i, *rule)))
        .collect();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(processors).clamp(1, 64);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((seed, rule)) = work.get(index) else {
                        return;
                    };
                    let result = one(args, *seed, *rule);
                    let mut results = results.lock().unwrap_or_else(|e| e.into_inner());
                    results.push((index, result));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn one(args: &LearningArgs, seed: u64, rule: Rule) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let (fleet, claims, _) = world_of(args, seed)?;
    let params = params(rule);
    let drift = if args.stationary { 0.0 } else { DRIFT_SPREAD };
    let world = World::new(fleet.places.clone(), claims.hidden.clone(), drift, seed);
    let mut planner = Planner::new(knobs(), fleet.places.clone(), &params, seed);
    planner.is_stationary = args.stationary;
    let mut run = Run::new(
        Catalog::embedded(),
        params,
        claims.model,
        (fleet, world, planner),
    )?;
    for _ in 0..args.ticks {
        run.tick()?;
    }
    if args.regime_change {
        run.world.slow_decode(REGIME_FACTOR);
        for _ in 0..REGIME_TICKS {
            run.tick()?;
        }
    }
    let book = &run.snapshot.state.contrasts;
    run.course.read_slopes(book, &run.model);
    Ok(Outcome {
        seed,
        rule,
        claims: claims.claims,
        hidden: claims.hidden,
        course: run.course,
        seconds: begun.elapsed().as_secs_f64(),
    })
}
