//! Finding Koi's other programs: beside this one, then `KOI_BIN_DIR`, then `PATH` (spec §18.2).

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program that is nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is not installed: not in {}; build it or set KOI_BIN_DIR", .tried.join(", "))]
pub struct BinaryNotFound {
    /// The program.
    pub name: String,
    /// Folders that were looked into.
    pub tried: Vec<String>,
}

/// The program called `name`.
///
/// # Errors
/// [`BinaryNotFound`] with every folder that was tried.
pub fn find_binary(name: &str) -> Result<PathBuf, BinaryNotFound> {
    let beside = env::current_exe().ok();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = beside
        .iter()
        .flat_map(|exe| beside_folders(exe))
        .chain(env::var_os("KOI_BIN_DIR").map(PathBuf::from))
        .chain(env::split_paths(&path));
    find_in(name, folders)
}

/// The folder of an executable; a test executable lies one folder deeper than the programs.
fn beside_folders(exe: &Path) -> Vec<PathBuf> {
    let Some(folder) = exe.parent() else {
        return Vec::new();
    };
    let mut found = vec![folder.to_owned()];
    if folder.file_name().is_some_and(|n| n == "deps") {
        found.extend(folder.parent().map(Path::to_owned));
    }
    found
}

fn find_in(name: &str, folders: impl Iterator<Item = PathBuf>) -> Result<PathBuf, BinaryNotFound> {
    let mut tried = Vec::new();
    for folder in folders.filter(|f| f.is_absolute()) {
        let candidate = folder.join(name);
        if is_program(&candidate) {
            return Ok(candidate);
        }
        tried.push(folder.display().to_string());
    }
    Err(BinaryNotFound {
        name: name.to_owned(),
        tried,
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_a_program_wins_and_relative_folders_are_skipped() {
        let folders = [".", "/nonexistent", "/bin", "/usr/bin"].map(PathBuf::from);
        assert_eq!(
            find_in("sh", folders.into_iter()),
            Ok(PathBuf::from("/bin/sh"))
        );
        let missing = find_in("no-such-program", [PathBuf::from("/bin")].into_iter());
        assert_eq!(missing.unwrap_err().tried, ["/bin"]);
    }

    #[test]
    fn a_test_executable_finds_the_programs_one_folder_up() {
        let found = beside_folders(Path::new("/t/debug/deps/x-1"));
        assert_eq!(
            found,
            [PathBuf::from("/t/debug/deps"), PathBuf::from("/t/debug")]
        );
        assert_eq!(
            beside_folders(Path::new("/t/debug/x")),
            [PathBuf::from("/t/debug")]
        );
    }
}
