//! Fewer options without losing a best one: dominance per pool, then a cap. Spec §10.1.

use super::LadderOption;
use crate::variables::Outcome;

/// Options of one job that go into the joint choice.
const OPTIONS_MAX: usize = 64;
/// Options that stay for what they teach.
const TEACHERS_MAX: usize = 8;
/// Objectives of which the best option always stays.
const CHAMPION_OBJECTIVES: usize = 4;

/// Cost, TTFT, TPOT, throughput and spare capacity; smaller is better, absent counts as worst.
fn cost_vector(option: &LadderOption) -> [f64; 5] {
    let y = &option.forecast.summary.outcomes;
    let worst = f64::INFINITY;
    let cost = option
        .forecast
        .summary
        .usd_per_hour
        .or(y.get(Outcome::CostPerToken))
        .unwrap_or(worst);
    let capacity: f64 = option
        .forecast
        .ranks
        .iter()
        .map(|r| r.max_tokens_per_sec)
        .sum();
    [
        cost,
        y.get(Outcome::P99TtftMs).unwrap_or(worst),
        y.get(Outcome::P99TpotMs).unwrap_or(worst),
        y.get(Outcome::ThroughputTokensPerSec).map_or(worst, |t| -t),
        -capacity,
    ]
}

/// GPUs in all and in one chain: what a rival must not need more of.
fn demand_vector(option: &LadderOption) -> [u32; 2] {
    [option.ladder.n_gpus(), option.chain_size()]
}

/// Keeps the items whose position is marked.
fn retain_marked<T>(items: &mut Vec<T>, marks: &[bool]) {
    let mut marks = marks.iter();
    items.retain(|_| marks.next().copied().unwrap_or(true));
}

/// Drops options that another one of the same pool beats or equals in everything.
pub(super) fn drop_dominated(options: &mut Vec<LadderOption>) {
    let vectors: Vec<_> = options
        .iter()
        .map(|o| (cost_vector(o), demand_vector(o), o.meets))
        .collect();
    let is_beaten = |i: usize| {
        let (cost, demand, meets) = &vectors[i];
        vectors
            .iter()
            .enumerate()
            .any(|(j, (other_cost, other_demand, other_meets))| {
                let no_worse = other_meets >= meets
                    && other_cost.iter().zip(cost).all(|(a, b)| a <= b)
                    && other_demand.iter().zip(demand).all(|(a, b)| a <= b);
                // Of equals the first one stays.
                j != i && no_worse && (j < i || vectors[j] != vectors[i])
            })
    };
    let teachers = teachers(options);
    let marks: Vec<bool> = (0..options.len())
        .map(|i| teachers.contains(&i) || !is_beaten(i))
        .collect();
    retain_marked(options, &marks);
}

/// Sorts by σ, fewer GPUs first among equals, and keeps 64, among them the best of every objective, overall and among those that
/// meet the limits.
pub(super) fn cap(options: &mut Vec<LadderOption>) {
    options.sort_by(|a, b| {
        let by_score = b.terms.sigma.total_cmp(&a.terms.sigma);
        by_score.then_with(|| demand_vector(a).cmp(&demand_vector(b)))
    });
    if options.len() <= OPTIONS_MAX {
        return;
    }
    let mut marks = vec![false; options.len()];
    for champion in champions(options).into_iter().chain(teachers(options)) {
        marks[champion] = true;
    }
    let mut room = OPTIONS_MAX.saturating_sub(marks.iter().filter(|m| **m).count());
    for mark in &mut marks {
        if !*mark && room > 0 {
            *mark = true;
            room -= 1;
        }
    }
    retain_marked(options, &marks);
}

/// The options of highest information gain among those that meet the limits.
fn teachers(options: &[LadderOption]) -> Vec<usize> {
    let gain = |i: &usize| options[*i].terms.eig.value().filter(|gain| *gain > 0.0);
    let mut ranked: Vec<(usize, f64)> = (0..options.len())
        .filter(|i| options[*i].meets)
        .filter_map(|i| Some((i, gain(&i)?)))
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked
        .into_iter()
        .take(TEACHERS_MAX)
        .map(|(i, _)| i)
        .collect()
}

fn champions(options: &[LadderOption]) -> Vec<usize> {
    let mut found = Vec::new();
    for objective in 0..CHAMPION_OBJECTIVES {
        let value = |i: &usize| cost_vector(&options[*i])[objective];
        let meeting = (0..options.len()).filter(|i| options[*i].meets);
        found.extend(meeting.min_by(|a, b| value(a).total_cmp(&value(b))));
        found.extend((0..options.len()).min_by(|a, b| value(a).total_cmp(&value(b))));
    }
    found
}
