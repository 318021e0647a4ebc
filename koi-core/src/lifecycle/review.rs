//! Posterior review: which mechanisms leave the seed bank, which enter it. By rule alone, from what
//! was decided; nobody grades a mechanism that they wrote. White paper V1, Appendix D; spec §5.

use serde::{Deserialize, Serialize};

use crate::causal::mechanism::MechanismDraft;
use crate::causal::{Belief, Mechanism, PriorBin};
use crate::ids::TickId;
use crate::params::Params;

/// What was decided about a mechanism over its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MechanismTrack {
    /// Rows with a verdict.
    pub n_decided: u32,
    /// Deployments that they come from: pairs of job and generation.
    pub n_deployments: u32,
    /// Environments that they come from.
    pub n_environments: u32,
    /// Tick of the first.
    pub first_tick: Option<TickId>,
    /// Tick of the last.
    pub last_tick: Option<TickId>,
}

impl MechanismTrack {
    /// Ticks from the first decided row to the last, both counted.
    #[must_use]
    pub fn ticks_spanned(&self) -> u32 {
        let ends = self.first_tick.zip(self.last_tick);
        ends.map_or(0, |(first, last)| {
            u32::try_from(last.0.saturating_sub(first.0).saturating_add(1)).unwrap_or(u32::MAX)
        })
    }

    /// What is missing before the mechanism can be judged at all, in words.
    #[must_use]
    pub fn shortfall(&self, params: &Params) -> Vec<String> {
        let counts = [
            (self.n_decided, params.promote_rows_min, "decided rows"),
            (
                self.n_deployments,
                params.promote_deployments_min,
                "deployments",
            ),
            (self.ticks_spanned(), params.promote_ticks_min, "ticks"),
        ];
        let short = counts.into_iter().filter(|(n, least, _)| n < least);
        short
            .map(|(n, least, what)| format!("{n} of {least} {what}"))
            .collect()
    }
}

/// What the review says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Review {
    /// It enters the next seed file.
    Promote,
    /// It is kept and not applicable any more.
    Archive,
    /// It stays as it is, for these reasons.
    Stay(Vec<String>),
}

impl Review {
    /// The verdict's name in tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Archive => "archive",
            Self::Stay(_) => "stay",
        }
    }
}

/// Reviews one mechanism.
///
/// # Formula
/// with ≥ 30 decided rows from ≥ 10 deployments over ≥ 20 ticks: c ≤ 0.2 archives; c ≥ 0.8 and ≥ 3
/// environments promote
///
/// # Source
/// Spec §5
#[must_use]
pub fn review(belief: Belief, track: &MechanismTrack, params: &Params) -> Review {
    let mut reasons = track.shortfall(params);
    if reasons.is_empty() && belief.mean() <= params.archive_confidence {
        return Review::Archive;
    }
    let (n, least) = (track.n_environments, params.promote_environments_min);
    if n < least {
        reasons.push(format!("{n} of {least} environments"));
    }
    let (c, wanted) = (belief.mean(), params.promote_confidence);
    if c < wanted {
        reasons.push(format!("confidence {c:.3} below {wanted:.2}"));
    }
    if reasons.is_empty() {
        Review::Promote
    } else {
        Review::Stay(reasons)
    }
}

/// The bin from which a promoted mechanism starts elsewhere: the strongest that its posterior
/// reaches.
#[must_use]
pub fn prior_of(belief: Belief) -> PriorBin {
    let bins = [
        PriorBin::Certain,
        PriorBin::Strong,
        PriorBin::Likely,
        PriorBin::Plausible,
    ];
    let reached = |bin: &PriorBin| belief.mean() >= bin.belief().mean();
    bins.into_iter().find(reached).unwrap_or(PriorBin::Even)
}

/// A mechanism as a seed file writes it.
#[must_use]
pub fn seed_draft(mechanism: &Mechanism, belief: Belief) -> MechanismDraft {
    MechanismDraft {
        id: Some(mechanism.id.clone()),
        edges: mechanism.edges.iter().cloned().collect(),
        scope: mechanism.scope.clone(),
        narrative: mechanism.narrative.clone(),
        prior: Some(prior_of(belief)),
    }
}

