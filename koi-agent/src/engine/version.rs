//! Which version an engine is, asked once per executable and within a time limit.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use crate::engine::vllm::{SYSTEM_PATH, VllmProgram};

/// Most output that is read for a version, in bytes.
const MAX_OUTPUT_BYTES: u64 = 256 * 1024;

/// Python that says the version of the installed package without importing it: importing vLLM takes
/// half a minute, during which running engines would wait to be taken over.
const ASK_PYTHON: &str = "import importlib.metadata as m
try:
    print(m.version('vllm'))
except m.PackageNotFoundError:
    import vllm
    print(vllm.__version__)
";

/// Why a version is not known.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The program could not be run.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The executable.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It took too long.
    #[error("{0} said no version in time")]
    TimedOut(PathBuf),
    /// It said nothing that looks like one.
    #[error("{program} said no version: {said:?}")]
    NoVersion {
        /// The executable.
        program: PathBuf,
        /// The end of what it said.
        said: String,
    },
}

/// Versions already asked for, by executable and its time of change.
#[derive(Debug, Default)]
pub struct VersionCache(Mutex<BTreeMap<(PathBuf, SystemTime), String>>);

impl VersionCache {
    /// Version of vLLM, e.g. `0.32.0`.
    ///
    /// # Errors
    /// When it cannot be found out within `limit`; importing vLLM may take a minute.
    pub async fn of_vllm(
        &self,
        program: &VllmProgram,
        limit: Duration,
    ) -> Result<String, VersionError> {
        match program {
            VllmProgram::Command(path) => self.of(path, &["--version"], limit).await,
            VllmProgram::Python(path) => self.of(path, &["-c", ASK_PYTHON], limit).await,
        }
    }

    /// Version that `program words…` prints.
    ///
    /// # Errors
    /// When it cannot be found out within `limit`.
    pub async fn of(
        &self,
        program: &Path,
        words: &[&str],
        limit: Duration,
    ) -> Result<String, VersionError> {
        let run = |source| VersionError::Run {
            program: program.to_owned(),
            source,
        };
        let changed = program.metadata().and_then(|m| m.modified()).map_err(run)?;
        let key = (program.to_owned(), changed);
        if let Some(known) = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(known.clone());
        }
        let said = timeout(limit, output(program, words))
            .await
            .map_err(|_| VersionError::TimedOut(program.to_owned()))?
            .map_err(run)?;
        let version = find_version(&said).ok_or_else(|| VersionError::NoVersion {
            program: program.to_owned(),
            said: said
                .chars()
                .rev()
                .take(200)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
                .collect(),
        })?;
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, version.clone());
        Ok(version)
    }
}

async fn output(program: &Path, words: &[&str]) -> io::Result<String> {
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .env("VLLM_NO_USAGE_STATS", "1")
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut said).await?;
    }
    child.wait().await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The last word that looks like `1.2` or `1.2.3…`.
fn find_version(said: &str) -> Option<String> {
    let looks_right = |word: &&str| {
        let mut parts = word.split('.');
        let number = |part: Option<&str>| {
            part.is_some_and(|p| p.bytes().next().is_some_and(|c| c.is_ascii_digit()))
        };
        word.len() <= 64 && number(parts.next()) && number(parts.next())
    };
    said.split_ascii_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .rfind(looks_right)
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_behind_log_lines() {
        let said = "INFO 11-30 09:00:00 [importing.py:53] hello\n0.32.0+cpu\n";
        assert_eq!(find_version(said).as_deref(), Some("0.32.0+cpu"));
        assert_eq!(
            find_version("koi-engine-sim v0.1.0"),
            Some("0.1.0".to_owned())
        );
        assert_eq!(find_version("no version here"), None);
    }

    #[tokio::test]
    async fn a_silent_or_slow_program_is_an_error_in_time() {
        let cache = VersionCache::default();
        let short = Duration::from_millis(200);
        let sh = Path::new("/bin/sh");
        let slow = cache.of(sh, &["-c", "sleep 100"], short).await;
        assert!(matches!(slow, Err(VersionError::TimedOut(_))));
        let long = Duration::from_secs(10);
        let silent = cache.of(sh, &["-c", "echo none"], long).await;
        assert!(matches!(silent, Err(VersionError::NoVersion { .. })));
        assert_eq!(
            cache.of(sh, &["-c", "echo 1.2.3"], long).await.unwrap(),
            "1.2.3"
        );
        assert_eq!(
            cache.of(sh, &["-c", "echo 9.9.9"], long).await.unwrap(),
            "1.2.3",
            "cached"
        );
    }
}
