//! What one job asks of the joint choice: its admissible options with their gains over doing
//! nothing, or the reason why it is left alone this tick. Spec §7 (gains), §11 (C7's rule).

use super::commit::{Advantage, commit};
use super::enumerate::{Enumerated, LadderOption, enumerate};
use super::forecast::{Forecast, JobView, NoForecast, forecast_running};
use super::learning_money::{bare_gain, restrain};
use super::pools::{Pools, row_uses};
use super::probing::Probing;
use super::scoring::{Change, ResidualScope, Running, Scorer};
use super::select::Choice;
use super::standing::{MustMove, Standing, standing};
use crate::ladder::{Ladder, Rank};
use crate::plan::Considered;
use crate::score::SigmaTerms;
use crate::score::sigma::{Baseline, justifies_swap, ladder_gain, waiting_penalty};
use crate::snapshot::Snapshot;
use crate::store::{JobRecord, JobState};

/// Failed roll-outs in a row after which a running job is not changed voluntarily any more.
const FAILURES_BEFORE_REST: u32 = 3;
/// Longest wait between two launches of a job that failed to launch, in ticks.
const RETRY_WAIT_TICKS_MAX: u32 = 8;
/// Breach probabilities nearer than this count as equal when nothing meets tau.
const RISK_TIE: f64 = 1e-3;

/// The ladder that runs, as predicted now.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Current {
    /// The replicas that stay.
    pub(super) ladder: Ladder,
    /// What they do.
    pub(super) forecast: Forecast,
    /// σ without switch cost.
    pub(super) terms: SigmaTerms,
}

/// Why an option is or is not part of the joint choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// It competes.
    Admitted,
    /// It is what runs.
    Same,
    /// It breaks the limits too often, and others do not.
    TooRisky,
    /// Its pool has not enough free GPUs even for it alone.
    NoCapacity,
    /// Its gain over what runs is below the smallest that justifies a swap.
    TooLittleGain,
    /// It would be taken for what it teaches, and that is not paid for.
    UnpaidLearning,
}

/// One option in the joint choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Offer {
    /// The option.
    pub(super) option: LadderOption,
    /// Gain over doing nothing.
    pub(super) gain: f64,
    /// Whether it competes.
    pub(super) admission: Admission,
}

/// An offer as the joint choice may take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// Position among the job's offers.
    pub(super) offer: usize,
    /// Outside the swap budget, within the probe allowance.
    pub(super) is_probe: bool,
}

/// What one job asks for.
#[derive(Debug, Clone)]
pub(super) struct Bid<'a> {
    /// Job.
    pub(super) record: &'a JobRecord,
    /// Where it stands.
    pub(super) standing: Standing,
    /// What runs, where something runs that can be predicted.
    pub(super) current: Option<Current>,
    /// Options, best σ first.
    pub(super) offers: Vec<Offer>,
    /// Refused before scoring.
    pub(super) refused: Vec<Considered>,
    /// Why the job is not changed whatever the options are.
    pub(super) held: Option<String>,
    /// No option within reach meets tau: those of least risk are admitted.
    pub(super) at_risk: bool,
}

impl<'a> Bid<'a> {
    /// The bid of one job. `frozen` says why nothing that runs may be touched this tick.
    #[must_use]
    pub(super) fn of(
        record: &'a JobRecord,
        snapshot: &Snapshot,
        pools: &Pools,
        scorer: &Scorer<'_>,
        frozen: Option<&str>,
    ) -> Self {
        let mut bid = Self {
            record,
            standing: standing(snapshot, record),
            current: None,
            offers: Vec::new(),
            refused: Vec::new(),
            held: None,
            at_risk: false,
        };
        let view = JobView::of(record, snapshot, scorer.context);
        if let Err(reason) = bid.predict_current(&view, snapshot, scorer) {
            bid.held = Some(reason);
            return bid;
        }
        bid.held = bid.reason_to_hold(frozen);
        if bid.held.is_none() {
            bid.make_offers(&view, pools, scorer);
            restrain(&mut bid, snapshot, scorer);
        }
        bid
    }

