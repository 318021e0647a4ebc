//! One ledger of ports per host: who has which, tried before it is given, kept across restarts.
//!
//! Every port of an engine is given here, the secondary ones too, so that two launches never race
//! for one. The sockets that prove a port free stay open until the moment of the launch.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use koi_core::ids::ReplicaId;
use koi_shim::ShimError;
use koi_shim::files::{read_json, set_aside, write_json};
use serde::{Deserialize, Serialize};

/// Most ports that one replica may have.
pub const MAX_PORTS_PER_REPLICA: usize = 64;

/// Ports of one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLease {
    /// Port of the HTTP API.
    pub api: u16,
    /// The engine's own ports, ascending and without gaps where the range allows.
    pub secondary: Vec<u16>,
}

impl PortLease {
    fn all(&self) -> impl Iterator<Item = u16> + '_ {
        std::iter::once(self.api).chain(self.secondary.iter().copied())
    }
}

/// No ports can be given.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The range holds too few free ports.
    #[error("{wanted} ports wanted, but only {free} of {range:?} are free")]
    Exhausted {
        /// How many were asked for.
        wanted: usize,
        /// How many could be had.
        free: usize,
        /// The configured range.
        range: RangeInclusive<u16>,
    },
    /// The replica has a lease already.
    #[error("replica {0} already has ports")]
    AlreadyLeased(String),
    /// Too many at once.
    #[error("{0} ports are more than one replica may have")]
    TooMany(usize),
    /// The ledger could not be kept.
    #[error(transparent)]
    Ledger(#[from] ShimError),
}

/// A lease whose ports are still held open; dropping it hands them over to the engine.
#[derive(Debug)]
pub struct HeldPorts {
    /// The ports.
    pub lease: PortLease,
    held: Vec<TcpListener>,
}

impl HeldPorts {
    /// Closes the sockets: call right before the launch.
    #[must_use]
    pub fn hand_over(self) -> PortLease {
        drop(self.held);
        self.lease
    }
}

/// The ledger of one host. Launches take it in turn (`&mut`).
#[derive(Debug)]
pub struct PortLedger {
    range: RangeInclusive<u16>,
    address: IpAddr,
    path: PathBuf,
    leases: BTreeMap<ReplicaId, PortLease>,
    next: u16,
}

impl PortLedger {
    /// Opens the ledger kept at `path`. A damaged one is moved aside, named in the log, and counts as
    /// empty: before anything is given, [`Self::rebuild`] brings back what running replicas have.
    #[must_use]
    pub fn open(path: &Path, range: RangeInclusive<u16>, address: IpAddr) -> Self {
        let leases = read_json(path).unwrap_or_else(|error| {
            let kept = set_aside(path).map(|kept| kept.display().to_string());
            tracing::error!(
                file = %path.display(),
                kept = kept.unwrap_or_default(),
                %error,
                "the ledger of ports cannot be read; it is made anew from what runs"
            );
            None
        });
        let leases = leases.unwrap_or_default();
        Self {
            next: *range.start(),
            range,
            address,
            path: path.to_owned(),
            leases,
        }
    }

    /// Gives a replica one API port and `n_secondary` more, all free at this moment.
    ///
    /// # Errors
    /// When the range is exhausted or the ledger cannot be written; nothing is given then.
    pub fn lease(
        &mut self,
        replica: &ReplicaId,
        n_secondary: usize,
    ) -> Result<HeldPorts, PortError> {
        let wanted = 1 + n_secondary;
        if wanted > MAX_PORTS_PER_REPLICA {
            return Err(PortError::TooMany(wanted));
        }
        if self.leases.contains_key(replica) {
            return Err(PortError::AlreadyLeased(replica.to_string()));
        }
        let held = self.hold(wanted)?;
        let mut ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
        self.next = ports
            .last()
            .map_or(self.next, |last| last.saturating_add(1));
        ports.sort_unstable();
        let lease = PortLease {
            api: ports.remove(0),
            secondary: ports,
        };
        self.leases.insert(replica.clone(), lease.clone());
        if let Err(error) = self.store() {
            self.leases.remove(replica);
            return Err(error.into());
        }
        Ok(HeldPorts {
            lease,
            held: held.into_iter().map(|(_, socket)| socket).collect(),
        })
    }

