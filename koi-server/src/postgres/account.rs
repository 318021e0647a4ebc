//! Which account runs PostgreSQL, and whether it can reach a folder.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::PostgresError;

/// An account other than root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name, for messages.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Account {
    /// The account that must run PostgreSQL for the current process: nobody else when the process
    /// is not root, else `postgres` or `nobody`. A uid without a line in passwd would not do.
    ///
    /// # Errors
    /// [`PostgresError::NoAccount`] when root finds neither.
    pub fn to_switch_to() -> Result<Option<Self>, PostgresError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        ["postgres", "nobody"]
            .into_iter()
            .find_map(|name| Self::in_passwd(&passwd, name))
            .map(Some)
            .ok_or(PostgresError::NoAccount)
    }

    /// The account of this name in the text of a passwd file; root in disguise does not count.
    pub(super) fn in_passwd(passwd: &str, name: &str) -> Option<Self> {
        passwd.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [found, _, uid, gid, ..] = fields.as_slice() else {
                return None;
            };
            let account = Self {
                name: (*found).to_owned(),
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
            };
            (*found == name && account.uid != 0).then_some(account)
        })
    }

    /// The nearest ancestor of a folder, or the folder, that the account may not enter.
    pub(super) fn blocked_at(&self, folder: &Path) -> Option<PathBuf> {
        let chain: Vec<&Path> = folder.ancestors().collect();
        let closed = |p: &&Path| p.metadata().is_ok_and(|m| !self.may_enter(&m));
        chain.into_iter().rev().find(closed).map(Path::to_path_buf)
    }

    fn may_enter(&self, meta: &std::fs::Metadata) -> bool {
        let bit = match (meta.uid() == self.uid, meta.gid() == self.gid) {
            (true, _) => 0o100,
            (false, true) => 0o010,
            (false, false) => 0o001,
        };
        meta.mode() & bit != 0
    }
}

/// A command run by the account, in a folder the account can enter.
pub(super) fn command(program: &Path, account: Option<&Account>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env("LC_ALL", "C")
        .env_remove("PGDATA");
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}
