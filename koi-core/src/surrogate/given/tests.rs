//! Held mediators: nothing changes at predicted values, and each moves its outcomes the way physics says.

use super::*;
use crate::configuration::EngineShape;
use crate::job::JobClass;
use crate::model::ModelFacts;
use crate::surrogate::tests::{facts, gpu, lengths, online_slo, profile, workload};
use crate::surrogate::{Prediction, predict};
use crate::variables::Outcome;

struct Question {
    model: ModelFacts,
    gpu: &'static str,
    shape: EngineShape,
    workload: Workload,
    rate: f64,
    concurrency: Option<u32>,
}

impl Question {
    fn new(model: &str, gpu: &'static str, tp: u32, pp: u32) -> Self {
        let mut workload = workload(lengths(1024.0), lengths(256.0));
        workload.shared_prefix_tokens = 256.0;
        workload.prefix_concentration = 0.8;
        Self {
            model: facts(model),
            gpu,
            shape: EngineShape {
                tp,
                pp,
                max_model_len: Some(8_192),
                ..EngineShape::default()
            },
            workload,
            rate: 0.0,
            concurrency: None,
        }
    }

    /// At this share of its capacity.
    fn at(mut self, share: f64) -> Self {
        self.rate = share * self.predict().capacity_rps;
        self
    }

    fn ask<T>(&self, answer: impl Fn(&Deployment<'_>, &Demand<'_>) -> T) -> T {
        let deployment = Deployment {
            model: &self.model,
            gpu: gpu(self.gpu),
            shape: self.shape,
            n_replicas: 2,
            price_usd_per_hour_per_replica: Some(3.0),
        };
        let demand = Demand {
            workload: &self.workload,
            class: JobClass::Online,
            slo: &online_slo(),
            rate_rps_per_replica: self.rate,
            batch_concurrency: self.concurrency,
        };
        answer(&deployment, &demand)
    }

    fn predict(&self) -> Prediction {
        match self.ask(predict) {
            Answer::Prediction(p) => p,
            other => panic!("{other:?}"),
        }
    }

    fn given(&self, held: MediatorValues) -> Prediction {
        match self.ask(|d, q| predict_given(d, q, profile(), &held)) {
            Answer::Prediction(p) => p,
            other => panic!("{other:?}"),
        }
    }

    /// An outcome with one mediator held at so many times its predicted value.
    fn moved(&self, mediator: Mediator, factor: f64, outcome: Outcome) -> f64 {
        let own = self.predict().mediators.get(mediator).unwrap();
        let held = MediatorValues::absent().with(mediator, own * factor);
        self.given(held).outcomes.get(outcome).unwrap()
    }
}

fn questions() -> Vec<Question> {
    vec![
        Question::new("Llama-3.1-8B", "H100", 1, 1).at(0.6),
        Question::new("Llama-3.1-70B", "A100", 4, 2).at(0.5),
        Question::new("Mixtral-8x7B", "H100", 2, 1).at(0.3),
        Question {
            concurrency: Some(24),
            ..Question::new("Llama-3.1-8B", "L40S", 1, 1)
        },
    ]
}

fn assert_near(got: &Prediction, expected: &Prediction, what: &str) {
    for outcome in Outcome::ALL {
        let (a, b) = (got.outcomes.get(outcome), expected.outcomes.get(outcome));
        assert_eq!(a.is_some(), b.is_some(), "{what}: {outcome}");
        if let (Some(a), Some(b)) = (a, b) {
            assert!(
                (a - b).abs() <= 1e-6 * b.abs(),
                "{what}: {outcome} {a} is not {b}"
            );
        }
    }
}

#[test]
fn nothing_held_is_the_plain_prediction_bit_by_bit() {
    for question in questions() {
        assert_eq!(question.given(MediatorValues::absent()), question.predict());
    }
}

