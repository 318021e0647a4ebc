//! `spec.json`: what the agent asks the shim to run. Every word reaches the engine literally.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use koi_core::ids::ReplicaId;
use serde::{Deserialize, Serialize};

use crate::error::ShimError;
use crate::files::{SPEC_FILE, read_json};

/// Newest format of the files in a state folder that this build writes and understands.
pub const FORMAT: u32 = 1;

/// Bounds of a specification.
const MAX_ARGUMENTS: usize = 1024;
const MAX_WORD_BYTES: usize = 32 * 1024;
const MAX_VARIABLES: usize = 256;
const LOG_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 33;

/// Variable that carries the replica id into the engine.
pub const REPLICA_VARIABLE: &str = "KOI_REPLICA";
/// Variable that carries the nonce into the engine; a mark of ownership.
pub const NONCE_VARIABLE: &str = "KOI_NONCE";
/// Variable that carries the cluster's id through every process.
pub const CLUSTER_VARIABLE: &str = "KOI_CLUSTER_ID";

/// One engine to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimSpec {
    /// Format of this file.
    pub format: u32,
    /// The replica.
    pub replica_id: ReplicaId,
    /// Random mark of this launch, 16 to 128 hexadecimal digits.
    pub nonce: String,
    /// Command, first the program; no shell is involved.
    pub argv: Vec<String>,
    /// The engine's whole environment but for the shim's own marks.
    pub env: BTreeMap<String, String>,
    /// Working folder.
    pub cwd: PathBuf,
    /// File that receives the engine's output; relative to the state folder.
    pub log_file: PathBuf,
    /// Size at which the log is turned over, in bytes.
    pub log_max_bytes: u64,
    /// Seconds between TERM and KILL when a stop names none.
    pub grace_s: u32,
    /// The agent's own notes on this launch as JSON, so that they outlive damage to its file. The
    /// shim does not read them.
    #[serde(default)]
    pub agent_note: String,
}

impl ShimSpec {
    /// Reads and checks `spec.json` of a state folder.
    ///
    /// # Errors
    /// [`ShimError::BadSpec`] with every problem, or the reason why it cannot be read.
    pub fn read(state_dir: &Path) -> Result<Self, ShimError> {
        let path = state_dir.join(SPEC_FILE);
        let spec: Self = read_json(&path)?.ok_or_else(|| ShimError::Damaged {
            path,
            why: "does not exist".to_owned(),
        })?;
        let problems = spec.problems();
        if problems.is_empty() {
            Ok(spec)
        } else {
            Err(ShimError::BadSpec(problems))
        }
    }

    /// Everything that makes the specification unusable.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut need = |ok: bool, message: String| {
            if !ok {
                found.push(message);
            }
        };
        need(
            self.format <= FORMAT,
            format!("format: {} is newer than {FORMAT}", self.format),
        );
        need(
            is_nonce(&self.nonce),
            "nonce: 16 to 128 hexadecimal digits".to_owned(),
        );
        need(
            (1..=MAX_ARGUMENTS).contains(&self.argv.len()),
            format!("argv: 1 to {MAX_ARGUMENTS} words, not {}", self.argv.len()),
        );
        need(
            self.argv.first().is_none_or(|p| !p.is_empty()),
            "argv[0]: empty".to_owned(),
        );
        for (i, word) in self.argv.iter().enumerate() {
            need(
                is_word(word),
                format!("argv[{i}]: holds a NUL or is longer than 32 KiB"),
            );
        }
        need(
            self.env.len() <= MAX_VARIABLES,
            format!("env: more than {MAX_VARIABLES} variables"),
        );
        for (name, value) in &self.env {
            let shown: String = name.chars().take(64).collect();
            need(
                is_variable(name),
                format!("env: {shown:?} is not a variable name"),
            );
            need(
                is_word(value),
                format!("env.{shown}: holds a NUL or is longer than 32 KiB"),
            );
        }
        need(
            LOG_BYTES.contains(&self.log_max_bytes),
            format!("log_max_bytes: within {LOG_BYTES:?}"),
        );
        need(self.grace_s <= 3600, "grace_s: at most 3600".to_owned());
        found
    }
}

/// True for 16 to 128 hexadecimal digits.
#[must_use]
pub fn is_nonce(text: &str) -> bool {
    (16..=128).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_hexdigit())
}

fn is_word(text: &str) -> bool {
    text.len() <= MAX_WORD_BYTES && !text.contains('\0')
}

fn is_variable(name: &str) -> bool {
    let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let first_ok = name.bytes().next().is_some_and(|c| !c.is_ascii_digit());
    first_ok && name.len() <= 128 && name.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ShimSpec {
        ShimSpec {
            format: FORMAT,
            replica_id: "chat.g1.r0.0".parse().unwrap(),
            nonce: "0123456789abcdef".to_owned(),
            argv: vec!["/bin/true".to_owned(), "$(id); `x` '\"\\".to_owned()],
            env: BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]),
            cwd: "/".into(),
            log_file: "engine.log".into(),
            log_max_bytes: 1 << 20,
            grace_s: 10,
            agent_note: String::new(),
        }
    }

    #[test]
    fn words_with_shell_signs_are_fine() {
        assert_eq!(spec().problems(), Vec::<String>::new());
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let mut bad = spec();
        bad.format = 99;
        bad.nonce = "zz".to_owned();
        bad.argv = vec![String::new(), "a\0b".to_owned()];
        bad.env.insert("A=B".to_owned(), "x\0".to_owned());
        bad.log_max_bytes = 1;
        bad.grace_s = 1_000_000;
        let found = bad.problems();
        for field in [
            "format",
            "nonce",
            "argv[0]",
            "argv[1]",
            "env:",
            "log_max_bytes",
            "grace_s",
        ] {
            assert!(
                found.iter().any(|p| p.starts_with(field)),
                "{field} in {found:?}"
            );
        }
        bad.argv.clear();
        assert!(bad.problems().iter().any(|p| p.starts_with("argv: 1 to")));
    }
}
