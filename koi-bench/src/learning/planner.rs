//! The stand-in planner: who is swapped, and to what, under the real swap budget and probe allowance.
//!
//! It stands where the global planner will: each tick it swaps as many jobs as the slow loop's budget B
//! allows, and one probe for every 24 jobs, no job within 24 ticks of its last probe. A swap turns one
//! to four settings to random legal levels, now and then the place, and is taken when the surrogate
//! says that the engine starts and has room. A probe turns one setting: the one of some drawn ones that
//! tests most ([`super::probe`]). It knows neither the truth nor which claims are false.

use std::collections::BTreeMap;

use anyhow::anyhow;
use koi_core::catalog::Catalog;
use koi_core::host::HostRecord;
use koi_core::ids::Generation;
use koi_core::ladder::{CommittedLadder, Ladder, Promise, Rank};
use koi_core::params::Params;
use koi_core::plan::Slot;
use koi_core::rng::Rng;
use koi_core::score::dro::{Band, DroInput, SloRisk, band};
use koi_core::score::{Eig, Exploit, SigmaTerms, SigmaWeights};
use koi_core::slow_loop::probe::allowance;
use koi_core::snapshot::Snapshot;
use koi_core::store::{JobRecord, JobState, ReplicaPhase, ReplicaRecord, ReplicaRole};
use koi_core::surrogate::{Answer, Demand, Deployment, Prediction, predict};
use koi_core::variables::{Outcome, OutcomeValues};

use super::fleet::{Place, StudyJob};
use super::knobs::{Knob, turned, turned_one};
use super::probe::Knowledge;
use super::world::World;

/// One swap in so many also changes the place.
const PLACE_ONE_IN: usize = 6;
/// Draws of a swap before the job is left as it is.
const MAX_TRIES: usize = 12;
/// Largest share of the predicted capacity that a swap may use.
const MAX_LOAD: f64 = 0.85;

/// Changes that are weighed for one probe.
const PROBE_DRAWS: usize = 24;

/// Who is swapped in a tick.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) swapped: Vec<usize>,
    /// Who else a probe may have.
    pub(super) free: Vec<usize>,
    pub(super) probes: usize,
}

/// The stand-in.
pub(super) struct Planner {
    knobs: Vec<Knob>,
    places: Vec<Place>,
    params: Params,
    rng: Rng,
    /// False keeps every job as it is.
    pub(super) swaps: bool,
    /// True for a fleet whose loads do not drift: voluntary swaps are made only while the loop asks
    /// for more than one.
    pub(super) is_stationary: bool,
}

impl Planner {
    pub(super) fn new(knobs: Vec<Knob>, places: Vec<Place>, params: &Params, seed: u64) -> Self {
        Self {
            knobs,
            places,
            params: params.clone(),
            rng: Rng::stream(seed, "learning.planner"),
            swaps: true,
            is_stationary: false,
        }
    }

    /// Positions of the jobs that are swapped within the budget, then of those that a probe may have,
    /// and how many probes there are.
    pub(super) fn chosen(&mut self, snapshot: &Snapshot, jobs: &[StudyJob]) -> Chosen {
        if !self.swaps {
            return Chosen::default();
        }
        let slow = &snapshot.state.slow;
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        self.rng.shuffle(&mut order);
        // Where nothing drifts, nothing is gained by a swap that the loop does not ask for.
        let is_asked = !self.is_stationary || slow.swap_budget > self.params.swap_budget_min;
        let budget = if is_asked {
            slow.swap_budget as usize
        } else {
            0
        };
        let budget = budget.min(order.len());
        let (swapped, others) = order.split_at(budget);
        let is_free = |index: &usize| {
            let job = jobs[*index].id;
            slow.probes.is_free(job, snapshot.tick, &self.params)
        };
        Chosen {
            swapped: swapped.to_vec(),
            free: others.iter().copied().filter(is_free).collect(),
            probes: allowance(snapshot.active_jobs(), &self.params) as usize,
        }
    }

    /// Of some changes of one setting of one of these jobs, the one that tests most.
    pub(super) fn probe(
        &mut self,
        catalog: &Catalog,
        snapshot: &Snapshot,
        world: &World,
        (jobs, free): (&[StudyJob], &[usize]),
        knowledge: &Knowledge<'_>,
    ) -> Option<(usize, StudyJob)> {
        let mut best: Option<(f64, usize, StudyJob)> = None;
        for _ in 0..PROBE_DRAWS {
            let index = *free.get(self.rng.below(free.len().max(1)))?;
            let job = &jobs[index];
            let mut next = job.clone();
            next.configuration =
                turned_one(catalog, &self.knobs, &job.configuration, &mut self.rng);
            let environment = self.places[job.place].environment.to_string();
            let change = (&job.configuration, &next.configuration);
            let gain = knowledge.gain(change, &environment);
            let is_better = gain > best.as_ref().map_or(0.0, |(g, ..)| *g);
            if is_better && self.is_able(snapshot, world, &next) {
                best = Some((gain, index, next));
            }
        }
        best.map(|(_, index, next)| (index, next))
    }

    fn is_able(&self, snapshot: &Snapshot, world: &World, next: &StudyJob) -> bool {
        let Some(record) = snapshot.state.jobs.get(&next.id) else {
            return false;
        };
        let able = self
            .ask(snapshot, record, next)
            .is_some_and(|p| !p.saturated && load(&p, record) < MAX_LOAD);
        able && world.chain_of(next, snapshot).is_ok()
    }

