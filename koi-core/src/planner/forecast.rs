//! What a ladder of a job would do now: the only file of the planner that asks the surrogate.

mod job_view;

use super::context::PlanningContext;
use super::pools::PoolKey;
use crate::catalog::GpuType;
use crate::configuration::EngineShape;
use crate::ids::HostId;
use crate::job::JobClass;
use crate::ladder::Ladder;
use crate::model::WeightDtype;
use crate::snapshot::Snapshot;
use crate::surrogate::members::Members;
use crate::surrogate::neighbours::HeardPoint;
use crate::surrogate::{
    Answer, Demand, Deployment, MemoryBreakdown, Prediction, Told, cold_start_seconds,
    cost_per_token, predict_on, roll_up,
};
use crate::variables::{Outcome, OutcomeValues};

pub use job_view::JobView;

/// Where a rank would run, with what its devices cost.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Kind of host.
    pub key: &'a PoolKey,
    /// Catalog row of the device.
    pub gpu: &'a GpuType,
    /// Price of one device for an hour that holds for its host.
    pub stated_usd_per_hour: Option<f64>,
    /// The same, or the catalog's reference where no host states one.
    pub usd_per_hour: Option<f64>,
}

impl<'a> Place<'a> {
    /// The place of a pool; `None` when the catalog does not know the GPU type.
    #[must_use]
    pub fn of(key: &'a PoolKey, context: &PlanningContext<'a>) -> Option<Self> {
        let gpu = context.catalog.gpu_type(&key.environment.gpu_type)?;
        let stated = key.gpu_usd_per_hour();
        let reference = || {
            let instance = context.catalog.instance_type(&key.instance_type)?;
            Some(instance.on_demand_usd_per_hour? / f64::from(instance.gpus.max(1)))
        };
        Some(Self {
            key,
            gpu,
            stated_usd_per_hour: stated,
            usd_per_hour: stated.or_else(reference),
        })
    }
}

/// One rank to be forecast.
#[derive(Debug, Clone, Copy)]
pub struct RankPlan<'a> {
    /// Where.
    pub place: Place<'a>,
    /// How.
    pub shape: EngineShape,
    /// How many.
    pub n_replicas: u32,
}

/// What a ladder would do as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Of the whole ladder.
    pub outcomes: OutcomeValues,
    /// Outcomes that grow without bound because a rank is saturated.
    pub unbounded: &'static [Outcome],
    /// Share of the capacity that peak demand takes; absent for backlogged batches.
    pub peak_utilization: Option<f64>,
    /// Price of the ladder, at reference prices where hosts state none.
    pub usd_per_hour: Option<f64>,
    /// The same from stated prices alone.
    pub stated_usd_per_hour: Option<f64>,
    /// Time until the slowest rank serves.
    pub cold_start_seconds: f64,
}

impl Summary {
    /// The same ladder of one rank at another place with the same device: only prices differ.
    #[must_use]
    pub fn priced(mut self, rank: &RankPlan<'_>) -> Self {
        let ranks = std::slice::from_ref(rank);
        self.usd_per_hour = price(ranks, |p| p.usd_per_hour);
        self.stated_usd_per_hour = price(ranks, |p| p.stated_usd_per_hour);
        let replica_usd = replica_usd_per_hour(rank);
        let usd = replica_usd.map(|usd| usd * f64::from(rank.n_replicas));
        let throughput = self.outcomes.get(Outcome::ThroughputTokensPerSec);
        let cost = cost_per_token(usd, throughput);
        self.outcomes.set(Outcome::CostPerToken, cost);
        self
    }
}

/// What a ladder would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// By rank, at its share of the mean load.
    pub ranks: Vec<Prediction>,
    /// By rank, what each member of the surrogate said.
    pub members: Vec<Members>,
    /// All of them together.
    pub summary: Summary,
}

/// Why there is no forecast.
#[derive(Debug, Clone, PartialEq)]
pub enum NoForecast {
    /// Device memory does not suffice.
    DoesNotFit(MemoryBreakdown),
    /// The engine, the surrogate or the catalog cannot do it.
    Unsupported(String),
}

