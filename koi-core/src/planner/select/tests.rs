//! The joint choice against brute force, the vectors and its own bound.

use super::*;
use crate::rng::Rng;

fn brute_force(problem: &Problem) -> Option<f64> {
    fn go(problem: &Problem, job: usize, left: &mut [u64], swaps: u32, value: f64) -> Option<f64> {
        let Some(choices) = problem.jobs.get(job) else {
            return Some(value);
        };
        let mut best: Option<f64> = None;
        for choice in choices {
            if choice.n_swaps > swaps || !fits(left, &choice.uses) {
                continue;
            }
            take(left, &choice.uses);
            let below = go(
                problem,
                job + 1,
                left,
                swaps - choice.n_swaps,
                value + choice.gain,
            );
            give(left, &choice.uses);
            best = [best, below].into_iter().flatten().reduce(f64::max);
        }
        best
    }
    go(
        problem,
        0,
        &mut problem.capacity.clone(),
        problem.swap_budget,
        0.0,
    )
}

fn random_problem(rng: &mut Rng) -> Problem {
    let n_rows = 1 + rng.below(5);
    let capacity = (0..n_rows).map(|_| rng.below(12) as u64).collect();
    let jobs = (0..1 + rng.below(6))
        .map(|_| {
            let mut choices = vec![Choice {
                gain: 0.0,
                uses: Vec::new(),
                n_swaps: 0,
            }];
            for _ in 0..rng.below(6) {
                let uses = (0..n_rows)
                    .filter_map(|row| {
                        let amount = rng.below(6) as u64;
                        (amount > 0 && rng.below(2) == 0).then_some((row, amount))
                    })
                    .collect();
                let gain = rng.unit() * 6.0 - 1.0;
                choices.push(Choice {
                    gain,
                    uses,
                    n_swaps: rng.below(2) as u32,
                });
            }
            choices
        })
        .collect();
    Problem {
        capacity,
        swap_budget: rng.below(4) as u32,
        jobs,
    }
}

fn assert_within_rows(problem: &Problem, picks: &[usize]) {
    let mut left = problem.capacity.clone();
    let mut swaps = 0;
    for (job, pick) in problem.jobs.iter().zip(picks) {
        assert!(fits(&left, &job[*pick].uses), "{problem:?} {picks:?}");
        take(&mut left, &job[*pick].uses);
        swaps += job[*pick].n_swaps;
    }
    assert!(swaps <= problem.swap_budget);
}

#[test]
fn equals_brute_force_on_random_instances() {
    let mut rng = Rng::from_seed(11);
    for _ in 0..800 {
        let problem = random_problem(&mut rng);
        let best = brute_force(&problem).unwrap();
        let got = select(&problem, 1).unwrap();
        assert_within_rows(&problem, &got.picks);
        assert!(
            (got.value - best).abs() < 1e-9,
            "{problem:?}: {} instead of {best}",
            got.value
        );
        assert!(got.is_optimal && got.prices.iter().all(|p| *p >= 0.0));
    }
}

/// Without the exact search the value stays close to the optimum and below the bound.
#[test]
fn the_priced_search_alone_is_good_and_its_bound_true() {
    let mut rng = Rng::from_seed(12);
    let (mut sum_best, mut sum_got) = (0.0, 0.0);
    for _ in 0..300 {
        let problem = random_problem(&mut rng);
        let best = brute_force(&problem).unwrap();
        let instance = Instance::new(&problem).unwrap();
        let priced = prices::relax(&instance);
        let picks = local::search(&instance, &priced, 5).unwrap();
        let value = instance.value(&picks);
        assert!(
            priced.bound >= best - 1e-9,
            "bound {} below optimum {best}",
            priced.bound
        );
        assert!(value <= best + 1e-9);
        sum_best += best;
        sum_got += value;
    }
    assert!(sum_got > 0.97 * sum_best, "{sum_got} of {sum_best}");
}

