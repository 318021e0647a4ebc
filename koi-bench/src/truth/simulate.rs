//! One simulated engine on a virtual clock: at an open load, and kept full.

use koi_core::time::{MICROS_PER_SECOND, UtcMicros};
use koi_sim::engine::{EngineConfig, EngineSim, Request};
use koi_sim::histogram::Histogram;
use koi_sim::metrics::EngineMetrics;
use koi_sim::prompt::TokenChain;
use koi_sim::truth::Truth;
use koi_sim::workload::{Arrivals, Planned, Workload};

/// Share of the requests that only bring the engine to its steady state.
const WARM_UP_SHARE: f64 = 0.25;
/// Longest virtual time of a run; an engine that cannot keep up would otherwise queue for ever.
const MAX_VIRTUAL_SECONDS: f64 = 1e6;

/// Means over the requests after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Observed {
    /// Mean time to first token.
    pub(super) ttft_mean_ms: f64,
    /// Mean over requests of the time per output token.
    pub(super) tpot_mean_ms: f64,
}

/// Requests of a workload, as many as asked for.
pub(super) fn requests(workload: &Workload, seed: u64, n: usize) -> Vec<Planned> {
    workload.generate(seed, UtcMicros(0), MAX_VIRTUAL_SECONDS, n)
}

/// A full engine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Full {
    /// Generated tokens per second.
    pub(super) tokens_per_second: f64,
    /// Mean number of sequences in a step.
    pub(super) sequences: f64,
    /// Nothing waited in some step: what arrived, not the engine, may have set the figure.
    pub(super) was_starved: bool,
}

/// The means of [`window`]; `None` when nothing finished in it.
pub(super) fn open_loop(
    config: &EngineConfig,
    truth: &Truth,
    planned: &[Planned],
) -> anyhow::Result<Option<Observed>> {
    let Some((before, after)) = window(config, truth, planned)? else {
        return Ok(None);
    };
    let ttft = |m: &EngineMetrics| m.time_to_first_token_s.clone();
    let tpot = |m: &EngineMetrics| m.request_time_per_output_token_s.clone();
    let ttft_mean_ms = mean_ms_since(&ttft(&before), &ttft(&after));
    let tpot_mean_ms = mean_ms_since(&tpot(&before), &tpot(&after));
    Ok(ttft_mean_ms
        .zip(tpot_mean_ms)
        .map(|(ttft_mean_ms, tpot_mean_ms)| Observed {
            ttft_mean_ms,
            tpot_mean_ms,
        }))
}

/// Runs an engine on requests that arrive by themselves: its metrics at the end of the warm-up and at
/// the last arrival; `None` when the warm-up did not end.
pub(super) fn window(
    config: &EngineConfig,
    truth: &Truth,
    planned: &[Planned],
) -> anyhow::Result<Option<(EngineMetrics, EngineMetrics)>> {
    let mut engine = EngineSim::new(config.clone(), truth.clone())?;
    let warm = (planned.len() as f64 * WARM_UP_SHARE) as usize;
    let (mut next, mut finished, mut now) = (0, 0, UtcMicros(0));
    let mut before: Option<EngineMetrics> = None;
    while next < planned.len() {
        while let Some(due) = planned.get(next).filter(|p| p.at <= now) {
            engine.submit(due.at, request(next, due, due.at, config.block_size))?;
            next += 1;
        }
        let Some(step) = engine.begin_step(now) else {
            let Some(due) = planned.get(next) else { break };
            now = now.max(due.at);
            continue;
        };
        now = step.ends;
        let events = engine.finish_step(now);
        finished += events.iter().filter(|e| e.finish.is_some()).count();
        if finished >= warm && before.is_none() {
            before = Some(engine.metrics());
        }
    }
    Ok(before.map(|before| (before, engine.metrics())))
}

fn mean_ms_since(before: &Histogram, after: &Histogram) -> Option<f64> {
    let n = after.count() - before.count();
    (n > 0).then(|| 1000.0 * (after.sum - before.sum) / n as f64)
}

/// Runs an engine that always has more requests than it can batch.
pub(super) fn saturated(
    config: &EngineConfig,
    truth: &Truth,
    planned: &[Planned],
) -> anyhow::Result<Option<Full>> {
    let mut engine = EngineSim::new(config.clone(), truth.clone())?;
    let warm = (planned.len() as f64 * WARM_UP_SHARE) as usize;
    let outstanding = 2 * config.max_num_seqs as usize;
    let (mut next, mut finished, mut now) = (0, 0, UtcMicros(0));
    let (mut tokens, mut steps, mut sequences) = (0_u64, 0_u64, 0_u64);
    let mut was_starved = false;
    let mut start: Option<UtcMicros> = None;
    while next < planned.len() {
        while engine.n_unfinished() < outstanding && next < planned.len() {
            let due = &planned[next];
            engine.submit(now, request(next, due, now, config.block_size))?;
            next += 1;
        }
        let Some(step) = engine.begin_step(now) else {
            break;
        };
        now = step.ends;
        let in_step = step.load.decode_seqs + step.load.prefill_seqs;
        let nothing_waits = engine.n_unfinished() <= in_step as usize;
        let events = engine.finish_step(now);
        finished += events.iter().filter(|e| e.finish.is_some()).count();
        if start.is_some() {
            tokens += events.len() as u64;
            sequences += u64::from(in_step);
            was_starved |= nothing_waits;
            steps += 1;
        } else if finished >= warm {
            start = Some(now);
        }
    }
    let seconds = start.map_or(0.0, |start| now.seconds_since(start));
    Ok((seconds > 0.0).then(|| Full {
        tokens_per_second: tokens as f64 / seconds,
        sequences: sequences as f64 / steps as f64,
        was_starved,
    }))
}

fn request(id: usize, planned: &Planned, arrival: UtcMicros, block_size: u32) -> Request {
    let unique = planned.prompt_tokens - planned.prefix_tokens;
    let (prefix_seed, own_seed) = (u64::from(planned.prefix), (1 << 32) + id as u64);
    Request {
        id: id as u64,
        arrival,
        prompt: TokenChain::synthetic(
            (prefix_seed, planned.prefix_tokens),
            (own_seed, unique),
            block_size,
        ),
        max_tokens: planned.answer_tokens,
        natural_end: None,
        answer_seed: id as u64,
    }
}

/// The same workload at another mean rate.
pub(super) fn at_rate(workload: &Workload, rate_rps: f64) -> Workload {
    Workload {
        arrivals: Arrivals::Poisson { rate_rps },
        ..*workload
    }
}

/// Seconds that so many requests take to arrive.
pub(super) fn span_s(planned: &[Planned]) -> f64 {
    planned
        .last()
        .map_or(0.0, |p| p.at.0 as f64 / MICROS_PER_SECOND as f64)
}