/// Forecasts a ladder; a new one pays its cold start out of a batch's time.
///
/// # Errors
/// [`NoForecast`] of the first rank that cannot be predicted.
pub fn forecast(
    view: &JobView<'_>,
    ranks: &[RankPlan<'_>],
    is_new: bool,
) -> Result<Forecast, NoForecast> {
    let rate = view.workload.arrival_rate_rps;
    let n_total: u32 = ranks.iter().map(|r| r.n_replicas).sum();
    let even = rate / f64::from(n_total.max(1));
    let mut told = Vec::with_capacity(ranks.len());
    for rank in ranks {
        told.push(predict_at(view, rank, even)?);
    }
    let capacity = capacity_rps(&told, ranks);
    if ranks.len() > 1 && capacity > 0.0 {
        // Endpoints are weighted by capacity, so each rank gets its share of the traffic.
        for (told, rank) in told.iter_mut().zip(ranks) {
            let share = told.prediction.capacity_rps / capacity;
            *told = predict_at(view, rank, rate * share)?;
        }
    }
    let predictions: Vec<Prediction> = told.iter().map(|t| t.prediction).collect();
    let weighted: Vec<(f64, &Prediction)> = predictions.iter().zip(ranks).map(weigh).collect();
    let summary = summary(view, ranks, &weighted, is_new);
    Ok(Forecast {
        members: told.iter().map(|t| t.members).collect(),
        ranks: predictions,
        summary,
    })
}

/// Forecasts a new ladder of one rank on any place with its device: as [`forecast`] would, before
/// own deployments of a place have spoken ([`summarize_at`]). Allocates nothing but the reason why
/// there is none.
///
/// # Errors
/// [`NoForecast`] when the rank cannot be predicted.
pub fn forecast_rank(
    view: &JobView<'_>,
    rank: &RankPlan<'_>,
) -> Result<(Told, Summary), NoForecast> {
    let even = view.workload.arrival_rate_rps / f64::from(rank.n_replicas.max(1));
    let told = predict_rank(view, rank, even)?;
    Ok((told, summarize_rank(view, rank, &told.prediction)))
}

/// The summary of such a ladder at a place where own deployments have something to say.
#[must_use]
pub fn summarize_at(
    view: &JobView<'_>,
    rank: &RankPlan<'_>,
    told: &Told,
    own: &[HeardPoint],
) -> Summary {
    let told = told.with_own(own, &view.record.spec.slo);
    summarize_rank(view, rank, &told.prediction)
}

/// The summary of a new ladder of one rank whose prediction is known.
#[must_use]
pub fn summarize_rank(view: &JobView<'_>, rank: &RankPlan<'_>, prediction: &Prediction) -> Summary {
    let ranks = std::slice::from_ref(rank);
    summary(view, ranks, &[weigh((prediction, rank))], true)
}

fn weigh<'p>((prediction, rank): (&'p Prediction, &RankPlan<'_>)) -> (f64, &'p Prediction) {
    let n = f64::from(rank.n_replicas);
    (prediction.capacity_rps * n, prediction)
}

