//! Where a dev cluster keeps its files, and where the shipped configuration is.

use std::path::{Path, PathBuf};

/// Folders and files under one data directory.
#[derive(Debug, Clone)]
pub struct DataDir(PathBuf);

impl DataDir {
    /// The data directory asked for, else `/var/lib/koi` for root (a private Postgres runs under
    /// another user and must reach it), else `$XDG_DATA_HOME/koi`, else `~/.local/share/koi`.
    #[must_use]
    pub fn resolve(asked: Option<&Path>) -> Self {
        let path = asked.map(Path::to_path_buf).unwrap_or_else(|| {
            if rustix::process::geteuid().is_root() {
                return PathBuf::from("/var/lib/koi");
            }
            let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".local/share"));
            let data = std::env::var_os("XDG_DATA_HOME")
                .map(PathBuf::from)
                .or_else(home);
            data.unwrap_or_else(|| PathBuf::from(".")).join("koi")
        });
        Self(std::path::absolute(&path).unwrap_or(path))
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Something directly below.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// State of the running supervisor.
    #[must_use]
    pub fn up_state(&self) -> PathBuf {
        self.join("up.json")
    }

    /// Server address and token file for the command line.
    #[must_use]
    pub fn client_settings(&self) -> PathBuf {
        self.join("client.toml")
    }

    /// Endpoint files, one per job.
    #[must_use]
    pub fn endpoints(&self) -> PathBuf {
        self.join("endpoints")
    }

    /// What the load generator measured.
    #[must_use]
    pub fn load(&self) -> PathBuf {
        self.join("load")
    }

    /// Logs of all processes.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.join("logs")
    }

    /// Everything of one host.
    #[must_use]
    pub fn host(&self, host: &str) -> PathBuf {
        self.0.join("hosts").join(host)
    }
}

/// A file of the shipped `configs` folder: as given when it exists, else below the first `configs`
/// found in `KOI_CONFIGS_DIR`, the working directory or above the executable.
#[must_use]
pub fn shipped(relative: &str) -> PathBuf {
    let asked = std::env::var_os("KOI_CONFIGS_DIR").map(PathBuf::from);
    let here = std::env::current_dir().ok().map(|d| d.join("configs"));
    let exe = std::env::current_exe().ok();
    let above = exe
        .iter()
        .flat_map(|e| e.ancestors().skip(1).take(5).map(|d| d.join("configs")));
    let found = asked
        .into_iter()
        .chain(here)
        .chain(above)
        .map(|c| c.join(relative))
        .find(|p| p.exists());
    found.unwrap_or_else(|| Path::new("configs").join(relative))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asked_directory_wins_and_is_absolute() {
        let dir = DataDir::resolve(Some(Path::new("some/where")));
        assert!(dir.path().is_absolute() && dir.path().ends_with("some/where"));
        assert!(dir.host("a").ends_with("some/where/hosts/a"));
    }
}
