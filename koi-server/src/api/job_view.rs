//! What one read of the machine gives about a job, and the interval it is measured over.

use koi_core::catalog::Catalog;
use koi_core::ids::{Generation, JobId};
use koi_core::rollout::SloTally;
use koi_core::rollout::live::Live;
use koi_core::store::{JobRecord, ReplicaPhase, ReplicaRecord, ReplicaRole, ServerState};
use koi_core::telemetry::pool::PooledWindow;
use koi_core::telemetry::series::{CounterSeries, HistogramSeries};
use koi_core::tick::observatory::{CurrentView, Interval, Observatory};
use koi_core::time::UtcMicros;
use koi_core::variables::{Outcome, OutcomeValues};
use koi_proto::v1;
use tonic::Status;

use super::encode;
use super::status::invalid_field;

/// Windows within this many seconds count for "inside the SLO" when no interval is named.
const SLO_LOOKBACK_SECONDS: i64 = 600;
/// Longest interval, and how far back it may reach.
const MAX_OVER_SECONDS: u32 = 1_200;

/// The time that a view covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookback {
    /// The newest two minutes of the newest generation.
    Recent,
    /// An interval, over all generations that ran then.
    Over(Interval),
}

impl Lookback {
    /// The interval that a request names.
    pub(super) fn of(request: &v1::GetJobRequest, now: UtcMicros) -> Result<Self, Status> {
        let (seconds, until) = (request.over_seconds, request.until_us);
        if seconds == 0 && until == 0 {
            return Ok(Self::Recent);
        }
        if !(1..=MAX_OVER_SECONDS).contains(&seconds) {
            let message = format!("must be 1 to {MAX_OVER_SECONDS} seconds, got {seconds}");
            return Err(invalid_field("over_seconds", message));
        }
        let oldest = now.plus_seconds(-i64::from(MAX_OVER_SECONDS));
        let to = if until == 0 { now } else { UtcMicros(until) };
        if to < oldest || to > now {
            let message = format!("must be within the last {MAX_OVER_SECONDS} seconds");
            return Err(invalid_field("until_us", message));
        }
        Ok(Self::Over(Interval::before(to, i64::from(seconds))))
    }
}

/// What one read of the machine gives about a job.
pub(super) struct JobView {
    pub(super) record: JobRecord,
    pub(super) replicas: Vec<v1::Replica>,
    pub(super) current: Option<CurrentView>,
    pub(super) tally: SloTally,
    /// What the devices of the active ladder's replicas cost now; absent when one has no price.
    pub(super) usd_per_hour: Option<f64>,
}

impl JobView {
    /// The view of a live job at a moment.
    pub(super) fn of(
        (state, live): (&ServerState, &Live),
        observatory: &Observatory,
        catalog: &Catalog,
        job: &JobRecord,
        (lookback, now): (Lookback, UtcMicros),
    ) -> Self {
        let (current, tally_over) = match lookback {
            Lookback::Recent => (
                observatory.now(state, catalog, job, now),
                Interval::before(now, SLO_LOOKBACK_SECONDS),
            ),
            Lookback::Over(interval) => (observatory.over(state, catalog, job, interval), interval),
        };
        let replicas = state.replicas_of(job.id).map(|r| v1::Replica {
            failure: failure(r, live),
            ..encode::replica(r, &job.spec.model.id)
        });
        Self {
            record: job.clone(),
            replicas: replicas.collect(),
            usd_per_hour: job
                .active
                .as_ref()
                .and_then(|active| usd_per_hour(state, job.id, active.generation)),
            current,
            tally: observatory.tally(job.id, tally_over),
        }
    }

