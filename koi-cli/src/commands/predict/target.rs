//! Where a table goes: standard output, a file that is whole or not there, or whatever else the path
//! leads to, such as a pipe or a device, which is written to and never replaced.

use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::failure::{ExitCode, Failure};

/// A place that was looked at before any work.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Standard output.
    Stdout,
    /// A regular file, or none yet; links are followed.
    File(PathBuf),
    /// A pipe, a device, a socket.
    Stream(PathBuf),
}

impl Target {
    /// The place that a path means.
    ///
    /// # Errors
    /// The table that is read, a folder, a link to nothing.
    pub(super) fn of(input: &Path, output: &Path) -> Result<Self, Failure> {
        if output == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let refuse = |why: &str| {
            let message = format!("--out {}: {why}", output.display());
            Failure::new(ExitCode::Invalid, message)
        };
        let Ok(found) = std::fs::metadata(output) else {
            if output.is_symlink() {
                return Err(refuse("is a link to nothing"));
            }
            return Ok(Self::File(output.to_owned()));
        };
        let is_input = std::fs::metadata(input)
            .is_ok_and(|i| (i.dev(), i.ino()) == (found.dev(), found.ino()));
        if is_input {
            return Err(refuse("is the table that --batch reads"));
        }
        if found.is_dir() {
            return Err(refuse("is a folder"));
        }
        if !found.is_file() {
            return Ok(Self::Stream(output.to_owned()));
        }
        let real = std::fs::canonicalize(output).map_err(|e| refuse(&e.to_string()))?;
        Ok(Self::File(real))
    }

    /// Writes; a half-written table must not pass for a whole one.
    ///
    /// # Errors
    /// When the place cannot be written; a file that was there is as it was.
    pub(super) fn put(
        &self,
        write: impl FnOnce(Box<dyn Write>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Stdout => write(Box::new(std::io::stdout().lock())),
            Self::Stream(path) => {
                let file = std::fs::OpenOptions::new().write(true).open(path);
                let file = file.with_context(|| format!("write to {}", path.display()))?;
                write(Box::new(BufWriter::new(file)))
            }
            Self::File(path) => put_file(path, write),
        }
    }
}

fn put_file(
    path: &Path,
    write: impl FnOnce(Box<dyn Write>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.new", std::process::id()));
    let create = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary);
    let file = create.with_context(|| format!("create {}", temporary.display()))?;
    let done = write(Box::new(BufWriter::new(file))).and_then(|()| {
        if let Ok(old) = std::fs::metadata(path) {
            std::fs::set_permissions(&temporary, old.permissions())?;
        }
        std::fs::rename(&temporary, path)
            .with_context(|| format!("put {} in place", path.display()))
    });
    if done.is_err() {
        // Nothing is known of it that is worth a second error.
        std::fs::remove_file(&temporary).ok();
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("koi-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn put(target: &Target, text: &'static str) -> anyhow::Result<()> {
        target.put(move |mut to| Ok(to.write_all(text.as_bytes())?))
    }

    #[test]
    fn the_input_is_never_the_output_by_whatever_name() {
        let folder = Folder::new("target-input");
        let input = folder.file("in.csv", "data");
        let link = folder.0.join("link.csv");
        std::os::unix::fs::symlink(&input, &link).unwrap();
        let hard = folder.0.join("hard.csv");
        std::fs::hard_link(&input, &hard).unwrap();
        for output in [&input, &link, &hard, &folder.0.join("./in.csv")] {
            let failure = Target::of(&input, output).unwrap_err();
            assert_eq!(failure.code, ExitCode::Invalid);
        }
        assert!(Target::of(&input, &folder.0).is_err(), "a folder");
        let nothing = folder.0.join("nothing.csv");
        std::os::unix::fs::symlink(folder.0.join("absent/x"), &nothing).unwrap();
        assert!(Target::of(&input, &nothing).is_err());
        assert_eq!(std::fs::read_to_string(input).unwrap(), "data");
    }

    #[test]
    fn devices_and_pipes_stay_what_they_are() {
        let null = Path::new("/dev/null");
        let target = Target::of(Path::new("in.csv"), null).unwrap();
        assert_eq!(target, Target::Stream(null.to_owned()));
        put(&target, "x").unwrap();
        use std::os::unix::fs::FileTypeExt as _;
        let kind = std::fs::symlink_metadata(null).unwrap().file_type();
        assert!(kind.is_char_device());
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_link_leads_to_it() {
        let folder = Folder::new("target-file");
        let input = folder.file("in.csv", "data");
        let real = folder.file("real.csv", "old");
        let users = folder.file("link.csv.new", "of the user");
        let link = folder.0.join("link.csv");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let target = Target::of(&input, &link).unwrap();
        let failed = target.put(|_| anyhow::bail!("no"));
        assert!(failed.is_err());
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "old");
        put(&target, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(users).unwrap(), "of the user");
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 4);
    }
}
