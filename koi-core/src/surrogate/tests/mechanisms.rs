//! Directions and sizes of the settings that have an exact mechanism.

use super::{Case, lengths, workload};
use crate::configuration::Term;
use crate::surrogate::{Answer, Prediction};
use crate::variables::Mediator;

/// A prediction with some terms set.
fn with(case: Case, terms: &[(Term, f64)]) -> Prediction {
    let mut case = case;
    for (term, value) in terms {
        case.shape.effects.add(*term, *value);
    }
    case.predict()
}

fn v(prediction: &Prediction, mediator: Mediator) -> f64 {
    prediction.mediators.get(mediator).unwrap()
}

fn small() -> Case {
    Case {
        concurrency: Some(32),
        ..Case::new("Llama-3.1-8B", "H100", 1)
    }
}

#[test]
fn a_pool_of_a_given_size_is_that_size() {
    let plain = small().predict();
    let bytes = 8e9;
    let capped = with(small(), &[(Term::KvPoolBytes, bytes)]);
    assert!((capped.memory.kv_pool_bytes - bytes).abs() < 1.0);
    assert!(v(&capped, Mediator::KvPressureScore) > v(&plain, Mediator::KvPressureScore));
    assert!(v(&capped, Mediator::KvCacheUtil) > v(&plain, Mediator::KvCacheUtil));
    let blocks = with(small(), &[(Term::KvPoolBlocks, 4_000.0)]);
    assert!((blocks.memory.kv_pool_tokens - 64_000.0).abs() < 1.0);
    let tokens = with(small(), &[(Term::KvPoolTokens, 50_000.0)]);
    assert!((tokens.memory.kv_pool_tokens - 50_000.0).abs() < 16.0);
    let memory = capped.memory;
    let sum = memory.weights_bytes
        + memory.activation_bytes
        + memory.reserved_bytes
        + memory.kv_pool_bytes;
    assert!((sum - memory.allowed_bytes).abs() < 1.0);
}

#[test]
fn a_pool_beyond_the_device_does_not_fit() {
    let mut case = small();
    case.shape.effects.add(Term::KvPoolBytes, 100e9);
    assert!(matches!(case.answer(), Answer::DoesNotFit(_)));
    let mut case = small();
    case.shape.effects.add(Term::KvPoolBytes, 1e6);
    assert!(matches!(case.answer(), Answer::DoesNotFit(_)));
}

#[test]
fn offloaded_weights_free_memory_and_slow_every_step() {
    let plain = small().predict();
    let bytes = 4.0 * 1024.0_f64.powi(3);
    let waiting = with(small(), &[(Term::OffloadBytes, bytes)]);
    assert!((plain.memory.weights_bytes - waiting.memory.weights_bytes - bytes).abs() < 1.0);
    let (fast, slow) = (
        v(&plain, Mediator::DecodeStepsPerSec),
        v(&waiting, Mediator::DecodeStepsPerSec),
    );
    assert!(slow < fast);
    let bus = bytes / 64e9;
    let longer = 1.0 / slow - 1.0 / fast;
    assert!((longer / bus - 1.0).abs() < 0.05, "{longer} against {bus}");
    let traffic = v(&waiting, Mediator::PcieBytesPerSec);
    assert!((traffic / (slow * bytes) - 1.0).abs() < 1e-9);
    let fetched = with(
        small(),
        &[(Term::OffloadBytes, bytes), (Term::OffloadPrefetch, 1.0)],
    );
    let between = v(&fetched, Mediator::DecodeStepsPerSec);
    assert!(slow < between && between < fast);
}

#[test]
fn launches_without_graphs_cost_what_eager_ones_do() {
    let plain = small().predict();
    let mut eager = small();
    eager.shape.enforce_eager = true;
    let eager = eager.predict();
    let none = with(small(), &[(Term::EagerLaunchShare, 1.0)]);
    let of = |p: &Prediction| v(p, Mediator::DispatchOverheadMs);
    assert!(of(&eager) > of(&plain));
    assert!((of(&none) / of(&eager) - 1.0).abs() < 1e-12);
    // A batch of 32 is far beyond eight captured sequences and within 64.
    let few = with(small(), &[(Term::CapturedSequences, 8.0)]);
    let enough = with(small(), &[(Term::CapturedSequences, 64.0)]);
    assert!((of(&few) / of(&eager) - 1.0).abs() < 1e-12);
    assert!((of(&enough) / of(&plain) - 1.0).abs() < 1e-12);
    let headroom = |p: &Prediction| v(p, Mediator::VramHeadroomGb);
    assert!(few.memory.reserved_bytes < enough.memory.reserved_bytes);
    assert!(headroom(&eager) > headroom(&plain));
}

