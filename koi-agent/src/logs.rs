//! The end of an engine's log: bounded, harmless to a terminal, and read for the reason of a crash.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Why an engine ended, as far as its last lines tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CrashReason {
    /// The device's memory did not suffice.
    GpuOutOfMemory,
    /// The KV cache for the asked context does not fit; a smaller context or more memory would.
    KvCacheTooSmall,
    /// A word of the command line is unknown or has an illegal value.
    BadArgument,
    /// The port was taken.
    PortTaken,
    /// The model's files are not there or not complete.
    ModelNotFound,
    /// The driver or the device failed.
    DeviceFault,
    /// The host's memory did not suffice.
    HostOutOfMemory,
    /// The disk is full.
    DiskFull,
    /// Nothing recognised.
    Unknown,
}

impl CrashReason {
    /// The name used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GpuOutOfMemory => "gpu_out_of_memory",
            Self::KvCacheTooSmall => "kv_cache_too_small",
            Self::BadArgument => "bad_argument",
            Self::PortTaken => "port_taken",
            Self::ModelNotFound => "model_not_found",
            Self::DeviceFault => "device_fault",
            Self::HostOutOfMemory => "host_out_of_memory",
            Self::DiskFull => "disk_full",
            Self::Unknown => "unknown",
        }
    }

    /// True when the same launch would fail the same way, so that trying again is useless.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::GpuOutOfMemory | Self::KvCacheTooSmall | Self::BadArgument | Self::ModelNotFound
        )
    }
}

/// Phrases in lower case; the first reason with a phrase in the text wins.
const PHRASES: [(CrashReason, &[&str]); 8] = [
    (
        CrashReason::GpuOutOfMemory,
        &[
            "cuda out of memory",
            "torch.outofmemoryerror",
            "hip out of memory",
            "less than desired gpu memory utilization",
            "cuda error: out of memory",
        ],
    ),
    (
        CrashReason::KvCacheTooSmall,
        &[
            "no available memory for the cache blocks",
            "larger than the maximum number of tokens that can be stored in kv cache",
            "larger than the available kv cache memory",
            "is needed, which is larger than the available",
        ],
    ),
    (
        CrashReason::DeviceFault,
        &[
            "cuda error: device-side assert",
            "uncorrectable ecc",
            "gpu has fallen off the bus",
            "cuda error: unspecified launch failure",
            "no cuda gpus are available",
            "nccl error",
        ],
    ),
    (CrashReason::DiskFull, &["no space left on device"]),
    (
        CrashReason::HostOutOfMemory,
        &["cannot allocate memory", "memoryerror"],
    ),
    (
        CrashReason::PortTaken,
        &["address already in use", "[errno 98]"],
    ),
    (
        CrashReason::ModelNotFound,
        &[
            "repository not found",
            "does not appear to have a file named",
            "is not a local folder and is not a valid model identifier",
            "localentrynotfounderror",
            "no such file or directory",
            "invalid repository id or local directory",
            "cannot find the requested files in the disk cache",
            "can't load the configuration of",
            "offline mode is enabled",
        ],
    ),
    (
        CrashReason::BadArgument,
        &[
            "unrecognized arguments",
            "invalid choice",
            "error: argument",
            "unexpected argument",
            "validation error for",
            "is greater than the derived max_model_len",
            "valueerror: user-specified",
            "must be divisible by",
        ],
    ),
];

/// Why an engine ended, from the end of its log.
#[must_use]
pub fn classify(tail: &str) -> CrashReason {
    let text = tail.to_lowercase();
    PHRASES
        .iter()
        .find(|(_, phrases)| phrases.iter().any(|phrase| text.contains(phrase)))
        .map_or(CrashReason::Unknown, |(reason, _)| *reason)
}

/// The last lines of a log, at most `max_bytes` before escaping; empty when there is no log.
///
/// # Errors
/// When the file is a link or cannot be read.
pub fn tail(path: &Path, max_bytes: u64) -> io::Result<String> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("the log is not a file"));
    }
    let from = metadata.len().saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes)?;
    let mut text = bytes.as_slice();
    if from > 0 {
        // A cut first line would mislead.
        text = bytes
            .iter()
            .position(|b| *b == b'\n')
            .map_or(text, |at| &text[at + 1..]);
    }
    Ok(escape(&String::from_utf8_lossy(text)))
}

/// Control and direction characters made visible; newlines and tabs kept.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let hidden = (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if hidden {
            shown.extend(c.escape_unicode())
        } else {
            shown.push(c)
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_folder::TestFolder;

    #[test]
    fn hazard_e6_the_last_lines_name_the_reason() {
        let cases = [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
                CrashReason::GpuOutOfMemory,
            ),
            (
                "ValueError: Free memory on device (1/80 GiB) on startup is less than desired GPU memory utilization (0.9)",
                CrashReason::GpuOutOfMemory,
            ),
            (
                "ValueError: No available memory for the cache blocks. Try increasing",
                CrashReason::KvCacheTooSmall,
            ),
            (
                "OSError: [Errno 98] Address already in use",
                CrashReason::PortTaken,
            ),
            (
                "vllm: error: unrecognized arguments: --bogus",
                CrashReason::BadArgument,
            ),
            (
                "User-specified max_model_len (9) is greater than the derived max_model_len",
                CrashReason::BadArgument,
            ),
            (
                "OSError: x/y is not a local folder and is not a valid model identifier",
                CrashReason::ModelNotFound,
            ),
            (
                "OSError: [Errno 28] No space left on device",
                CrashReason::DiskFull,
            ),
            ("all fine", CrashReason::Unknown),
        ];
        for (text, reason) in cases {
            assert_eq!(classify(text), reason, "{text}");
        }
        assert!(CrashReason::GpuOutOfMemory.is_permanent());
        assert!(!CrashReason::PortTaken.is_permanent());
    }

    #[test]
    fn the_real_failed_start_is_recognised() {
        let root = std::env::var_os("KOI_SHARED")
            .map(std::path::PathBuf::from)
            .or_else(|| {
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .ancestors()
                    .map(|a| a.join("shared"))
                    .find(|p| p.join("vectors").is_dir())
            });
        let path = root.map(|r| r.join("data/vllm-cpu-capture/startup-failure-max-model-len.log"));
        let Some(path) = path.filter(|p| p.is_file()) else {
            println!("SKIPPED: no capture of a failed start beside this checkout");
            return;
        };
        assert_eq!(
            classify(&tail(&path, 64 * 1024).unwrap()),
            CrashReason::BadArgument
        );
    }

    #[test]
    fn hazard_k19_a_log_cannot_control_a_terminal_or_be_a_link() {
        let folder = TestFolder::new();
        let path = folder.path().join("engine.log");
        assert_eq!(tail(&path, 100).unwrap(), "");
        std::fs::write(&path, b"first line\nred \x1b[31m\xff\ttab\r\nend\n").unwrap();
        assert_eq!(
            tail(&path, 1000).unwrap(),
            "first line\nred \\u{1b}[31m\u{fffd}\ttab\\u{d}\nend\n"
        );
        assert_eq!(tail(&path, 8).unwrap(), "end\n");
        assert_eq!(escape("a\u{202e}b"), "a\\u{202e}b");
        let link = folder.path().join("link.log");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        assert!(tail(&link, 100).is_err());
    }
}