/// The seed file of these mechanisms: read by the catalog as `mechanisms/*.toml`.
///
/// # Errors
/// A mechanism that TOML cannot write.
pub fn seed_file(drafts: &[MechanismDraft]) -> Result<String, toml::ser::Error> {
    #[derive(Serialize)]
    struct SeedFile<'a> {
        mechanism: &'a [MechanismDraft],
    }
    let rows = toml::to_string_pretty(&SeedFile { mechanism: drafts })?;
    let heading = "# Mechanisms promoted by posterior review. Put this file into the catalog's mechanisms/\n\
                   # folder: they are seeds of the next start.\n\n";
    Ok(format!("{heading}{rows}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causal::testing::{kind_of, model};
    use crate::lifecycle::{Origin, admit};
    use proptest::prelude::*;

    fn whole() -> MechanismTrack {
        MechanismTrack {
            n_decided: 30,
            n_deployments: 10,
            n_environments: 3,
            first_tick: Some(TickId(1)),
            last_tick: Some(TickId(20)),
        }
    }

    fn of(belief: Belief, track: MechanismTrack) -> Review {
        review(belief, &track, &Params::default())
    }

    #[test]
    fn every_count_is_needed_for_either_verdict() {
        let (good, bad) = (Belief::of_counts(80, 20), Belief::of_counts(2, 8));
        assert_eq!(of(good, whole()), Review::Promote);
        assert_eq!(of(bad, whole()), Review::Archive);
        let short = [
            MechanismTrack {
                n_decided: 29,
                ..whole()
            },
            MechanismTrack {
                n_deployments: 9,
                ..whole()
            },
            MechanismTrack {
                last_tick: Some(TickId(19)),
                ..whole()
            },
        ];
        for track in short {
            assert_eq!(of(good, track).name(), "stay");
            assert_eq!(of(bad, track).name(), "stay");
        }
        let narrow = MechanismTrack {
            n_environments: 2,
            ..whole()
        };
        assert_eq!(
            of(good, narrow),
            Review::Stay(vec!["2 of 3 environments".to_owned()])
        );
        assert_eq!(
            of(bad, narrow),
            Review::Archive,
            "environments are for promotion alone"
        );
        assert_eq!(of(Belief::of_counts(79, 21), whole()).name(), "stay");
    }

    #[test]
    fn a_promoted_proposal_is_a_seed_of_the_next_catalog() {
        let model = model();
        let draft = MechanismDraft {
            id: None,
            edges: vec![
                "request_arrival_rate->queue_depth".to_owned(),
                "queue_depth->p99_ttft_ms".to_owned(),
            ],
            scope: serde_json::from_str(r#"{"workload_type": "online", "conditions": [{"feature": "tp", "op": ">", "value": 1.0}]}"#).unwrap(),
            narrative: "Requests \"wait\"\nin line.".to_owned(),
            prior: None,
        };
        let proposed = admit(draft, Origin::Proposal, &model, &kind_of).unwrap();
        let text = seed_file(&[seed_draft(&proposed, Belief::of_counts(17, 3))]).unwrap();
        #[derive(Deserialize)]
        struct File {
            mechanism: Vec<MechanismDraft>,
        }
        let read: File = toml::from_str(&text).unwrap();
        let seed = admit(read.mechanism[0].clone(), Origin::Seed, &model, &kind_of).unwrap();
        assert_eq!(
            (seed.id, seed.edges, seed.scope),
            (proposed.id, proposed.edges, proposed.scope)
        );
        assert_eq!(seed.prior, PriorBin::Strong);
        assert_eq!(seed.narrative, proposed.narrative);
    }

    proptest! {
        #[test]
        fn no_belief_is_promoted_and_archived(a in 1..400_u32, b in 1..400_u32, rows in 0..60_u32) {
            let track = MechanismTrack { n_decided: rows, ..whole() };
            let belief = Belief::of_counts(a, b);
            match of(belief, track) {
                Review::Promote => prop_assert!(belief.mean() >= 0.8 && rows >= 30),
                Review::Archive => prop_assert!(belief.mean() <= 0.2 && rows >= 30),
                Review::Stay(reasons) => prop_assert!(!reasons.is_empty()),
            }
            prop_assert!(belief.mean() >= prior_of(belief).belief().mean() || prior_of(belief) == PriorBin::Even);
        }
    }
}
