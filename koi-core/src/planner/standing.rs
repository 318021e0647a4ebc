//! How a job stands before the plan: what really serves, what is lost, what must move.
//!
//! A replica counts as lost when its agent gave it up, its host is gone, or its host has been
//! silent longer than the job allows; it must leave when its host drains. Both are missing from
//! the ladder that the baseline is predicted for. Spec §7, §14; reliability.md G8, I9.

use crate::host::Liveness;
use crate::job::OnDisconnect;
use crate::ladder::{CommittedLadder, Ladder};
use crate::snapshot::Snapshot;
use crate::store::{JobRecord, JobState, ReplicaPhase, ReplicaRecord, ReplicaRole};

/// Share of hosts above which their silence is taken for a fault of the network, not of theirs.
const BRAKE_SHARE: f64 = 0.30;
/// Fewest silent hosts that make a mass disconnect.
const BRAKE_HOSTS_MIN: usize = 2;

/// Why a running job's ladder must change whether or not it pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MustMove {
    /// Replicas are lost.
    Lost,
    /// Replicas stand on a draining host.
    Draining,
}

/// How a job stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// Nothing serves: waiting, paused, launch failed.
    Unserved,
    /// A generation is on its way in: the plan leaves the job alone.
    InRollout,
    /// A ladder is committed.
    Active {
        /// The committed ladder with only the replicas that stay.
        staying: Ladder,
        /// Why it must change, if it must.
        must_move: Option<MustMove>,
    },
}

impl Standing {
    /// True when no replica is left that serves and stays.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        match self {
            Self::Unserved => true,
            Self::InRollout => false,
            Self::Active { staying, .. } => staying.n_replicas() == 0,
        }
    }

    /// True when a swap of this job is outside the swap budget: recovery and drain are not
    /// voluntary.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        matches!(
            self,
            Self::Active {
                must_move: Some(_),
                ..
            }
        )
    }
}

/// True when so many hosts fell silent together that nothing may be replaced.
#[must_use]
pub fn is_braked(snapshot: &Snapshot) -> bool {
    let known = snapshot.state.hosts.keys();
    let silent = known
        .filter(|h| snapshot.silence_of(h) >= Liveness::UNREACHABLE_SECONDS)
        .count();
    silent >= BRAKE_HOSTS_MIN && silent as f64 > BRAKE_SHARE * snapshot.state.hosts.len() as f64
}

/// How a job stands.
#[must_use]
pub fn standing(snapshot: &Snapshot, job: &JobRecord) -> Standing {
    if job.rollout.is_some() {
        return Standing::InRollout;
    }
    match (&job.state, &job.active) {
        (JobState::Running, Some(active)) => active_standing(snapshot, job, active),
        // A running job without ladder or roll-out has nothing that serves.
        (JobState::Running, None) => Standing::Active {
            staying: Ladder { ranks: Vec::new() },
            must_move: Some(MustMove::Lost),
        },
        (
            JobState::Waiting
            | JobState::Paused
            | JobState::LaunchFailed { .. }
            | JobState::Finished { .. },
            _,
        ) => Standing::Unserved,
    }
}

/// Replicas of the committed ladder that are authorised to serve.
pub fn serving_replicas<'a>(
    snapshot: &'a Snapshot,
    job: &'a JobRecord,
) -> impl Iterator<Item = &'a ReplicaRecord> {
    let generation = job.active.as_ref().map(|a| a.generation);
    snapshot
        .state
        .replicas_of(job.id)
        .filter(move |r| Some(r.id.generation) == generation && r.role == ReplicaRole::Serve)
}

fn active_standing(snapshot: &Snapshot, job: &JobRecord, active: &CommittedLadder) -> Standing {
    let mut staying = active.ladder.clone();
    let mut n_lost = staying.n_replicas();
    let mut n_draining = 0;
    for rank in &mut staying.ranks {
        rank.n_replicas = 0;
    }
    for replica in serving_replicas(snapshot, job) {
        if is_lost(snapshot, job, replica) {
            continue;
        }
        n_lost = n_lost.saturating_sub(1);
        let host = snapshot.state.hosts.get(&replica.host);
        if host.is_some_and(|h| h.draining_since.is_some()) {
            n_draining += 1;
        } else if let Some(rank) = staying.ranks.get_mut(replica.id.rank as usize) {
            rank.n_replicas += 1;
        }
    }
    let must_move = match (n_lost, n_draining) {
        (0, 0) => None,
        (0, _) => Some(MustMove::Draining),
        _ => Some(MustMove::Lost),
    };
    Standing::Active { staying, must_move }
}

fn is_lost(snapshot: &Snapshot, job: &JobRecord, replica: &ReplicaRecord) -> bool {
    if matches!(replica.phase, ReplicaPhase::Failed { .. }) {
        return true;
    }
    if !snapshot.state.hosts.contains_key(&replica.host) {
        return true;
    }
    let may_replace = match job.spec.on_disconnect {
        OnDisconnect::KeepServing => false,
        OnDisconnect::ReplaceAfter { seconds } => {
            let longest = f64::from(seconds).max(Liveness::UNREACHABLE_SECONDS);
            snapshot.silence_of(&replica.host) >= longest
        }
    };
    may_replace && !is_braked(snapshot)
}