    pub(super) fn to_wire(&self) -> v1::Job {
        let record = &self.record;
        let reason = match &record.state {
            koi_core::store::JobState::LaunchFailed { reason }
            | koi_core::store::JobState::Finished { reason } => reason.clone(),
            koi_core::store::JobState::Waiting
            | koi_core::store::JobState::Running
            | koi_core::store::JobState::Paused => String::new(),
        };
        v1::Job {
            job_id: record.id.to_string(),
            spec: Some(v1::JobSpec::from(&record.spec)),
            state: record.state.name().to_owned(),
            state_reason: reason,
            submitted_at_us: record.submitted_at.0,
            active: record.active.as_ref().map(|active| v1::CommittedLadder {
                usd_per_hour: self.usd_per_hour.or(active.promise.usd_per_hour),
                ..encode::committed(active)
            }),
            rollout: record.rollout.as_ref().map(encode::rollout),
            note: record.note.clone().unwrap_or_default(),
            replicas: self.replicas.clone(),
            measured: self.current.as_ref().map(|c| measured(c, self.tally)),
            ticks_waited: record.ticks_waited,
        }
    }
}

/// Why a replica does not serve: what is stored, else what its agent says of the try it is at.
fn failure(replica: &ReplicaRecord, live: &Live) -> String {
    if let ReplicaPhase::Failed { reason } = &replica.phase {
        return reason.clone();
    }
    let host = live.hosts.get(&replica.host);
    let seen = host.and_then(|host| host.replicas.get(&replica.id));
    seen.map(|r| r.reason.clone()).unwrap_or_default()
}

/// What the devices of one generation's serving replicas cost now; absent without replicas, and when
/// one of them has no price.
fn usd_per_hour(state: &ServerState, job: JobId, generation: Generation) -> Option<f64> {
    let of_ladder =
        |r: &&ReplicaRecord| r.id.generation == generation && matches!(r.role, ReplicaRole::Serve);
    let mut replicas = state.replicas_of(job).filter(of_ladder).peekable();
    replicas.peek()?;
    let price = |r: &ReplicaRecord| {
        let gpu = state.gpu_usd_per_hour(state.hosts.get(&r.host)?)?;
        Some(gpu * r.gpu_uuids.len() as f64)
    };
    replicas.map(price).sum()
}

/// The outcomes with the throughput that the job had over the time shown: replicas that followed each
/// other served one after the other, and a sum over all of them would count each for the whole time.
fn over_time(mut outcomes: OutcomeValues, pooled: &PooledWindow) -> OutcomeValues {
    let seconds = pooled.end.seconds_since(pooled.start);
    let tokens = pooled.total(CounterSeries::GenerationTokens);
    if let Some(tokens) = tokens.filter(|_| seconds > 0.0) {
        let per_second = tokens as f64 / seconds;
        outcomes.set(Outcome::ThroughputTokensPerSec, Some(per_second));
    }
    outcomes
}

