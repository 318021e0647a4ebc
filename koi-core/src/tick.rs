//! The tick S0–S7 as one transition table: every failure before S7 ends in keep-all, S7 always
//! sleeps, and there is at most one repair. White paper V1, Tick Algorithm; spec §13.

mod frozen;
pub mod judge;
pub mod observatory;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::price::PriceKey;
use crate::host::HostPrice;
use crate::ids::{Epoch, PlanSeq, TickId};
use crate::store::ServerState;
use crate::time::UtcMicros;

/// Where a tick stands. `repair` and `keep_all` are state, not flags beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// S0: freeze the snapshot.
    Freeze,
    /// S1: read telemetry.
    Observe,
    /// S2: residuals, verdicts, evidence rows.
    Validate,
    /// S3: beliefs and slow state, in one transaction.
    SlowUpdate,
    /// S4: propose a plan; `repair` on the one second try.
    Plan {
        /// True when violations went back to the planner.
        repair: bool,
    },
    /// S5: check the plan.
    CheckPlan {
        /// True when the plan is the repaired one.
        repair: bool,
    },
    /// S6: commit the plan; the only phase that changes the cluster.
    Deploy,
    /// S7: close and sleep to the next boundary.
    Exit {
        /// True when the cluster was left as it is because something failed.
        keep_all: bool,
    },
}

/// What a phase reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PhaseEvent {
    /// The phase finished.
    Done,
    /// S5 found violations.
    Violations,
    /// The phase failed, panicked or ran out of time.
    Failed,
}

/// The whole tick as a table.
///
/// A failure in S6 has acted only if its one transaction committed, so "keep-all" there means:
/// nothing of the plan is visible.
#[must_use]
pub const fn next(phase: Phase, event: PhaseEvent) -> Option<Phase> {
    use Phase::{CheckPlan, Deploy, Exit, Freeze, Observe, Plan, SlowUpdate, Validate};
    use PhaseEvent::{Done, Failed, Violations};
    Some(match (phase, event) {
        (Exit { .. }, _) => return None,
        (_, Failed) => Exit { keep_all: true },
        (Freeze, _) => Observe,
        (Observe, _) => Validate,
        (Validate, _) => SlowUpdate,
        (SlowUpdate, _) => Plan { repair: false },
        (Plan { repair }, _) => CheckPlan { repair },
        (CheckPlan { .. }, Done) => Deploy,
        (CheckPlan { repair: false }, Violations) => Plan { repair: true },
        (CheckPlan { repair: true }, Violations) => Exit { keep_all: true },
        (Deploy, _) => Exit { keep_all: false },
    })
}

impl Phase {
    /// `S0` … `S7`.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Freeze => "S0",
            Self::Observe => "S1",
            Self::Validate => "S2",
            Self::SlowUpdate => "S3",
            Self::Plan { .. } => "S4",
            Self::CheckPlan { .. } => "S5",
            Self::Deploy => "S6",
            Self::Exit { .. } => "S7",
        }
    }
}

/// Why a tick was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickCause {
    /// The schedule's boundary.
    Schedule,
    /// `koi tick run`.
    Operator,
    /// The server started, or its database came back.
    Recovery,
}

/// A tick as stored; it is the trace that `koi inspect tick` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TickRecord {
    /// Number.
    pub id: TickId,
    /// Where it stands.
    pub phase: Phase,
    /// Why it was started.
    pub cause: TickCause,
    /// Server that opened it.
    pub epoch: Epoch,
    /// When it was opened.
    pub opened_at: UtcMicros,
    /// When it was closed; absent while it runs.
    pub closed_at: Option<UtcMicros>,
    /// Plan that it committed.
    pub plan_seq: Option<PlanSeq>,
    /// Why it ended in keep-all.
    pub failure: Option<String>,
    /// Evidence rows written by S2.
    pub n_evidence_rows: u32,
    /// Milliseconds spent per phase code.
    pub phase_ms: BTreeMap<String, f64>,
    /// Violations of the first try, when there was a repair.
    pub first_violations: Vec<String>,
    /// Prices that held when the snapshot was taken.
    #[serde(default)]
    pub prices: Vec<TickPrice>,
}

/// Most prices kept with a tick.
pub const MAX_TICK_PRICES: usize = 500;

/// A price that held in a tick, and for how many hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TickPrice {
    /// What it is for.
    pub key: PriceKey,
    /// The price, with source and date.
    pub price: HostPrice,
    /// Hosts for which it held.
    pub n_hosts: u32,
}

/// The prices that hold for a state's hosts, equal ones together, by machine; at most
/// [`MAX_TICK_PRICES`].
#[must_use]
pub fn tick_prices(state: &ServerState) -> Vec<TickPrice> {
    let mut prices: BTreeMap<(PriceKey, String), TickPrice> = BTreeMap::new();
    for host in state.hosts.values() {
        let Some(price) = state.price_of(host) else {
            continue;
        };
        let key = PriceKey::of_host(&host.facts);
        let said = format!("{} {} {}", price.usd_per_hour, price.source, price.date);
        let entry = prices
            .entry((key.clone(), said))
            .or_insert_with(|| TickPrice {
                key,
                price: price.clone(),
                n_hosts: 0,
            });
        entry.n_hosts += 1;
    }
    prices.into_values().take(MAX_TICK_PRICES).collect()
}