#[test]
fn large_instances_stop_at_the_node_limit_with_a_proven_gap() {
    let mut rng = Rng::from_seed(13);
    let jobs = (0..60)
        .map(|_| {
            let mut choices = vec![Choice {
                gain: 0.0,
                uses: Vec::new(),
                n_swaps: 0,
            }];
            for _ in 0..30 {
                let size = 1_u64 << rng.below(4);
                let uses = vec![(rng.below(12), size)];
                choices.push(Choice {
                    gain: (size as f64).sqrt() * rng.unit(),
                    uses,
                    n_swaps: 0,
                });
            }
            choices
        })
        .collect();
    let problem = Problem {
        capacity: vec![10; 12],
        swap_budget: 0,
        jobs,
    };
    let got = select(&problem, 3).unwrap();
    assert_within_rows(&problem, &got.picks);
    assert!(got.value <= got.bound + 1e-9);
    assert!(
        got.value >= 0.97 * got.bound,
        "{} of {}",
        got.value,
        got.bound
    );
    assert_eq!(got, select(&problem, 3).unwrap());
}

#[test]
fn refuses_malformed_problems() {
    let keep = Choice {
        gain: 0.0,
        uses: Vec::new(),
        n_swaps: 0,
    };
    let problem = |choices| Problem {
        capacity: vec![1],
        swap_budget: 0,
        jobs: vec![choices],
    };
    assert_eq!(select(&problem(vec![]), 0), Err(SelectError::NoChoice(0)));
    let nan = Choice {
        gain: f64::NAN,
        ..keep.clone()
    };
    let bad = Err(SelectError::BadChoice { job: 0, choice: 1 });
    assert_eq!(select(&problem(vec![keep.clone(), nan]), 0), bad);
    let stray = Choice {
        uses: vec![(1, 1)],
        gain: 0.0,
        n_swaps: 0,
    };
    assert_eq!(select(&problem(vec![keep, stray]), 0), bad);
    let big = Choice {
        gain: 1.0,
        uses: vec![(0, 2)],
        n_swaps: 0,
    };
    assert_eq!(select(&problem(vec![big]), 0), Err(SelectError::Infeasible));
}

/// The vector's instances: capacity by GPU type, a swap that is no recreate holds both sides.
#[test]
fn vector_joint_assignment() {
    let Some(file) = crate::planner::test_world::vector("joint_assignment") else {
        return;
    };
    for case in file["cases"].as_array().unwrap() {
        let input = &case["in"];
        let types: Vec<&String> = input["capacity"].as_object().unwrap().keys().collect();
        let amount = |map: &serde_json::Value, t: &str| map[t].as_u64().unwrap_or(0);
        let jobs = input["jobs"].as_array().unwrap().iter().map(|job| {
            let options = job["options"].as_array().unwrap().iter().map(|option| {
                let is_canary = option["swap"] == 1 && option["recreate"] == false;
                let uses = types.iter().enumerate().map(|(row, t)| {
                    let held = if is_canary {
                        amount(&job["holds"], t)
                    } else {
                        0
                    };
                    (row, held + amount(&option["use"], t))
                });
                Choice {
                    gain: option["gain"].as_f64().unwrap(),
                    uses: uses.filter(|(_, n)| *n > 0).collect(),
                    n_swaps: option["swap"].as_u64().unwrap() as u32,
                }
            });
            options.collect()
        });
        let problem = Problem {
            capacity: types
                .iter()
                .map(|t| amount(&input["capacity"], t))
                .collect(),
            swap_budget: input["swap_budget"].as_u64().unwrap() as u32,
            jobs: jobs.collect(),
        };
        let got = select(&problem, 1).unwrap();
        let best = case["out"]["best"].as_f64().unwrap();
        assert!(
            (got.value - best).abs() < 1e-6,
            "{}: {} not {best}",
            case["name"],
            got.value
        );
        assert!(got.is_optimal);
        if case["name"] == "paper_h100_a100" {
            assert_eq!(got.picks, [1, 2]);
        }
    }
}
