//! Free capacity as rows: hosts of the same kind form a pool, and packing chains into its hosts
//! becomes five linear rows per pool.
//!
//! Chains have tp × pp ∈ {1, 2, 4, 8, 16} GPUs and must lie within one host. Because every size
//! divides the next, chains pack into hosts exactly when, for every size t, the t-sized pieces
//! they take (Σ n·s/t over sizes s ≥ t) do not exceed the t-sized pieces there are (Σ ⌊free/t⌋).
//! So the joint choice needs no bin packing, and trap 9 of spec §17 (capacity per environment
//! where a chain needs one host) cannot happen. Spec §10.3.

use std::collections::{BTreeMap, BTreeSet};

use crate::environment::Environment;
use crate::host::HostRecord;
use crate::ids::HostId;
use crate::job::EngineName;
use crate::snapshot::Snapshot;
use crate::store::ServerState;

/// Chain sizes, ascending; each divides the next.
pub const CHAIN_SIZES: [u32; 5] = [1, 2, 4, 8, 16];

/// What makes two hosts interchangeable for the planner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolKey {
    /// Where.
    pub environment: Environment,
    /// Instance type.
    pub instance_type: String,
    /// Devices per host.
    pub n_gpus: u32,
    /// Memory of the smallest device in bytes.
    pub memory_bytes: u64,
    /// Devices talk over NVLink.
    pub nvlink: bool,
    /// Price of one device for an hour in micro-USD; absent without a price.
    pub gpu_micro_usd_per_hour: Option<i64>,
    /// Engines with their versions.
    pub engines: BTreeMap<EngineName, String>,
}

impl PoolKey {
    /// The pool a host belongs to.
    #[must_use]
    pub fn of(host: &HostRecord, state: &ServerState) -> Self {
        let facts = &host.facts;
        let micro_usd = |usd: f64| (usd * 1e6).round() as i64;
        let engines = facts
            .engines
            .iter()
            .map(|install| (install.engine, install.version.clone()))
            .collect();
        Self {
            environment: facts.environment.clone(),
            instance_type: facts.instance_type.clone(),
            n_gpus: facts.gpus.len() as u32,
            memory_bytes: facts.gpus.iter().map(|g| g.memory_bytes).min().unwrap_or(0),
            nvlink: facts.nvlink,
            gpu_micro_usd_per_hour: state.gpu_usd_per_hour(host).map(micro_usd),
            engines,
        }
    }

    /// Price of one device for an hour.
    #[must_use]
    pub fn gpu_usd_per_hour(&self) -> Option<f64> {
        self.gpu_micro_usd_per_hour.map(|micro| micro as f64 / 1e6)
    }
}

/// A host with what it has free.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolHost {
    /// Host.
    pub host: HostId,
    /// Unreserved devices in index order; empty when the host takes no work.
    pub free: Vec<String>,
}

/// Hosts of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Kind.
    pub key: PoolKey,
    /// Hosts that take work, in order of id.
    pub hosts: Vec<PoolHost>,
}

impl Pool {
    /// Pieces of `size` GPUs that are free.
    #[must_use]
    pub fn free_pieces(&self, size: u32) -> u64 {
        self.hosts
            .iter()
            .map(|h| h.free.len() as u64 / u64::from(size.max(1)))
            .sum()
    }

    /// Chains of this size that the empty pool could hold.
    #[must_use]
    pub fn chains_when_empty(&self, size: u32) -> u32 {
        self.hosts.len() as u32 * (self.key.n_gpus / size.max(1))
    }
}

/// All pools of a snapshot that could take work.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pools {
    /// Pools in order of key.
    pub pools: Vec<Pool>,
}

