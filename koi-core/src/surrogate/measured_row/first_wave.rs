//! What the start of a run adds to the worst hundredth of its first tokens.
//!
//! A benchmark that keeps a number of requests in flight sends as many at once when it starts. Their
//! prompts are computed one after the other, and so many requests of a run are of this wave that it
//! decides the 99th percentile. Not a matter of plans: a fleet starts once. Not of time per token
//! either: with a fixed number in flight a request meets as many prompts as it has companions,
//! whether they come together or apart. Spec §4.

use super::{LoadKind, Question};
use crate::surrogate::Evaluation;

/// Requests of a run for each that is kept in flight, where a row does not say: the rule of the
/// scripts of several public serving benchmarks.
const REQUESTS_PER_CLIENT: f64 = 10.0;
/// What lies beyond a 99th percentile.
const BEYOND: f64 = 0.01;

/// The 99th percentile of time to first token as the first wave alone would have it, in
/// milliseconds; none where all requests come at once anyway, where they arrive by themselves, and
/// where the wave is less than a hundredth of the run.
///
/// # Formula
/// t₀ + r·p·n + s·(1 + p·(l − 1)) + (p·n − l)⁺/λ; p = 1 − 0.01·N/n the place in the wave of n among N
/// requests, l the live batch, s a prompt's service, λ the rate at which others finish
pub(super) fn ttft_p99_ms(question: &Question, evaluation: &Evaluation<'_>) -> Option<f64> {
    let keeps_in_flight = matches!(
        question.load_kind,
        LoadKind::Concurrency | LoadKind::StaticBatch
    );
    let clients = question.load_per_replica.filter(|_| keeps_in_flight)?;
    let requests = question
        .requests_per_replica
        .unwrap_or(REQUESTS_PER_CLIENT * clients);
    let place = 1.0 - BEYOND * (requests / clients).max(1.0);
    if place <= 0.0 {
        return None;
    }
    let (machine, point) = (&evaluation.machine, &evaluation.point);
    let engine = machine.profile.constants.engine(machine.profile.generation);
    let live = point.live.min(clients);
    let ahead = place * (live - 1.0).max(0.0);
    let service = machine.prompt_service_seconds(&evaluation.traffic, point);
    let for_a_slot = (place * clients - live).max(0.0) / point.rate_rps;
    let front_end = engine.first_token_overhead_ms + engine.request_overhead_ms * place * clients;
    Some(front_end + (service * (1.0 + ahead) + for_a_slot) * 1e3)
}
