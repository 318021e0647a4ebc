//! Identities as newtypes; natural keys where the thing has a name of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! counter_id {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The next value.
            #[must_use]
            pub const fn next(self) -> Self { Self(self.0 + 1) }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{}", self.0) }
        }
    )+};
}

counter_id! {
    /// One planning interval.
    TickId(i64);
    /// Position of a plan in the chain of committed plans; one history per database.
    PlanSeq(i64);
    /// Generation of a job's ladder; grows with every change of the ladder.
    Generation(u32);
    /// Fencing token of the writing server: one more per start.
    Epoch(i64);
    /// Version of one host's desired set.
    HostGeneration(i64);
}

/// Identity of a job: a UUIDv7 made by the server's shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub uuid::Uuid);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a name is not a slug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a name: 1 to 63 of a-z, 0-9 and '-', starting and ending with a letter or digit"
)]
pub struct NotASlug {
    /// What was offered, cut to 80 characters.
    pub text: String,
}

/// A DNS-like name: 1 to 63 of `a-z`, `0-9`, `-`, not at the ends.
///
/// # Errors
/// [`NotASlug`] when the text is anything else.
pub fn check_slug(text: &str) -> Result<(), NotASlug> {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let edge = |c: Option<&u8>| c.is_some_and(|c| *c != b'-');
    let bytes = text.as_bytes();
    let ok = (1..=63).contains(&bytes.len())
        && bytes.iter().all(|c| inner(*c))
        && edge(bytes.first())
        && edge(bytes.last());
    if ok {
        Ok(())
    } else {
        Err(NotASlug {
            text: text.chars().take(80).collect(),
        })
    }
}

macro_rules! slug_id {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl FromStr for $name {
            type Err = NotASlug;
            fn from_str(text: &str) -> Result<Self, NotASlug> {
                check_slug(text)?;
                Ok(Self(text.to_owned()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
    )+};
}

slug_id! {
    /// A host (node) with an agent.
    HostId;
    /// A job's name, unique among live jobs.
    JobName;
    /// A tenant.
    TenantId;
}

/// Natural key of a replica: `<job>.g<generation>.r<rank>.<index>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId {
    /// The job's name.
    pub job: JobName,
    /// Generation of the ladder that asked for the replica.
    pub generation: Generation,
    /// Rank within the ladder, from 0.
    pub rank: u32,
    /// Index within the rank, from 0.
    pub index: u32,
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.g{}.r{}.{}",
            self.job, self.generation, self.rank, self.index
        )
    }
}

/// The text is not a replica id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a replica id of the form job.g1.r0.0")]
pub struct NotAReplicaId {
    /// What was offered, cut to 120 characters.
    pub text: String,
}

impl FromStr for ReplicaId {
    type Err = NotAReplicaId;
    fn from_str(text: &str) -> Result<Self, NotAReplicaId> {
        let parse = || {
            let mut parts = text.rsplitn(4, '.');
            let index = parts.next()?.parse().ok()?;
            let rank = parts.next()?.strip_prefix('r')?.parse().ok()?;
            let generation = Generation(parts.next()?.strip_prefix('g')?.parse().ok()?);
            let job = parts.next()?.parse().ok()?;
            Some(Self {
                job,
                generation,
                rank,
                index,
            })
        };
        parse().ok_or_else(|| NotAReplicaId {
            text: text.chars().take(120).collect(),
        })
    }
}

impl Serialize for ReplicaId {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ReplicaId {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_ids_round_trip() {
        let id: ReplicaId = "chat.g3.r0.2".parse().unwrap();
        assert_eq!(id.to_string(), "chat.g3.r0.2");
        for bad in [
            "chat",
            "chat.g3.r0",
            "chat.3.r0.2",
            "../x.g1.r0.0",
            "chat.g-1.r0.0",
        ] {
            assert!(bad.parse::<ReplicaId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn slugs_refuse_what_could_be_a_path_or_an_option() {
        for bad in [
            "",
            "-a",
            "a-",
            "a/b",
            "..",
            "A",
            "a b",
            "a;b",
            &"a".repeat(64),
        ] {
            assert!(bad.parse::<HostId>().is_err(), "{bad}");
        }
        assert!("h100-a".parse::<HostId>().is_ok());
    }
}