#[test]
fn guesses_that_are_accepted_shorten_the_time_per_token() {
    let few = || Case {
        concurrency: Some(2),
        ..small()
    };
    let plain = few().predict();
    let eagle = [
        (Term::AcceptedShare, 0.8),
        (Term::GuessedTokens, 3.0),
        (Term::DraftLayers, 1.0),
    ];
    let guessed = with(few(), &eagle);
    assert!(guessed.tpot_mean_ms < plain.tpot_mean_ms);
    assert!(v(&guessed, Mediator::DecodeStepsPerSec) < v(&plain, Mediator::DecodeStepsPerSec));
    assert!(guessed.memory.weights_bytes > plain.memory.weights_bytes);
    let mut limited = eagle.to_vec();
    limited.push((Term::GuessBatchLimit, 2.0));
    let off = with(few(), &limited);
    let ratio = off.tpot_mean_ms.unwrap() / plain.tpot_mean_ms.unwrap();
    assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
    // Where arithmetic binds, checking guesses costs as much as it gains.
    let many = || Case {
        concurrency: Some(256),
        ..small()
    };
    let gain = |plain: &Prediction, with: &Prediction| {
        plain.tpot_mean_ms.unwrap() / with.tpot_mean_ms.unwrap()
    };
    assert!(gain(&many().predict(), &with(many(), &eagle)) < gain(&plain, &guessed));
}

#[test]
fn a_free_share_a_bound_and_a_reserve_lower_the_batch() {
    let full = || {
        let mut case = Case {
            concurrency: Some(200),
            ..Case::new("Llama-3.1-8B", "A10G", 1)
        };
        case.workload = workload(lengths(2_000.0), lengths(500.0));
        case
    };
    let running = |p: &Prediction| v(p, Mediator::RunningRequests);
    let plain = full().predict();
    for (term, value) in [
        (Term::KeptFreeFraction, 0.3),
        (Term::ActiveSequences, 4.0),
        (Term::ReservedAnswerFactor, 3.0),
        (Term::LookaheadTokens, 200.0),
    ] {
        let bound = with(full(), &[(term, value)]);
        assert!(running(&bound) < running(&plain), "{term:?}");
    }
    let refused = with(full(), &[(Term::RequestsInFlight, 12.0)]);
    assert!(v(&refused, Mediator::QueueDepth) + running(&refused) <= 12.0 + 1e-9);
}

#[test]
fn adapters_take_the_room_of_their_rank() {
    let plain = small().predict().memory.weights_bytes;
    let room = |rank: f64| {
        let terms = [(Term::LoraSlots, 2.0), (Term::LoraRank, rank)];
        with(small(), &terms).memory.weights_bytes - plain
    };
    // Llama-3.1-8B: in + out over seven matrices of 32 layers, two adapters of rank 16, two bytes.
    let per_layer = 4_096.0 * 4.0 + 6_144.0 + 4_096.0 + 3.0 * (4_096.0 + 14_336.0);
    let expected = 2.0 * 16.0 * 2.0 * 32.0 * per_layer;
    assert!(
        (room(16.0) / expected - 1.0).abs() < 1e-9,
        "{}",
        room(16.0) / expected
    );
    assert!((room(64.0) / room(16.0) - 4.0).abs() < 1e-9);
}

#[test]
fn context_shards_divide_the_cache_and_need_copies_of_heads() {
    let base = || Case {
        concurrency: Some(64),
        ..Case::new("Qwen3-30B-A3B", "H100", 8)
    };
    let plain = base().predict();
    let split = with(base(), &[(Term::ContextShards, 2.0)]);
    let ratio = plain.memory.kv_bytes_per_token / split.memory.kv_bytes_per_token;
    assert!((ratio - 2.0).abs() < 1e-12);
    assert!(v(&split, Mediator::PerTokCommBytes) > v(&plain, Mediator::PerTokCommBytes));
    assert!(v(&split, Mediator::KvPressureScore) < v(&plain, Mediator::KvPressureScore));
    let mut refused = small();
    refused.shape.effects.add(Term::ContextShards, 2.0);
    assert!(refused.unsupported().contains("dcp 2"));
}