fn measured(view: &CurrentView, tally: SloTally) -> v1::Measured {
    let mean_based = if view.observation.mean_based {
        vec!["p99_ttft_ms".to_owned(), "p99_tpot_ms".to_owned()]
    } else {
        Vec::new()
    };
    v1::Measured {
        mediators: encode::mediators(&view.observation.mediators),
        outcomes: encode::outcomes(&over_time(view.observation.outcomes, &view.pooled)),
        mean_based,
        n_requests: view.pooled.observations(HistogramSeries::TimeToFirstToken),
        from_us: view.pooled.start.0,
        to_us: view.pooled.end.0,
        n_windows_judged: tally.judged,
        n_windows_inside: tally.inside,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use koi_core::gpu::GpuFacts;
    use koi_core::host::{HostFacts, HostPrice, HostRecord};
    use koi_core::ids::{HostGeneration, ReplicaId};
    use koi_core::rollout::live::{ObservedPhase, ObservedReplica, ObservedState};
    use koi_core::telemetry::pool::merge;
    use koi_core::telemetry::window::Window;

    use super::*;

    const JOB: JobId = JobId(uuid::Uuid::from_u128(7));
    const NOW: UtcMicros = UtcMicros(1_000_000);

    /// A minute of one replica that made 6,000 tokens.
    fn minute(replica: &str, from_s: i64) -> Window {
        Window {
            replica: replica.parse().unwrap(),
            start: UtcMicros(from_s * 1_000_000),
            end: UtcMicros((from_s + 60) * 1_000_000),
            elapsed_micros: 60_000_000,
            scrapes: 13,
            failed_scrapes: 0,
            gpus: 1,
            counters: BTreeMap::from([(CounterSeries::GenerationTokens, 6_000)]),
            gauges: BTreeMap::new(),
            histograms: BTreeMap::new(),
            tpot_source: None,
            cache: Default::default(),
            flags: BTreeSet::new(),
        }
    }

    #[test]
    fn replicas_that_followed_each_other_do_not_add_up() {
        let tokens_per_second = |windows: &[Window]| {
            let pooled = merge(windows).unwrap();
            over_time(OutcomeValues::absent(), &pooled).get(Outcome::ThroughputTokensPerSec)
        };
        let one = minute("chat.g1.r0.0", 0);
        let after = [one.clone(), minute("chat.g2.r0.0", 60)];
        let beside = [one, minute("chat.g1.r0.1", 0)];
        assert_eq!(tokens_per_second(&after), Some(100.0));
        assert_eq!(tokens_per_second(&beside), Some(200.0));
    }

    /// A host of four devices.
    fn host(name: &str, usd_per_hour: Option<f64>) -> HostRecord {
        let gpus = (0..4).map(|index| GpuFacts {
            uuid: format!("GPU-{name}-{index}"),
            index,
            name: "NVIDIA L40S".to_owned(),
            memory_bytes: 48 << 30,
            power_limit_w: None,
        });
        let facts = HostFacts {
            host: name.parse().unwrap(),
            environment: "on_demand/aws/us-east-1/a/L40S".parse().unwrap(),
            instance_type: "g6e.24xlarge".to_owned(),
            gpus: gpus.collect(),
            nvlink: false,
            price: usd_per_hour.map(|usd_per_hour| HostPrice {
                usd_per_hour,
                source: "a test".to_owned(),
                date: "2026-11-30".to_owned(),
            }),
            address: "127.0.0.1".to_owned(),
            boot_id: "boot".to_owned(),
            build_id: "build".to_owned(),
            engines: Vec::new(),
            simulated: true,
        };
        HostRecord {
            facts: facts.check().unwrap(),
            cordoned: false,
            draining_since: None,
            generation: HostGeneration(1),
            first_seen: NOW,
        }
    }

    /// A serving replica on so many devices of a host.
    fn replica(generation: u32, index: u32, on: &str, n_gpus: usize) -> ReplicaRecord {
        ReplicaRecord {
            id: ReplicaId {
                job: "chat".parse().unwrap(),
                generation: Generation(generation),
                rank: 0,
                index,
            },
            job: JOB,
            host: on.parse().unwrap(),
            gpu_uuids: (0..n_gpus).map(|i| format!("GPU-{on}-{i}")).collect(),
            role: ReplicaRole::Serve,
            phase: ReplicaPhase::Launching,
            endpoint: None,
            reserved_at: NOW,
            ready_at: None,
            n_starts: 0,
        }
    }

    fn state(hosts: &[HostRecord], replicas: &[ReplicaRecord]) -> ServerState {
        let hosts = hosts.iter().map(|h| (h.facts.host.clone(), h.clone()));
        let replicas = replicas.iter().map(|r| (r.id.clone(), r.clone()));
        ServerState {
            hosts: hosts.collect(),
            replicas: replicas.collect(),
            ..ServerState::default()
        }
    }

    #[test]
    fn a_job_costs_its_share_of_every_host_and_nothing_is_guessed() {
        let hosts = [host("a", Some(8.0)), host("b", Some(4.0)), host("c", None)];
        let usd =
            |replicas: &[ReplicaRecord]| usd_per_hour(&state(&hosts, replicas), JOB, Generation(2));
        // Two of four devices at 8 USD/h and one of four at 4 USD/h.
        let (two, one) = (replica(2, 0, "a", 2), replica(2, 1, "b", 1));
        let old = replica(1, 0, "b", 4);
        let leaving = ReplicaRecord {
            role: ReplicaRole::Drain { since: NOW },
            ..replica(2, 2, "b", 2)
        };
        let cost = usd(&[two.clone(), one, old.clone(), leaving]).unwrap();
        assert!((cost - 5.0).abs() < 1e-12, "{cost}");
        // One replica without a price leaves the whole without one: part of a sum is no sum.
        assert_eq!(usd(&[two.clone(), replica(2, 3, "c", 1)]), None);
        assert_eq!(usd(&[two, replica(2, 4, "gone", 1)]), None);
        // What does not serve costs something, but is not known to cost nothing.
        assert_eq!(usd(&[old]), None);
        assert_eq!(usd(&[]), None);
    }

    #[test]
    fn the_price_that_holds_now_counts_not_the_one_the_host_states() {
        let mut state = state(&[host("a", Some(8.0))], &[replica(2, 0, "a", 4)]);
        let other = HostPrice {
            usd_per_hour: 6.0,
            source: "the feed".to_owned(),
            date: "2026-11-30".to_owned(),
        };
        state.priced.insert("a".parse().unwrap(), other);
        assert_eq!(usd_per_hour(&state, JOB, Generation(2)), Some(6.0));
    }

    #[test]
    fn a_failure_is_told_in_the_words_that_are_stored_else_in_the_agents() {
        let launching = replica(2, 0, "a", 1);
        let mut live = Live::default();
        assert_eq!(failure(&launching, &live), "", "nobody has said anything");
        let seen = ObservedReplica {
            id: launching.id.clone(),
            phase: ObservedPhase::Backoff,
            reason: "exited with 1: CUDA out of memory".to_owned(),
            port: None,
            n_starts: 2,
            exit_proven: true,
            engine_version: String::new(),
            engine_args: Vec::new(),
        };
        let observed = ObservedState {
            replicas: vec![seen],
            ..ObservedState::default()
        };
        live.hello("a".parse().unwrap(), NOW, observed);
        assert_eq!(
            failure(&launching, &live),
            "exited with 1: CUDA out of memory"
        );
        // Another replica of the same host, and one whose host is silent, have none.
        assert_eq!(failure(&replica(2, 1, "a", 1), &live), "");
        assert_eq!(failure(&replica(2, 0, "b", 1), &live), "");
        let failed = ReplicaRecord {
            phase: ReplicaPhase::Failed {
                reason: "gave up after 5 starts".to_owned(),
            },
            ..launching
        };
        assert_eq!(failure(&failed, &live), "gave up after 5 starts");
    }

    fn lookback(over_seconds: u32, until_us: i64) -> Result<Lookback, Status> {
        let request = v1::GetJobRequest {
            job: "chat".to_owned(),
            over_seconds,
            until_us,
        };
        Lookback::of(&request, UtcMicros(10_000_000_000))
    }

    #[test]
    fn an_interval_is_bounded_and_the_default_is_recent() {
        assert_eq!(lookback(0, 0).unwrap(), Lookback::Recent);
        let over = |from, to| {
            Lookback::Over(Interval {
                from: UtcMicros(from),
                to: UtcMicros(to),
            })
        };
        assert_eq!(
            lookback(600, 0).unwrap(),
            over(9_400_000_000, 10_000_000_000)
        );
        assert_eq!(
            lookback(60, 9_900_000_000).unwrap(),
            over(9_840_000_000, 9_900_000_000)
        );
        for (seconds, until) in [
            (1_201, 0),
            (0, 9_900_000_000),
            (60, 10_000_000_001),
            (60, 8_799_999_999),
            (60, i64::MIN),
        ] {
            assert!(lookback(seconds, until).is_err(), "{seconds} {until}");
        }
    }
}