    /// True when the choice of an option is a swap that counts against the budget.
    #[must_use]
    pub(super) fn is_voluntary(&self) -> bool {
        matches!(
            self.standing,
            Standing::Active {
                must_move: None,
                ..
            }
        )
    }

    /// The choices of this job, doing nothing first, with the offers that they stand for.
    #[must_use]
    pub(super) fn choices(&self, probing: Option<&Probing>) -> (Vec<Choice>, Vec<Taken>) {
        let mut choices = vec![Choice {
            gain: 0.0,
            uses: Vec::new(),
            n_swaps: 0,
        }];
        let mut offers = Vec::new();
        for (index, offer) in self.offers.iter().enumerate() {
            if offer.admission == Admission::Admitted {
                choices.push(Choice {
                    gain: offer.gain,
                    uses: uses(&offer.option),
                    n_swaps: u32::from(self.is_voluntary()),
                });
                offers.push(Taken {
                    offer: index,
                    is_probe: false,
                });
            }
        }
        if let Some((probing, offer)) = probing.and_then(|p| Some((p, self.offers.get(p.offer)?))) {
            choices.push(Choice {
                gain: probing.gain,
                uses: uses(&offer.option),
                n_swaps: 0,
            });
            offers.push(Taken {
                offer: probing.offer,
                is_probe: true,
            });
        }
        (choices, offers)
    }

    fn predict_current(
        &mut self,
        view: &JobView<'_>,
        snapshot: &Snapshot,
        scorer: &Scorer<'_>,
    ) -> Result<(), String> {
        let Standing::Active { staying, .. } = &self.standing else {
            return Ok(());
        };
        let Some(first) = staying.ranks.iter().find(|r| r.n_replicas > 0) else {
            return Ok(());
        };
        let forecast = forecast_running(view, staying, snapshot, scorer.context).map_err(|no| {
            format!(
                "kept: its ladder cannot be predicted any more ({})",
                words(&no)
            )
        })?;
        let limits = scorer.limits(view, ResidualScope::of(first));
        let terms = scorer
            .score(
                view,
                &forecast,
                &limits,
                (Change::None, scorer.eig_of_keeping()),
            )
            .map_err(|no| format!("kept: its ladder cannot be scored ({no})"))?;
        self.current = Some(Current {
            ladder: staying.clone(),
            forecast,
            terms,
        });
        Ok(())
    }

    fn reason_to_hold(&self, frozen: Option<&str>) -> Option<String> {
        match &self.standing {
            Standing::InRollout => {
                Some("left alone: another generation is on its way in".to_owned())
            }
            Standing::Active { must_move, .. } => {
                if let Some(reason) = frozen {
                    return Some(format!("kept: {reason}"));
                }
                let rests =
                    must_move.is_none() && self.record.recent_failures >= FAILURES_BEFORE_REST;
                rests.then(|| {
                    let n = self.record.recent_failures;
                    format!("kept: its last {n} changes failed, so it is not changed voluntarily")
                })
            }
            Standing::Unserved => self.retry_wait(),
        }
    }

    /// Launches that failed are tried again after 1, 3, 7 and then every 8 ticks.
    fn retry_wait(&self) -> Option<String> {
        let JobState::LaunchFailed { reason } = &self.record.state else {
            return None;
        };
        let failures = self.record.recent_failures.saturating_sub(1).min(16);
        let wait = ((1_u32 << failures) - 1).min(RETRY_WAIT_TICKS_MAX);
        (self.record.ticks_waited < wait).then(|| {
            let left = wait - self.record.ticks_waited;
            let reason: String = reason.chars().take(300).collect();
            format!("launch failed, next try in {left} ticks: {reason}")
        })
    }

