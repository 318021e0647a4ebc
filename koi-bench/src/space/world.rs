//! One job and everywhere it could run: hosts of twelve device types in as many environments as
//! asked, and what was seen so far.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::anyhow;
use koi_core::catalog::Catalog;
use koi_core::environment::Environment;
use koi_core::experience::Experience;
use koi_core::host::Liveness;
use koi_core::ids::{Generation, JobId, TickId};
use koi_core::model::{KnownModel, WeightDtype};
use koi_core::performance::import::{Given, import};
use koi_core::rng::Rng;
use koi_core::snapshot::Snapshot;
use koi_core::store::ServerState;
use koi_core::surrogate::neighbours::Spot;
use koi_core::surrogate::own::Stood;
use koi_core::surrogate::points::{Matrices, MeasuredPoints, matrices};
use koi_core::surrogate::situation::FEATURES;
use koi_core::validation::EvidenceRow;
use koi_core::validation::evidence::{Exercise, MechanismVerdict};
use koi_core::variables::{Outcome, OutcomeValues};

use crate::plan::world::{host_of, snapshot as cluster};

/// Device types and USD per hour of a host of eight.
const DEVICES: [(&str, f64); 12] = [
    ("H100", 55.04),
    ("H200", 63.30),
    ("A100", 32.77),
    ("A100-40GB", 21.96),
    ("L40S", 20.99),
    ("B200", 113.93),
    ("GH200", 47.60),
    ("H20", 30.40),
    ("MI300X", 47.92),
    ("MI325X", 54.00),
    ("RTX-PRO-6000", 20.10),
    ("L40", 14.00),
];
/// Hosts of an environment, and devices of a host.
const HOSTS: usize = 8;
const GPUS: u32 = 8;
/// What the job serves.
const MODEL: &str = "llama-3.1-70b";

/// How much there is beside the one job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Environments, dealt out over the device types in turn.
    pub(super) environments: usize,
    /// Evidence rows.
    pub(super) history: usize,
}

/// The snapshot, and its job.
pub(super) fn world(size: Size, seed: u64) -> anyhow::Result<(Snapshot, JobId)> {
    let mut snapshot = cluster(1, 0, seed)?;
    for index in 0..size.environments {
        let (gpu, usd) = DEVICES[index % DEVICES.len()];
        let turn = index / DEVICES.len();
        let market = ["on_demand", "spot"][turn % 2];
        // Prices differ between places as they do on the market.
        let discount = if market == "spot" { 0.45 } else { 1.0 };
        let usd = usd * discount * (1.0 + 0.03 * (turn / 2) as f64);
        let environment = format!("{market}/cloud/region-{turn}/zone/{gpu}");
        for n in 0..HOSTS {
            let name = format!("host-{index}-{n}");
            let host = host_of(&name, (&environment, GPUS, usd))?;
            let id = host.facts.host.clone();
            snapshot.liveness.insert(id.clone(), Liveness::Alive);
            snapshot.state.hosts.insert(id, host);
        }
    }
    let job = snapshot.state.jobs.keys().next().copied();
    let job = job.ok_or_else(|| anyhow!("the cluster has no job"))?;
    give_model(&mut snapshot.state, job)?;
    let model = matrices(&snapshot.state.jobs[&job].spec.model.facts);
    let rows = evidence(size.history, seed, model)?;
    snapshot.experience = Experience::from_rows(&rows, &snapshot.state);
    Ok((snapshot, job))
}

/// An online chat that one large host can serve and a small one cannot.
fn give_model(state: &mut ServerState, job: JobId) -> anyhow::Result<()> {
    let record = state.jobs.get_mut(&job);
    let spec = &mut record.ok_or_else(|| anyhow!("no job {job}"))?.spec;
    let model = KnownModel::find(MODEL).ok_or_else(|| anyhow!("no model {MODEL}"))?;
    spec.model.facts = model.facts().map_err(|e| anyhow!("{e:?}"))?;
    spec.model.config_json = model.config_json().to_owned();
    spec.workload.arrival_rate_rps = 4.0;
    spec.workload.shared_prefix_tokens = 256.0;
    spec.workload.prefix_concentration = 0.6;
    Ok(())
}

