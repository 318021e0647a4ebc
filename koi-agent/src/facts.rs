//! Raw facts of the host: what the kernel says, nothing derived.

use std::fs;
use std::io;
use std::path::Path;

use koi_shim::process::boot_id;

/// Memory as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// All of it.
    pub total_bytes: u64,
    /// What new programs could have without swapping.
    pub available_bytes: u64,
}

/// Space of one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// All of it.
    pub total_bytes: u64,
    /// What this user may still write.
    pub free_bytes: u64,
}

/// One host; what could not be read is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostFacts {
    /// Identity of this boot.
    pub boot_id: String,
    /// Host name.
    pub hostname: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor as it calls itself.
    pub processor: Option<String>,
    /// Processors that may be used.
    pub n_processors: Option<u32>,
    /// Memory.
    pub memory: Option<MemoryInfo>,
    /// Space under the folder with the models.
    pub model_disk: Option<DiskSpace>,
}

/// Reads the facts of this host.
///
/// # Errors
/// When the kernel does not even give the boot's identity.
pub fn host_facts(model_root: &Path) -> io::Result<HostFacts> {
    let names = rustix::system::uname();
    Ok(HostFacts {
        boot_id: boot_id()?,
        hostname: names.nodename().to_string_lossy().into_owned(),
        kernel: names.release().to_string_lossy().into_owned(),
        processor: processor_name(),
        n_processors: std::thread::available_parallelism()
            .ok()
            .and_then(|n| u32::try_from(n.get()).ok()),
        memory: memory_info().ok(),
        model_disk: disk_space(model_root).ok(),
    })
}

/// The processor's own name.
#[must_use]
pub fn processor_name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().chars().take(128).collect())
}

/// Memory now.
///
/// # Errors
/// When `/proc/meminfo` cannot be read or lacks a line.
pub fn memory_info() -> io::Result<MemoryInfo> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let missing = |name: &str| io::Error::other(format!("/proc/meminfo has no {name}"));
    let bytes = |name: &str| {
        parse_kib(&text, name)
            .map(|kib| kib.saturating_mul(1024))
            .ok_or_else(|| missing(name))
    };
    Ok(MemoryInfo {
        total_bytes: bytes("MemTotal")?,
        available_bytes: bytes("MemAvailable")?,
    })
}

fn parse_kib(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Space of the file system that holds `path`.
///
/// # Errors
/// When the path does not exist.
pub fn disk_space(path: &Path) -> io::Result<DiskSpace> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(DiskSpace {
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_says_who_it_is() {
        let facts = host_facts(Path::new("/")).unwrap();
        assert_eq!(facts.boot_id.len(), 36);
        assert!(!facts.kernel.is_empty());
        let disk = facts.model_disk.unwrap();
        assert!(disk.free_bytes <= disk.total_bytes && disk.total_bytes > 0);
        let memory = facts.memory.unwrap();
        assert!(memory.available_bytes <= memory.total_bytes);
    }

    #[test]
    fn a_missing_folder_is_absent_and_not_zero() {
        assert_eq!(
            host_facts(Path::new("/nonexistent")).unwrap().model_disk,
            None
        );
        assert_eq!(parse_kib("MemTotal:  12 kB\n", "MemTotal"), Some(12));
        assert_eq!(parse_kib("MemTotalX: 12 kB\n", "MemTotal"), None);
    }
}