fn summary(
    view: &JobView<'_>,
    ranks: &[RankPlan<'_>],
    weighted: &[(f64, &Prediction)],
    is_new: bool,
) -> Summary {
    let rate = view.workload.arrival_rate_rps;
    let capacity: f64 = weighted.iter().map(|(capacity, _)| capacity).sum();
    let start = ranks
        .iter()
        .map(|r| rank_cold_start(view, r))
        .fold(0.0, f64::max);
    let progress = view.progress_after(if is_new { start } else { 0.0 });
    let outcomes = roll_up(weighted, &view.record.spec.slo, progress);
    let is_saturated = weighted.iter().any(|(_, p)| p.saturated);
    let is_backlogged = view.record.spec.class == JobClass::Batch && rate <= 0.0;
    Summary {
        outcomes,
        unbounded: if is_saturated { unbounded(view) } else { &[] },
        peak_utilization: (!is_backlogged && capacity > 0.0)
            .then(|| rate * view.workload.peak_to_mean / capacity),
        usd_per_hour: price(ranks, |p| p.usd_per_hour),
        stated_usd_per_hour: price(ranks, |p| p.stated_usd_per_hour),
        cold_start_seconds: start,
    }
}

fn price(ranks: &[RankPlan<'_>], of: fn(&Place<'_>) -> Option<f64>) -> Option<f64> {
    ranks.iter().try_fold(0.0, |sum, r| {
        Some(sum + of(&r.place)? * f64::from(r.shape.gpus() * r.n_replicas))
    })
}

fn replica_usd_per_hour(rank: &RankPlan<'_>) -> Option<f64> {
    let gpus = f64::from(rank.shape.gpus());
    rank.place.usd_per_hour.map(|usd| usd * gpus)
}

/// The weights' format of a rank, as served.
fn served(view: &JobView<'_>, rank: &RankPlan<'_>) -> WeightDtype {
    let model = &view.record.spec.model.facts;
    model.served_dtype(rank.shape.weight_dtype)
}

/// A rank at its place, own deployments heard.
fn predict_at(view: &JobView<'_>, rank: &RankPlan<'_>, rate: f64) -> Result<Told, NoForecast> {
    let told = predict_rank(view, rank, rate)?;
    let environment = &rank.place.key.environment;
    let own = view.learned.own_in(environment, served(view, rank));
    Ok(told.with_own(own, &view.record.spec.slo))
}

fn predict_rank(view: &JobView<'_>, rank: &RankPlan<'_>, rate: f64) -> Result<Told, NoForecast> {
    let spec = &view.record.spec;
    let deployment = Deployment {
        model: &spec.model.facts,
        gpu: rank.place.gpu,
        shape: rank.shape,
        n_replicas: rank.n_replicas,
        price_usd_per_hour_per_replica: replica_usd_per_hour(rank),
    };
    let demand = Demand {
        workload: &view.workload,
        class: spec.class,
        slo: &spec.slo,
        rate_rps_per_replica: rate,
        batch_concurrency: None,
    };
    let ground = view.learned.on(rank.place.gpu, served(view, rank));
    predict_on(&deployment, &demand, &ground).map_err(|refusal| match refusal {
        Answer::DoesNotFit(memory) => NoForecast::DoesNotFit(memory),
        Answer::Unsupported(reason) => NoForecast::Unsupported(reason),
        Answer::Prediction(_) => NoForecast::Unsupported("no operating point".to_owned()),
    })
}

fn capacity_rps(told: &[Told], ranks: &[RankPlan<'_>]) -> f64 {
    told.iter()
        .zip(ranks)
        .map(|(t, r)| t.prediction.capacity_rps * f64::from(r.n_replicas))
        .sum()
}

fn rank_cold_start(view: &JobView<'_>, rank: &RankPlan<'_>) -> f64 {
    cold_start_seconds(&view.record.spec.model.facts, rank.place.gpu, &rank.shape)
}

/// Latencies of a saturated online ladder, and the margin that follows from them.
const fn unbounded(view: &JobView<'_>) -> &'static [Outcome] {
    match view.record.spec.class {
        JobClass::Online => &[Outcome::P99TtftMs, Outcome::P99TpotMs, Outcome::SloMargin],
        JobClass::Batch => &[Outcome::P99TtftMs, Outcome::P99TpotMs],
    }
}

/// Forecast of a ladder that runs: each rank on the kind of host where its first replica stands.
///
/// # Errors
/// [`NoForecast`] when a rank can no longer be predicted, for instance because the catalog has
/// changed.
pub fn forecast_running(
    view: &JobView<'_>,
    ladder: &Ladder,
    snapshot: &Snapshot,
    context: &PlanningContext<'_>,
) -> Result<Forecast, NoForecast> {
    let host_of = |rank: usize| -> Option<&HostId> {
        let mut serving = super::standing::serving_replicas(snapshot, view.record);
        serving
            .find(|r| r.id.rank as usize == rank)
            .map(|r| &r.host)
    };
    let mut keys = Vec::new();
    for (index, rank) in ladder
        .ranks
        .iter()
        .enumerate()
        .filter(|(_, r)| r.n_replicas > 0)
    {
        let host = host_of(index).and_then(|h| snapshot.state.hosts.get(h));
        let host = host.ok_or_else(|| unknown(&rank.environment.to_string()))?;
        keys.push((PoolKey::of(host, &snapshot.state), rank));
    }
    let mut ranks = Vec::with_capacity(keys.len());
    for (key, rank) in &keys {
        let place = Place::of(key, context).ok_or_else(|| unknown(&key.environment.gpu_type))?;
        let shape = rank.configuration.shape();
        ranks.push(RankPlan {
            place,
            shape,
            n_replicas: rank.n_replicas,
        });
    }
    forecast(view, &ranks, false)
}

fn unknown(what: &str) -> NoForecast {
    NoForecast::Unsupported(format!("{what} is not known to catalog and snapshot"))
}