    fn make_offers(&mut self, view: &JobView<'_>, pools: &Pools, scorer: &Scorer<'_>) {
        let params = scorer.context.params;
        let running = self.running();
        let change = running.as_ref().map_or(Change::Place, Change::Replace);
        let Enumerated {
            mut options,
            refused,
        } = enumerate(view, pools, scorer, change);
        let current = self.current.as_ref();
        let current = current.map(|c| (&c.terms.exploit.gaps, &c.forecast));
        let advantage = Advantage::of(current, &options);
        commit(&mut options, view, scorer, (&advantage, change));
        options.sort_by(|a, b| b.terms.sigma.total_cmp(&a.terms.sigma));
        self.refused = refused;
        let baseline = match &self.current {
            Some(current) => Baseline::Active {
                sigma: current.terms.sigma,
            },
            None => {
                let penalty = waiting_penalty(self.record.spec.priority, params);
                Baseline::NotServed { penalty }
            }
        };
        let free = pools.capacity_rows();
        let tau = self.record.spec.preference.tau;
        let fits_alone = |o: &LadderOption| uses(o).iter().all(|(row, n)| free[*row] >= *n);
        let least_risk = least_risk(&options, fits_alone);
        self.at_risk = !options.iter().any(|o| o.meets && fits_alone(o));
        for option in options {
            let gain = ladder_gain(option.terms.sigma, baseline);
            let risk = option.terms.slo_risk.any;
            let within_risk = if self.at_risk {
                risk <= least_risk + RISK_TIE
            } else {
                risk <= tau
            };
            let admission = if self
                .current
                .as_ref()
                .is_some_and(|c| same(&c.ladder, &option.ladder))
            {
                Admission::Same
            } else if !fits_alone(&option) {
                Admission::NoCapacity
            } else if !within_risk {
                Admission::TooRisky
            } else if self.current.is_some() && !justifies_swap(gain, params) {
                Admission::TooLittleGain
            } else {
                Admission::Admitted
            };
            self.offers.push(Offer {
                option,
                gain,
                admission,
            });
        }
    }

    /// True when an offer would not be taken but for its information gain.
    #[must_use]
    pub(super) fn is_decided_by_learning(&self, offer: &Offer, scorer: &Scorer<'_>) -> bool {
        let own = bare_gain(offer);
        if self.current.is_some() && !justifies_swap(own, scorer.context.params) {
            return true;
        }
        let rivals = self
            .offers
            .iter()
            .filter(|o| o.admission == Admission::Admitted);
        let same_place = rivals.filter(|o| o.option.pool == offer.option.pool);
        same_place.map(bare_gain).any(|rival| rival > own)
    }

    /// What a change would replace.
    #[must_use]
    pub(super) fn running(&self) -> Option<Running> {
        self.current.as_ref().map(|current| Running {
            usd_per_hour: current.forecast.summary.usd_per_hour,
            n_replicas: current.ladder.n_replicas(),
        })
    }

    /// Why the running ladder must change, if it must.
    #[must_use]
    pub(super) fn must_move(&self) -> Option<MustMove> {
        match &self.standing {
            Standing::Active { must_move, .. } => *must_move,
            Standing::Unserved | Standing::InRollout => None,
        }
    }
}

/// Capacity rows that an option takes.
pub(super) fn uses(option: &LadderOption) -> Vec<(usize, u64)> {
    row_uses(option.pool, option.chain_size(), option.ladder.n_replicas())
}

fn least_risk(options: &[LadderOption], fits: impl Fn(&LadderOption) -> bool) -> f64 {
    let risks = options
        .iter()
        .filter(|o| fits(o))
        .map(|o| o.terms.slo_risk.any);
    risks.fold(f64::INFINITY, f64::min)
}

/// The same chains in the same numbers; the mechanism committed with them does not matter.
fn same(a: &Ladder, b: &Ladder) -> bool {
    let is_live = |r: &&Rank| r.n_replicas > 0;
    let parts = |r: &Rank| {
        (
            r.environment.clone(),
            r.instance_type.clone(),
            r.configuration.clone(),
            r.n_replicas,
        )
    };
    a.ranks
        .iter()
        .filter(is_live)
        .map(parts)
        .eq(b.ranks.iter().filter(is_live).map(parts))
}

fn words(no: &NoForecast) -> String {
    match no {
        NoForecast::DoesNotFit(_) => "it does not fit the device memory".to_owned(),
        NoForecast::Unsupported(reason) => reason.clone(),
    }
}