impl Pools {
    /// The pools of a snapshot: hosts that take work, with their unreserved devices.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let reserved = snapshot.reserved_devices();
        let mut by_key: BTreeMap<PoolKey, Vec<PoolHost>> = BTreeMap::new();
        for host in snapshot
            .state
            .hosts
            .values()
            .filter(|h| snapshot.takes_work(h))
        {
            by_key
                .entry(PoolKey::of(host, &snapshot.state))
                .or_default()
                .push(pool_host(host, &reserved));
        }
        let pools = by_key.into_iter().map(|(key, hosts)| Pool { key, hosts });
        Self {
            pools: pools.collect(),
        }
    }

    /// Capacity rows: for every pool, the free pieces of every chain size.
    #[must_use]
    pub fn capacity_rows(&self) -> Vec<u64> {
        self.pools
            .iter()
            .flat_map(|p| CHAIN_SIZES.map(|size| p.free_pieces(size)))
            .collect()
    }

    /// Free GPUs of an environment.
    #[must_use]
    pub fn free_in(&self, environment: &Environment) -> u64 {
        let of_environment = self
            .pools
            .iter()
            .filter(|p| &p.key.environment == environment);
        of_environment.map(|p| p.free_pieces(1)).sum()
    }
}

fn pool_host(host: &HostRecord, reserved: &BTreeSet<&str>) -> PoolHost {
    let mut gpus: Vec<_> = host.facts.gpus.iter().collect();
    gpus.sort_by(|a, b| a.index.cmp(&b.index).then_with(|| a.uuid.cmp(&b.uuid)));
    let free = gpus.iter().filter(|g| !reserved.contains(g.uuid.as_str()));
    PoolHost {
        host: host.facts.host.clone(),
        free: free.map(|g| g.uuid.clone()).collect(),
    }
}

/// Rows that `n_chains` chains of `size` GPUs take in a pool, ascending.
#[must_use]
pub fn row_uses(pool_index: usize, size: u32, n_chains: u32) -> Vec<(usize, u64)> {
    CHAIN_SIZES
        .iter()
        .enumerate()
        .filter(|(_, piece)| **piece <= size && n_chains > 0)
        .map(|(level, piece)| {
            let pieces = u64::from(n_chains) * u64::from(size / piece);
            (pool_index * CHAIN_SIZES.len() + level, pieces)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn pack(free: &mut [u32], sizes: &[u32]) -> bool {
        let Some((size, rest)) = sizes.split_first() else {
            return true;
        };
        for i in 0..free.len() {
            if free[i] >= *size {
                free[i] -= size;
                if pack(free, rest) {
                    return true;
                }
                free[i] += size;
            }
        }
        false
    }

    /// The rows against an exhaustive packer.
    #[test]
    fn rows_say_exactly_what_packs() {
        let mut rng = Rng::from_seed(2);
        let (mut n_yes, mut n_no) = (0, 0);
        for _ in 0..2_000 {
            let free: Vec<u32> = (0..1 + rng.below(3)).map(|_| rng.below(9) as u32).collect();
            let sizes: Vec<u32> = (0..1 + rng.below(5))
                .map(|_| CHAIN_SIZES[rng.below(4)])
                .collect();
            let mut left: Vec<u64> = CHAIN_SIZES
                .iter()
                .map(|t| free.iter().map(|f| u64::from(f / t)).sum())
                .collect();
            let by_rows = sizes.iter().all(|size| {
                row_uses(0, *size, 1).into_iter().all(|(row, n)| {
                    let ok = left[row] >= n;
                    left[row] = left[row].saturating_sub(n);
                    ok
                })
            });
            assert_eq!(
                by_rows,
                pack(&mut free.clone(), &sizes),
                "{free:?} {sizes:?}"
            );
            if by_rows { n_yes += 1 } else { n_no += 1 }
        }
        assert!(n_yes > 200 && n_no > 200, "{n_yes} {n_no}");
    }

    #[test]
    fn a_chain_of_four_takes_pieces_of_four_two_and_one() {
        assert_eq!(row_uses(1, 4, 2), [(5, 8), (6, 4), (7, 2)]);
        assert!(row_uses(1, 4, 0).is_empty());
    }
}
