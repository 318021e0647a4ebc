//! One segment: a header, then records `length · checksum · seq · payload`, on disk or in memory.
//!
//! The checksum covers length, seq and payload, so a flipped bit anywhere ends the segment there
//! and never yields a wrong record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"KOISPL1\n";
const EXTENSION: &str = "seg";
/// Length, checksum and seq of a record.
pub(super) const RECORD_HEADER_BYTES: u64 = 16;
/// Magic, first seq, boot and checksum.
pub(super) const HEADER_BYTES_MAX: u64 = 8 + 8 + 1 + 64 + 4;

#[derive(Debug)]
enum Store {
    Disk { file: File, path: PathBuf },
    Memory(Vec<u8>),
}

/// One segment.
#[derive(Debug)]
pub(super) struct Segment {
    index: u64,
    boot: String,
    first_seq: u64,
    next_seq: u64,
    header_bytes: u64,
    bytes: u64,
    closed: bool,
    dirty: bool,
    store: Store,
}

/// One step of reading.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A record, and where the next one begins.
    Record {
        seq: u64,
        payload: Vec<u8>,
        next: u64,
    },
    /// Nothing more so far.
    End,
    /// What follows is not a whole, unchanged record.
    Damaged,
}

/// Index of a segment file by its name.
pub(super) fn index_of(path: &Path) -> Option<u64> {
    if path.extension()? != EXTENSION {
        return None;
    }
    u64::from_str_radix(path.file_stem()?.to_str()?.split('.').next()?, 16).ok()
}

/// Boot and first seq of a segment file by its name.
pub(super) fn name_of(path: &Path) -> Option<(String, u64)> {
    let mut parts = path.file_stem()?.to_str()?.split('.').skip(1);
    Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?))
}