#[test]
fn mediators_held_at_their_predicted_values_change_nothing() {
    for question in questions() {
        let plain = question.predict();
        for (mediator, value) in plain.mediators.present() {
            let held = MediatorValues::absent().with(mediator, value);
            assert_near(&question.given(held), &plain, mediator.name());
        }
        assert_near(&question.given(plain.mediators), &plain, "all of them");
    }
}

#[test]
fn each_carrier_moves_the_outcomes_downstream_of_it() {
    let one = Question::new("Llama-3.1-8B", "H100", 1, 1).at(0.6);
    let staged = Question::new("Llama-3.1-70B", "A100", 4, 2).at(0.5);
    let routed = Question::new("Mixtral-8x7B", "H100", 2, 1).at(0.3);
    use Mediator as M;
    use Outcome as Y;
    for (question, mediator, outcome, grows) in [
        (&one, M::RunningRequests, Y::ThroughputTokensPerSec, true),
        (&one, M::RunningRequests, Y::P99TpotMs, true),
        (&one, M::RunningRequests, Y::CostPerToken, false),
        (&one, M::QueueDepth, Y::P99TtftMs, true),
        (&one, M::KvcacheHitRate, Y::P99TtftMs, false),
        (&one, M::PdImbalance, Y::P99TpotMs, false),
        (&one, M::InputLengthObserved, Y::P99TtftMs, true),
        (&one, M::OutputLengthObserved, Y::CostPerToken, false),
        (&one, M::KvPressureScore, Y::P99TtftMs, true),
        (&one, M::KvCacheUtil, Y::P99TpotMs, true),
        (&one, M::SmUtilization, Y::ThroughputTokensPerSec, true),
        (
            &one,
            M::MemBandwidthUtilization,
            Y::ThroughputTokensPerSec,
            true,
        ),
        (
            &one,
            M::PrefillTokensPerSec,
            Y::ThroughputTokensPerSec,
            true,
        ),
        (&one, M::DecodeStepsPerSec, Y::P99TpotMs, false),
        (&one, M::DispatchOverheadMs, Y::P99TpotMs, true),
        (
            &staged,
            M::PipelineBubbleFraction,
            Y::ThroughputTokensPerSec,
            false,
        ),
        (&staged, M::PerTokCommBytes, Y::P99TpotMs, true),
        (
            &staged,
            M::CommOverheadPct,
            Y::ThroughputTokensPerSec,
            false,
        ),
        (&routed, M::ExpertImbalance, Y::P99TpotMs, true),
    ] {
        let low = question.moved(mediator, 1.0, outcome);
        let high = question.moved(mediator, 1.2, outcome);
        // A log ratio that is negative falls when it is multiplied.
        let direction = (high - low) * if grows { 1.0 } else { -1.0 };
        assert!(direction > 0.0, "{mediator} -> {outcome}: {low} to {high}");
    }
}

#[test]
fn a_held_time_per_step_goes_straight_into_the_time_per_token() {
    let question = Question::new("Llama-3.1-8B", "H100", 1, 1).at(0.6);
    let mean = |factor: f64| {
        let own = question
            .predict()
            .mediators
            .get(Mediator::DecodeStepsPerSec)
            .unwrap();
        let held = MediatorValues::absent().with(Mediator::DecodeStepsPerSec, own * factor);
        question.given(held).tpot_mean_ms.unwrap()
    };
    assert!((mean(0.5) / mean(1.0) - 2.0).abs() < 1e-9);
}

#[test]
fn an_overloaded_replica_has_latencies_once_its_batch_and_queue_are_held() {
    let question = Question::new("Llama-3.1-8B", "H100", 1, 1).at(1.5);
    assert_eq!(question.predict().outcomes.get(Outcome::P99TtftMs), None);
    let held = MediatorValues::absent()
        .with(Mediator::RunningRequests, 64.0)
        .with(Mediator::QueueDepth, 20.0);
    let given = question.given(held);
    assert!(given.outcomes.get(Outcome::P99TtftMs).unwrap() > 0.0);
    assert!(given.outcomes.get(Outcome::P99TpotMs).unwrap() > 0.0);
}
