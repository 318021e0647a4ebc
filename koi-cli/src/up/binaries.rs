//! Finds the other Koi binaries and makes sure that they are of the same build.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use koi_core::build::BUILD_ID;

use crate::failure::{ExitCode, Failure};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A binary of this name: beside this executable, then in `KOI_BIN_DIR`, then on `PATH`.
///
/// # Errors
/// A [`Failure`] that says where was looked and what to type.
pub fn find(name: &str) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|exe| exe.parent().map(Path::to_path_buf));
    // Test executables live one folder below the binaries.
    let above = beside
        .as_ref()
        .filter(|d| d.ends_with("deps"))
        .and_then(|d| d.parent().map(Path::to_path_buf));
    let asked = std::env::var_os("KOI_BIN_DIR").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside
        .iter()
        .cloned()
        .chain(above)
        .chain(asked)
        .chain(std::env::split_paths(&path));
    let found = folders.map(|d| d.join(name)).find(|p| is_executable(p));
    found.ok_or_else(|| {
        let beside = beside.unwrap_or_default();
        let message = format!(
            "{name} is not beside {}, in KOI_BIN_DIR or on PATH; build it with `cargo build --release`",
            beside.join("koi").display()
        );
        Failure::new(ExitCode::Failed, message).into()
    })
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Finds a binary and asks it for its build id.
///
/// # Errors
/// A [`Failure`] when it is missing, does not answer or is of another build.
pub async fn find_same_build(name: &str) -> anyhow::Result<PathBuf> {
    let path = find(name)?;
    let fail = |what: String| Failure::new(ExitCode::Failed, format!("{}: {what}", path.display()));
    let mut command = tokio::process::Command::new(&path);
    command
        .arg("--build-id")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER_TIMEOUT, command.output())
        .await
        .map_err(|_| fail("does not answer to --build-id".to_owned()))?
        .map_err(|e| fail(e.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let id = text.trim();
    if !output.status.success() || id.is_empty() {
        return Err(fail("does not answer to --build-id".to_owned()).into());
    }
    if id != BUILD_ID {
        return Err(fail(format!(
            "is build {id:?}, this koi is {BUILD_ID:?}; build all of them together"
        ))
        .into());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_says_what_to_type() {
        let error = find("koi-no-such-binary").unwrap_err().to_string();
        assert!(error.contains("cargo build"), "{error}");
        assert!(find("sh").is_ok(), "PATH is searched");
    }

    #[tokio::test]
    async fn another_build_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = std::env::temp_dir().join(format!("koi-binaries-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("koi-other-build");
        std::fs::write(&path, "#!/bin/sh\necho 9.9.9\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        // An absolute name joins to itself, so the search finds exactly this file.
        let error = find_same_build(path.to_str().unwrap())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("9.9.9") && error.contains("build all of them together"),
            "{error}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