impl Segment {
    /// A new segment on disk.
    pub(super) fn create(
        folder: &Path,
        index: u64,
        boot: &str,
        first_seq: u64,
    ) -> io::Result<Self> {
        let path = folder.join(format!("{index:016x}.{boot}.{first_seq}.{EXTENSION}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        let header = header(boot, first_seq);
        if let Err(error) = file
            .write_all_at(&header, 0)
            .and_then(|()| sync_folder(folder))
        {
            drop(fs::remove_file(&path));
            return Err(error);
        }
        Ok(Self::new(
            index,
            boot,
            first_seq,
            header.len(),
            Store::Disk { file, path },
        ))
    }

    /// A new segment in memory.
    pub(super) fn in_memory(index: u64, boot: &str, first_seq: u64) -> Self {
        let header = header(boot, first_seq);
        Self::new(index, boot, first_seq, header.len(), Store::Memory(header))
    }

    fn new(index: u64, boot: &str, first_seq: u64, header_bytes: usize, store: Store) -> Self {
        Self {
            index,
            boot: boot.to_owned(),
            first_seq,
            next_seq: first_seq,
            header_bytes: header_bytes as u64,
            bytes: header_bytes as u64,
            closed: false,
            dirty: true,
            store,
        }
    }

    /// Takes in a segment of an earlier start, up to the first damage; true when there is one.
    pub(super) fn load(index: u64, path: &Path, max_bytes: u64) -> io::Result<(Self, bool)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        let mut content = Vec::new();
        (&file).take(max_bytes + 1).read_to_end(&mut content)?;
        let (boot, first_seq, header_bytes) =
            parse_header(&content).ok_or_else(|| io::Error::other("not a segment"))?;
        let mut segment = Self::new(
            index,
            &boot,
            first_seq,
            header_bytes,
            Store::Disk {
                file,
                path: path.to_owned(),
            },
        );
        let mut at = header_bytes;
        while let Some((seq, payload)) = parse_record(&content[at..]) {
            if seq != segment.next_seq {
                break;
            }
            segment.next_seq += 1;
            at += RECORD_HEADER_BYTES as usize + payload.len();
        }
        segment.bytes = at as u64;
        segment.closed = true;
        segment.dirty = false;
        Ok((segment, at < content.len()))
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn boot(&self) -> &str {
        &self.boot
    }

    pub(super) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next_seq == self.first_seq
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(super) fn is_memory(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    /// Adds a record; after a failure the segment ends before it.
    pub(super) fn append(&mut self, seq: u64, payload: &[u8]) -> io::Result<()> {
        let record = record(seq, payload);
        match &mut self.store {
            Store::Memory(content) => content.extend_from_slice(&record),
            Store::Disk { file, .. } => {
                if let Err(error) = file.write_all_at(&record, self.bytes) {
                    // A torn record would be told by its checksum as well.
                    drop(file.set_len(self.bytes));
                    return Err(error);
                }
            }
        }
        self.bytes += record.len() as u64;
        self.next_seq = seq + 1;
        self.dirty = true;
        Ok(())
    }

    /// Reads the record at an offset; 0 stands for the first.
    pub(super) fn read(&self, offset: u64) -> Step {
        let offset = offset.max(self.header_bytes);
        if offset >= self.bytes {
            return Step::End;
        }
        let Ok(content) = self.content(offset) else {
            return Step::Damaged;
        };
        match parse_record(&content) {
            Some((seq, payload)) => Step::Record {
                seq,
                next: offset + RECORD_HEADER_BYTES + payload.len() as u64,
                payload: payload.to_vec(),
            },
            None => Step::Damaged,
        }
    }

    /// The bytes of the record at `offset`, by its own length, never past the segment's end.
    fn content(&self, offset: u64) -> io::Result<Vec<u8>> {
        let left = self.bytes - offset;
        let mut length = [0u8; 4];
        self.read_exact(&mut length, offset)?;
        let wanted = (RECORD_HEADER_BYTES + u64::from(u32::from_le_bytes(length))).min(left);
        let mut content = vec![0u8; wanted as usize];
        self.read_exact(&mut content, offset)?;
        Ok(content)
    }

    fn read_exact(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.store {
            Store::Disk { file, .. } => file.read_exact_at(into, offset),
            Store::Memory(content) => {
                let from = offset as usize;
                let part = content.get(from..from + into.len());
                into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }

    /// Ends the segment at an offset; returns the seq of the first record that is lost.
    pub(super) fn cut(&mut self, offset: u64) -> u64 {
        let end = offset.max(self.header_bytes);
        let mut at = 0;
        let mut next_seq = self.first_seq;
        while let Step::Record { seq, next, .. } = self.read(at) {
            if next > end {
                break;
            }
            next_seq = seq + 1;
            at = next;
        }
        self.bytes = end;
        self.next_seq = next_seq;
        next_seq
    }

    /// Makes everything durable and takes no more records.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.closed = true;
        self.sync()
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        if let (true, Store::Disk { file, .. }) = (self.dirty, &self.store) {
            file.sync_data()?;
        }
        self.dirty = false;
        Ok(())
    }

    /// Removes the file, if there is one.
    pub(super) fn delete(&self) -> io::Result<()> {
        match &self.store {
            Store::Disk { path, .. } => fs::remove_file(path),
            Store::Memory(_) => Ok(()),
        }
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn header(boot: &str, first_seq: u64) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend(first_seq.to_le_bytes());
    header.push(boot.len() as u8);
    header.extend(boot.as_bytes());
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header
}

fn parse_header(content: &[u8]) -> Option<(String, u64, usize)> {
    let boot_bytes = usize::from(*content.get(16)?);
    let end = 17 + boot_bytes;
    let checksum = u32::from_le_bytes(content.get(end..end + 4)?.try_into().ok()?);
    if content.get(..8)? != MAGIC || crc32fast::hash(&content[..end]) != checksum {
        return None;
    }
    let first_seq = u64::from_le_bytes(content[8..16].try_into().ok()?);
    let boot = String::from_utf8(content[17..end].to_vec()).ok()?;
    Some((boot, first_seq, end + 4))
}

fn checksum(length: [u8; 4], seq: [u8; 8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(&seq);
    hasher.update(payload);
    hasher.finalize()
}

fn record(seq: u64, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let seq = seq.to_le_bytes();
    let mut record = Vec::with_capacity(payload.len() + RECORD_HEADER_BYTES as usize);
    record.extend(length);
    record.extend(checksum(length, seq, payload).to_le_bytes());
    record.extend(seq);
    record.extend(payload);
    record
}

fn parse_record(content: &[u8]) -> Option<(u64, &[u8])> {
    let length: [u8; 4] = content.get(..4)?.try_into().ok()?;
    let expected = u32::from_le_bytes(content.get(4..8)?.try_into().ok()?);
    let seq: [u8; 8] = content.get(8..16)?.try_into().ok()?;
    let end = 16usize.checked_add(u32::from_le_bytes(length) as usize)?;
    let payload = content.get(16..end)?;
    (checksum(length, seq, payload) == expected).then(|| (u64::from_le_bytes(seq), payload))
}