    /// Binds free ports, starting after the last one given: a port just freed rests longest.
    fn hold(&self, wanted: usize) -> Result<Vec<(u16, TcpListener)>, PortError> {
        let taken: BTreeSet<u16> = self.leases.values().flat_map(PortLease::all).collect();
        let (first, last) = (*self.range.start(), *self.range.end());
        let from = if self.range.contains(&self.next) {
            self.next
        } else {
            first
        };
        let held: Vec<(u16, TcpListener)> = (from..=last)
            .chain(first..from)
            .filter(|port| *port != 0 && !taken.contains(port) && !is_bound(*port))
            .filter_map(|port| Some((port, TcpListener::bind((self.address, port)).ok()?)))
            .take(wanted)
            .collect();
        if held.len() < wanted {
            return Err(PortError::Exhausted {
                wanted,
                free: held.len(),
                range: self.range.clone(),
            });
        }
        Ok(held)
    }

    /// Makes the ledger anew from what was found on this host. What runs has its ports, whatever the
    /// ledger said. A lease that nobody running has, of the ledger or of a folder that is of no use,
    /// is `doubtful`: it stays while something listens in it, for an engine whose folder is lost may
    /// still need the ports on which it does not listen yet.
    ///
    /// # Errors
    /// When the ledger cannot be written; in memory it is right all the same.
    pub fn rebuild(
        &mut self,
        running: BTreeMap<ReplicaId, PortLease>,
        doubtful: BTreeMap<ReplicaId, PortLease>,
    ) -> Result<(), PortError> {
        let mut owners: BTreeMap<u16, ReplicaId> = BTreeMap::new();
        for (replica, lease) in &running {
            if self.leases.get(replica) != Some(lease) {
                tracing::warn!(%replica, api = lease.api, "its ports were not in the ledger");
            }
            for port in lease.all() {
                if let Some(other) = owners.insert(port, replica.clone()) {
                    tracing::error!(%replica, %other, port, "two replicas have one port");
                }
            }
        }
        let before = std::mem::replace(&mut self.leases, running);
        for (replica, lease) in before.into_iter().chain(doubtful) {
            let is_free = |port| !owners.contains_key(&port);
            if lease.all().all(is_free) && lease.all().any(is_bound) {
                self.leases.entry(replica).or_insert(lease);
            }
        }
        Ok(self.store()?)
    }

    /// Takes the ports of a replica back, after the proof of its exit.
    ///
    /// # Errors
    /// When the ledger cannot be written; the ports are free in memory all the same.
    pub fn release(&mut self, replica: &ReplicaId) -> Result<(), PortError> {
        match self.leases.remove(replica) {
            Some(_) => Ok(self.store()?),
            None => Ok(()),
        }
    }

    /// The ports of a replica.
    #[must_use]
    pub fn of(&self, replica: &ReplicaId) -> Option<&PortLease> {
        self.leases.get(replica)
    }

    fn store(&self) -> Result<(), ShimError> {
        write_json(&self.path, &self.leases)
    }
}

/// True when something listens on the port, at whichever address of this host: engines choose the
/// address of their own sockets themselves.
fn is_bound(port: u16) -> bool {
    let all: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    all.into_iter().any(|address| {
        let tried = TcpListener::bind((address, port));
        tried.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    })
}

/// True when nothing listens on the port of this address.
///
/// # Errors
/// When it cannot be tried for another reason than being taken.
pub fn is_free(address: IpAddr, port: u16) -> io::Result<bool> {
    match TcpListener::bind((address, port)) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
