//! The few system calls without a safe wrapper: fork, the signal mask, signalfd.
//!
//! Everything here runs while the process has one thread.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::ShimError;
use crate::files::SHIM_LOG_FILE;

/// Word that the daemon sends when it serves.
const READY: &[u8] = b"ready";

/// The daemon's end of the line to the process that started it.
#[derive(Debug)]
pub(crate) struct ReadyLine(File);

impl ReadyLine {
    /// Says that the shim serves; the starting process then exits with 0.
    pub(crate) fn serving(mut self) {
        // A starter that is gone needs no answer.
        drop(self.0.write_all(READY));
    }

    /// Says why the shim does not serve.
    pub(crate) fn failed(mut self, error: &ShimError) {
        drop(self.0.write_all(error.to_string().as_bytes()));
    }
}

/// Closes what a careless parent left open, so that the engine cannot hold it.
pub(crate) fn close_inherited_files() {
    // SAFETY: called first in main, before this program owns any descriptor above 2.
    #[expect(unsafe_code, reason = "close_range has no safe wrapper")]
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

/// Forks; the child gets a session of its own and returns the line to report on. The parent waits
/// for the report and returns `None` when the child serves.
pub(crate) fn daemonize(state_dir: &Path) -> Result<Option<ReadyLine>, ShimError> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).map_err(ShimError::system("pipe"))?;
    // SAFETY: the process has one thread, so the child may go on using std freely.
    #[expect(unsafe_code, reason = "fork has no safe wrapper")]
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(ShimError::System {
            call: "fork",
            source: std::io::Error::last_os_error(),
        });
    }
    if child > 0 {
        drop(writer);
        return wait_for_report(reader).map(|()| None);
    }
    drop(reader);
    let line = ReadyLine(File::from(writer));
    match become_daemon(state_dir) {
        Ok(()) => Ok(Some(line)),
        Err(error) => {
            line.failed(&error);
            Err(error)
        }
    }
}

fn wait_for_report(reader: OwnedFd) -> Result<(), ShimError> {
    let mut report = Vec::new();
    let read = File::from(reader).take(16 * 1024).read_to_end(&mut report);
    match read {
        Ok(_) if report == READY => Ok(()),
        Ok(0) => Err(ShimError::NotReady("it died before it reported".to_owned())),
        Ok(_) => Err(ShimError::NotReady(
            String::from_utf8_lossy(&report).into_owned(),
        )),
        Err(error) => Err(ShimError::NotReady(error.to_string())),
    }
}

fn become_daemon(state_dir: &Path) -> Result<(), ShimError> {
    rustix::process::setsid().map_err(ShimError::system("setsid"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(ShimError::system("prctl(PR_SET_CHILD_SUBREAPER)"))?;
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let open = |path: &Path, write: bool| {
        OpenOptions::new()
            .read(!write)
            .append(write)
            .create(write)
            .mode(0o600)
            .custom_flags(libc::O_NOCTTY | libc::O_NOFOLLOW)
            .open(path)
            .map_err(|source| ShimError::File {
                path: path.to_owned(),
                source,
            })
    };
    let null = open(Path::new("/dev/null"), false)?;
    let log = open(&state_dir.join(SHIM_LOG_FILE), true)?;
    rustix::stdio::dup2_stdin(&null).map_err(ShimError::system("dup2"))?;
    rustix::stdio::dup2_stdout(&log).map_err(ShimError::system("dup2"))?;
    rustix::stdio::dup2_stderr(&log).map_err(ShimError::system("dup2"))
}

/// Signals that arrive as readable bytes instead of interrupting.
#[derive(Debug)]
pub(crate) struct SignalFile(File);

/// A signal that concerns the shim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShimSignal {
    /// A child changed its state.
    Child,
    /// Somebody wants the replica to end.
    Terminate,
    /// To be survived.
    Other,
}

impl SignalFile {
    /// Blocks the signals and opens the file they arrive on.
    pub(crate) fn open() -> Result<Self, ShimError> {
        let failed = |call| ShimError::System {
            call,
            source: std::io::Error::last_os_error(),
        };
        // SAFETY: the set is initialised by sigemptyset before use, the returned descriptor is
        // owned by nobody else, and there is one thread whose mask changes.
        #[expect(unsafe_code, reason = "signalfd has no safe wrapper")]
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            for signal in [
                libc::SIGCHLD,
                libc::SIGTERM,
                libc::SIGINT,
                libc::SIGHUP,
                libc::SIGPIPE,
            ] {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(failed("sigprocmask"));
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(failed("signalfd"));
            }
            Ok(Self(File::from_raw_fd(fd)))
        }
    }

    /// Signals that arrived since the last look.
    pub(crate) fn take(&mut self) -> Vec<ShimSignal> {
        const RECORD: usize = size_of::<libc::signalfd_siginfo>();
        let mut taken = Vec::new();
        let mut record = [0u8; RECORD];
        while taken.len() < 64 && self.0.read(&mut record).is_ok_and(|n| n == RECORD) {
            let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            taken.push(match number {
                libc::SIGCHLD => ShimSignal::Child,
                libc::SIGTERM => ShimSignal::Terminate,
                _ => ShimSignal::Other,
            });
        }
        taken
    }
}

impl AsFd for SignalFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for SignalFile {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.0.as_raw_fd()
    }
}

/// Gives the engine an empty signal mask instead of the shim's.
pub(crate) fn unblock_signals_in(command: &mut Command) {
    let empty_mask = || {
        // SAFETY: sigemptyset and sigprocmask are async-signal-safe; nothing is allocated.
        #[expect(unsafe_code, reason = "the mask must be set between fork and exec")]
        let failed = unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) != 0
        };
        if failed {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: the closure calls only async-signal-safe functions.
    #[expect(
        unsafe_code,
        reason = "pre_exec is the only hook between fork and exec"
    )]
    unsafe {
        command.pre_exec(empty_mask);
    }
}
