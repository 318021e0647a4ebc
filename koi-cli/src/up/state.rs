//! `up.json`: what runs, by identity, so that `koi down` works after the supervisor was killed.

use serde::{Deserialize, Serialize};

use super::process::Process;
use crate::paths::DataDir;
use crate::secrets::write_private;

/// What a child of the supervisor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    /// `koi-server postgres`.
    Postgres,
    /// `koi-server serve`.
    Server,
    /// `koi-agent` of one host.
    Agent,
    /// `koi load`.
    Load,
}

/// A running child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Child {
    /// Name in messages and of its log.
    pub(super) name: String,
    /// What it is.
    pub(super) role: Role,
    /// The process.
    pub(super) process: Process,
}

/// `up.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UpState {
    /// Value of `KOI_CLUSTER_ID`.
    pub(super) cluster_id: String,
    /// The supervisor.
    pub(super) supervisor: Process,
    /// Running children.
    pub(super) children: Vec<Child>,
    /// Settings files of the agents, for `--stop-engines`.
    pub(super) agent_settings: Vec<std::path::PathBuf>,
    /// Server address, once known.
    pub(super) server: String,
    /// How far the start has come, in words.
    pub(super) stage: String,
    /// True when the start is over.
    pub(super) is_started: bool,
    /// What an earlier, killed supervisor left and nobody has proven gone yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) earlier: Option<Box<UpState>>,
}

impl UpState {
    /// The state in a data directory; nothing when there is none.
    pub(super) fn read(data: &DataDir) -> anyhow::Result<Option<Self>> {
        let path = data.up_state();
        match std::fs::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(state) => Ok(Some(state)),
                Err(e) => anyhow::bail!(
                    "{path} is damaged ({e}): nobody can tell from it what runs; end what `ps -ef | grep koi` shows of \
                     {folder}, then remove {path}",
                    path = path.display(),
                    folder = data.path().display()
                ),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => anyhow::bail!("read {}: {e}", path.display()),
        }
    }

    /// Writes the state whole.
    pub(super) fn write(&self, data: &DataDir) -> anyhow::Result<()> {
        write_private(&data.up_state(), &serde_json::to_string_pretty(self)?)
    }

    /// Forgets the state: nothing runs.
    pub(super) fn remove(data: &DataDir) -> anyhow::Result<()> {
        match std::fs::remove_file(data.up_state()) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// This state and what it knows of earlier ones, the newest first.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |state| state.earlier.as_deref())
    }

    /// Children of a role.
    pub(super) fn of_role(&self, role: Role) -> Vec<Process> {
        self.children
            .iter()
            .filter(|c| c.role == role)
            .map(|c| c.process)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_survives_its_file() {
        let dir = std::env::temp_dir().join(format!("koi-state-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let data = DataDir::resolve(Some(&dir));
        assert_eq!(UpState::read(&data).unwrap(), None);
        let child = |role, pid| Child {
            name: "x".into(),
            role,
            process: Process {
                pid,
                start_time_ticks: 7,
            },
        };
        let state = UpState {
            cluster_id: "abc".into(),
            supervisor: Process::me(),
            children: vec![child(Role::Agent, 5), child(Role::Server, 6)],
            agent_settings: vec![dir.join("a.toml")],
            server: "http://127.0.0.1:1".into(),
            stage: "jobs".into(),
            is_started: false,
            earlier: None,
        };
        state.write(&data).unwrap();
        assert_eq!(UpState::read(&data).unwrap(), Some(state.clone()));
        assert_eq!(
            state.of_role(Role::Agent),
            [Process {
                pid: 5,
                start_time_ticks: 7
            }]
        );
        std::fs::write(data.up_state(), "{ half").unwrap();
        let error = UpState::read(&data).unwrap_err().to_string();
        assert!(
            error.contains(&format!("remove {}", data.up_state().display())),
            "{error}"
        );
        UpState::remove(&data).unwrap();
        UpState::remove(&data).unwrap();
        assert_eq!(UpState::read(&data).unwrap(), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