/// Rows over all devices and two mechanisms, with residuals of a few tenths; all of them about the
/// job's own model, at loads and splits of every kind.
fn evidence(n: usize, seed: u64, model: Matrices) -> anyhow::Result<Vec<EvidenceRow>> {
    let mut rng = Rng::stream(seed, "bench.space.evidence");
    (0..n)
        .map(|index| {
            let (gpu, _) = DEVICES[rng.below(DEVICES.len())];
            let environment = format!("on_demand/cloud/region-0/zone/{gpu}");
            let environment: Environment = environment.parse().map_err(|e| anyhow!("{e}"))?;
            let mut outcomes = OutcomeValues::absent();
            let mut residuals = OutcomeValues::absent();
            for outcome in Outcome::ALL {
                residuals.set(outcome, Some(0.4 * (rng.unit() - 0.5)));
                let scale = match outcome {
                    Outcome::CostPerToken => 1e-5,
                    Outcome::P99TtftMs => 1500.0,
                    Outcome::P99TpotMs => 60.0,
                    Outcome::ThroughputTokensPerSec => 900.0,
                    Outcome::SloMargin => 0.5,
                };
                outcomes.set(outcome, Some(scale * (0.5 + rng.unit())));
            }
            let mechanism = ["M_pipeline_bubble", "M_kv_pressure"][index % 2];
            Ok(EvidenceRow {
                tick: TickId(index as i64),
                job: JobId(uuid::Uuid::from_u128(1)),
                rank: 0,
                generation: Generation(1),
                environment,
                points: 12,
                observed: outcomes,
                promise_residuals: residuals,
                inside_band: BTreeMap::new(),
                variables: BTreeMap::new(),
                mechanisms: vec![committed(mechanism)],
                deployment: None,
                contrasts: Vec::new(),
                stood: Some(stood(&mut rng, model)),
                basis: None,
            })
        })
        .collect()
}

/// Somewhere among the situations of an open load, with misses of a few tenths.
fn stood(rng: &mut Rng, matrices: Matrices) -> Stood {
    let mut situation = [0.0; FEATURES.len()];
    let live: f64 = 1.0 + 60.0 * rng.unit();
    let values = [
        ("log_live", live.ln()),
        ("log_concurrency", live.ln()),
        ("log_prompt", (400.0 + 400.0 * rng.unit()).ln()),
        ("log_output", (150.0 + 100.0 * rng.unit()).ln()),
        ("log_tp", f64::from(1_u32 << rng.below(4)).ln()),
        ("is_open", 1.0),
        ("is_vllm_v1", 1.0),
    ];
    for (name, value) in values {
        if let Some(i) = FEATURES.iter().position(|f| *f == name) {
            situation[i] = value;
        }
    }
    Stood {
        matrices,
        weights: WeightDtype::Bf16,
        spot: Spot::of(&situation),
        log_errors: [
            Some(0.4 * (rng.unit() - 0.5)),
            Some(0.4 * (rng.unit() - 0.5)),
            None,
        ],
    }
}

/// Measured rows of the job's model on every device: splits, lengths and loads, more than a planner
/// keeps.
pub(super) fn points() -> anyhow::Result<MeasuredPoints> {
    let mut text = "source,row_id,model,gpu_type,num_gpus,tp,engine,date,isl,osl,load_kind,\
         concurrency_or_rate,tpot_ms,tpot_stat,ttft_ms,ttft_stat\n"
        .to_owned();
    for (n, (gpu, _)) in DEVICES.iter().enumerate() {
        for tp in [1, 2, 4, 8] {
            for isl in [250, 1_000, 4_000] {
                for load in (0..9).map(|i| 1 << i) {
                    let (tpot, ttft) = (20 + load / 8, 100 + 20 * load);
                    text.push_str(&format!(
                        "bench,{n}-{tp}-{isl}-{load},{MODEL},{gpu},{tp},{tp},vllm,2026-01,{isl},200,\
                         concurrency,{load},{tpot},mean,{ttft},mean\n"
                    ));
                }
            }
        }
    }
    let rows = import(&text, None, &Given::default()).map_err(|e| anyhow!("{e:?}"))?;
    let planned = MeasuredPoints::planned(&rows.rows, Catalog::embedded());
    anyhow::ensure!(planned.points.len() > DEVICES.len(), "no rows were taken");
    Ok(planned.points)
}

fn committed(mechanism: &str) -> MechanismVerdict {
    MechanismVerdict {
        id: mechanism.to_owned(),
        committed: true,
        v_verdicts: BTreeMap::new(),
        y_verdicts: BTreeMap::new(),
        quadrant: None,
        icp: BTreeMap::new(),
        exercise: Exercise::NotComputed,
        uncalibrated: false,
        contradicted: BTreeSet::new(),
    }
}