    /// Another configuration of a job that the surrogate takes for able.
    pub(super) fn swap(
        &mut self,
        catalog: &Catalog,
        snapshot: &Snapshot,
        world: &World,
        job: &StudyJob,
    ) -> Option<StudyJob> {
        for _ in 0..MAX_TRIES {
            let mut next = job.clone();
            next.configuration = turned(catalog, &self.knobs, &job.configuration, &mut self.rng);
            if self.rng.below(PLACE_ONE_IN) == 0 {
                next.place = self.rng.below(self.places.len());
            }
            let is_same = next.configuration == job.configuration && next.place == job.place;
            if !is_same && self.is_able(snapshot, world, &next) {
                return Some(next);
            }
        }
        None
    }

    fn ask(&self, snapshot: &Snapshot, record: &JobRecord, job: &StudyJob) -> Option<Prediction> {
        let place = &self.places[job.place];
        let shape = job.configuration.shape();
        let host = host_of(snapshot, place)?;
        let usd = snapshot.state.gpu_usd_per_hour(host);
        let deployment = Deployment {
            model: &record.spec.model.facts,
            gpu: &place.gpu,
            shape,
            n_replicas: 1,
            price_usd_per_hour_per_replica: usd.map(|u| u * f64::from(shape.gpus())),
        };
        let demand = Demand {
            workload: &record.spec.workload,
            class: record.spec.class,
            slo: &record.spec.slo,
            rate_rps_per_replica: record.spec.workload.arrival_rate_rps,
            batch_concurrency: None,
        };
        match predict(&deployment, &demand) {
            Answer::Prediction(prediction) => Some(prediction),
            Answer::DoesNotFit(_) | Answer::Unsupported(_) => None,
        }
    }

    /// Writes a job's ladder into the snapshot as if its roll-out had succeeded.
    pub(super) fn commit(
        &self,
        snapshot: &mut Snapshot,
        job: &StudyJob,
    ) -> anyhow::Result<Generation> {
        let record = snapshot
            .state
            .jobs
            .get(&job.id)
            .ok_or_else(|| anyhow!("no job {}", job.id))?;
        let place = &self.places[job.place];
        let host = host_of(snapshot, place).ok_or_else(|| anyhow!("no host in {}", place.text))?;
        let prediction = self
            .ask(snapshot, record, job)
            .ok_or_else(|| anyhow!("{} is not predicted", record.spec.name))?;
        let rank = Rank {
            environment: place.environment.clone(),
            instance_type: host.facts.instance_type.clone(),
            configuration: job.configuration.clone(),
            n_replicas: 1,
            mechanism_id: None,
        };
        let generation = record.last_generation.next();
        let slot = Slot {
            rank: 0,
            index: 0,
            host: host.facts.host.clone(),
            gpu_uuids: Vec::new(),
        };
        let id = koi_core::plan::replica_id(&record.spec.name, generation, &slot);
        let ladder = CommittedLadder {
            generation,
            ladder: Ladder { ranks: vec![rank] },
            promise: self.promise(snapshot, place, prediction),
            committed_at: snapshot.now,
        };
        let replica = ReplicaRecord {
            id: id.clone(),
            job: job.id,
            host: slot.host,
            gpu_uuids: Vec::new(),
            role: ReplicaRole::Serve,
            phase: ReplicaPhase::Ready,
            endpoint: None,
            reserved_at: snapshot.now,
            ready_at: Some(snapshot.now),
            n_starts: 1,
        };
        let state = &mut snapshot.state;
        state.replicas.retain(|_, r| r.job != job.id);
        state.replicas.insert(id, replica);
        if let Some(record) = state.jobs.get_mut(&job.id) {
            record.last_generation = generation;
            record.state = JobState::Running;
            record.active = Some(ladder);
        }
        Ok(generation)
    }

    /// What the real planner would promise: the surrogate's answer with bands from the residuals so far.
    fn promise(&self, snapshot: &Snapshot, place: &Place, prediction: Prediction) -> Promise {
        let radius = snapshot.state.slow.dro_radius;
        let bands: BTreeMap<Outcome, Band> = prediction
            .outcomes
            .present()
            .map(|(outcome, predicted)| {
                let experience = &snapshot.experience;
                let residuals = experience.residuals(None, &place.gpu.id, outcome, &self.params);
                let input = DroInput::of(outcome, predicted, residuals, radius);
                (outcome, band(&input, &self.params))
            })
            .collect();
        Promise {
            outcomes: prediction.outcomes,
            usd_per_hour: prediction.price_usd_per_hour,
            ranks: vec![prediction],
            members: Vec::new(),
            bands: vec![bands],
            sigma: unscored(),
            gain: None,
        }
    }
}

fn host_of<'a>(snapshot: &'a Snapshot, place: &Place) -> Option<&'a HostRecord> {
    let mut hosts = snapshot.state.hosts.values();
    hosts.find(|h| h.facts.environment == place.environment)
}

fn load(prediction: &Prediction, record: &JobRecord) -> f64 {
    record.spec.workload.arrival_rate_rps / prediction.capacity_rps
}

/// A stand-in scores nothing.
fn unscored() -> SigmaTerms {
    SigmaTerms {
        exploit: Exploit {
            j: 0.0,
            gaps: OutcomeValues::absent(),
            limiting: Outcome::P99TtftMs,
        },
        eig: Eig::NotComputed,
        slo_risk: SloRisk {
            any: 0.0,
            by_limit: Vec::new(),
        },
        switch_cost: None,
        weights: SigmaWeights {
            explore_weight: 0.0,
            slo_risk_weight: 0.0,
            churn_price: 0.0,
        },
        sigma: 0.0,
    }
}
