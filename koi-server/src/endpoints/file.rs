//! The file of one job's endpoints: written whole, and written over where there is no room for more.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use koi_core::rollout::EndpointSet;

pub(super) fn file_of(dir: &Path, job: &str) -> PathBuf {
    dir.join(format!("{job}.json"))
}

pub(super) fn text_of(set: &EndpointSet) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(set)?)
}

/// Whether a file holds exactly this; no more than that is read of it.
pub(super) fn holds(path: &Path, text: &[u8]) -> io::Result<bool> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_file() || metadata.len() != text.len() as u64 {
        return Ok(false);
    }
    let mut content = Vec::with_capacity(text.len() + 1);
    fs::File::open(path)?
        .take(text.len() as u64 + 1)
        .read_to_end(&mut content)?;
    Ok(content == text)
}

/// Puts a set's file in place whole: beside it first, then renamed over it. Where no room is left for a
/// second file the first one is written over, so that what is gone does not stay published.
pub(super) fn write(dir: &Path, set: &EndpointSet) -> io::Result<()> {
    // The folder may have been removed as well.
    fs::create_dir_all(dir)?;
    let (text, target) = (text_of(set)?, file_of(dir, &set.job));
    let temporary = dir.join(format!(".{}.json.new", set.job));
    let written = fs::write(&temporary, &text).and_then(|()| fs::rename(&temporary, &target));
    let Err(error) = written else { return Ok(()) };
    // What is left of it takes up room; it is made anew with the next try.
    fs::remove_file(&temporary).ok();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => write_over(&target, &text),
        _ => Err(error),
    }
}

/// Writes over a file without asking for room that it does not have. Whoever reads meanwhile finds the
/// old text or the new one with blanks behind it, both of which are documents.
fn write_over(target: &Path, text: &[u8]) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(target)?;
    let old = file.metadata()?.len();
    let new = text.len() as u64;
    let more = usize::try_from(new.saturating_sub(old)).unwrap_or(usize::MAX);
    if let Err(error) = file.write_all_at(&vec![b' '; more], old) {
        file.set_len(old)?;
        return Err(error);
    }
    let blanks = usize::try_from(old.saturating_sub(new)).unwrap_or(0);
    let padded = [text, &vec![b' '; blanks]].concat();
    file.write_all_at(&padded, 0)?;
    file.set_len(new)
}

pub(super) fn remove(dir: &Path, job: &str) -> io::Result<()> {
    match fs::remove_file(file_of(dir, job)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_over_whether_the_new_text_is_shorter_or_longer() {
        let name = format!("koi-endpoints-over-{}", std::process::id());
        let target = std::env::temp_dir().join(name);
        fs::write(&target, "0123456789").unwrap();
        for text in ["[1]", "[1, 2, 3, 4, 5, 6]", "[2, 2, 3, 4, 5, 6]"] {
            write_over(&target, text.as_bytes()).unwrap();
            assert!(holds(&target, text.as_bytes()).unwrap(), "{text}");
        }
        fs::remove_file(&target).unwrap();
        assert!(write_over(&target, b"[]").is_err(), "nothing to write over");
        assert!(!target.exists());
    }
}
