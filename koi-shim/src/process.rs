//! Reading `/proc`: who is alive, since when, and whose mark it carries. Never signals anybody.

use std::fs::{self, File};
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use koi_core::time::UtcMicros;

use crate::record::ProcessRef;
use crate::spec::NONCE_VARIABLE;

/// The part of `/proc/<pid>/stat` that ownership needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStat {
    /// The process.
    pub process: ProcessRef,
    /// Parent.
    pub ppid: u32,
    /// Process group.
    pub pgid: u32,
    /// Session.
    pub sid: u32,
    /// One letter; `Z` and `X` hold nothing any more.
    pub state: char,
    /// Name as the kernel keeps it.
    pub name: String,
}

impl ProcessStat {
    /// True when the process still holds memory and files.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// What a process's environment says about a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceMark {
    /// It carries the nonce.
    Match,
    /// It carries another launch's nonce.
    Other,
    /// It carries none, or it cannot be read.
    Absent,
}

/// Reads one process; `None` when it does not exist.
#[must_use]
pub fn stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses a stat line; the name may hold blanks and parentheses.
#[must_use]
pub fn parse_stat(line: &str) -> Option<ProcessStat> {
    let (head, rest) = line.rsplit_once(')')?;
    let (pid, name) = head.split_once(" (")?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut number = || fields.next()?.parse::<u32>().ok();
    let (ppid, pgid, sid) = (number()?, number()?, number()?);
    let start_ticks = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat {
        process: ProcessRef {
            pid: pid.trim().parse().ok()?,
            start_ticks,
        },
        ppid,
        pgid,
        sid,
        state,
        name: name.to_owned(),
    })
}

/// All processes that can be seen.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn scan() -> io::Result<Vec<ProcessStat>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|n| n.parse::<u32>().ok());
        all.extend(pid.and_then(stat));
    }
    Ok(all)
}

/// The process as a reference; `None` when it does not exist.
#[must_use]
pub fn reference(pid: u32) -> Option<ProcessRef> {
    stat(pid).map(|s| s.process)
}

/// True when exactly this process still holds memory and files.
#[must_use]
pub fn is_alive(process: ProcessRef) -> bool {
    stat(process.pid).is_some_and(|s| s.process == process && s.is_alive())
}

/// Identity of this boot.
///
/// # Errors
/// When the kernel does not say.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

/// What the environment of `pid` says about `nonce`.
#[must_use]
pub fn nonce_mark(pid: u32, nonce: &str) -> NonceMark {
    let mut text = Vec::new();
    let read = File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(1 << 20).read_to_end(&mut text));
    if read.is_err() {
        return NonceMark::Absent;
    }
    mark_in(&text, nonce)
}

fn mark_in(environ: &[u8], nonce: &str) -> NonceMark {
    let value = environ.split(|byte| *byte == 0).find_map(|entry| {
        entry
            .strip_prefix(NONCE_VARIABLE.as_bytes())
            .and_then(|v| v.strip_prefix(b"="))
    });
    match value {
        Some(value) if value == nonce.as_bytes() => NonceMark::Match,
        Some(_) => NonceMark::Other,
        None => NonceMark::Absent,
    }
}

/// Wall time.
#[must_use]
pub fn now() -> UtcMicros {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    UtcMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = "77 (a) b (c) S 5 6 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2 3";
        let parsed = parse_stat(line).unwrap();
        assert_eq!(
            parsed.process,
            ProcessRef {
                pid: 77,
                start_ticks: 98765
            }
        );
        assert_eq!((parsed.ppid, parsed.pgid, parsed.sid), (5, 6, 7));
        assert_eq!(parsed.name, "a) b (c");
        assert_eq!(parse_stat("77 (a) S 1"), None);
    }

    #[test]
    fn this_process_is_alive_and_a_different_start_is_not() {
        let me = reference(std::process::id()).unwrap();
        assert!(is_alive(me));
        assert!(!is_alive(ProcessRef {
            start_ticks: me.start_ticks + 1,
            ..me
        }));
    }

    #[test]
    fn marks_are_whole_entries() {
        let environ = b"XKOI_NONCE=aa\0KOI_NONCE=abcd\0";
        assert_eq!(mark_in(environ, "abcd"), NonceMark::Match);
        assert_eq!(mark_in(environ, "abc"), NonceMark::Other);
        assert_eq!(mark_in(b"XKOI_NONCE=aa\0", "aa"), NonceMark::Absent);
    }
}
