//! The engine's output: a file it appends to itself, turned over by size.
//!
//! A file and not a pipe: output survives the shim, and an engine never blocks on a dead reader.
//! The engine keeps its descriptor, so turning over means copying to `.1` and cutting the file to
//! nothing; the append flag makes the next write start at 0. Lines written between the copy and
//! the cut are lost, which a bounded log accepts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The current log file and its bound.
#[derive(Debug)]
pub struct LogRing {
    file: File,
    path: PathBuf,
    max_bytes: u64,
    rotations: u32,
    last_bytes: u64,
}

impl LogRing {
    /// Opens or creates the file for appending.
    ///
    /// # Errors
    /// When it cannot be opened or is a link.
    pub fn open(path: &Path, max_bytes: u64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NOCTTY).bits() as i32)
            .open(path)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            max_bytes,
            rotations: 0,
            last_bytes: 0,
        })
    }

    /// A descriptor for the engine's output.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn writer(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Looks at the size and turns over when it is past the bound; true when the file grew.
    ///
    /// # Errors
    /// When the file cannot be cut. A failed copy only loses old lines.
    pub fn tend(&mut self) -> io::Result<bool> {
        let bytes = self.file.metadata()?.len();
        let grew = bytes != self.last_bytes;
        self.last_bytes = bytes;
        if bytes > self.max_bytes {
            // A full disk must not stop the cut: it is what frees space.
            drop(self.keep_tail(bytes));
            self.file.set_len(0)?;
            self.rotations += 1;
            self.last_bytes = 0;
        }
        Ok(grew)
    }

    fn keep_tail(&self, bytes: u64) -> io::Result<()> {
        let beside = |suffix: &str| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let mut from = File::open(&self.path)?;
        from.seek(SeekFrom::Start(bytes.saturating_sub(self.max_bytes)))?;
        let mut to = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(beside(".1.new"))?;
        io::copy(&mut from.take(self.max_bytes), &mut to)?;
        fs::rename(beside(".1.new"), beside(".1"))
    }

    /// Size at the last look, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.last_bytes
    }

    /// How often the file was turned over.
    #[must_use]
    pub fn rotations(&self) -> u32 {
        self.rotations
    }
}
