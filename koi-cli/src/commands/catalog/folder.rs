//! A catalog's texts from a folder, within bounds, or those compiled in.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use koi_core::catalog::CatalogText;
use koi_core::catalog::price::PriceBook;
use koi_core::violation::FieldViolation;

use crate::failure::{ExitCode, Failure};

/// Most bytes of one file.
const MAX_BYTES: u64 = 1024 * 1024;
/// Most files of one folder.
const MAX_FILES: usize = 256;

/// Texts by path below the folder.
pub(super) struct Folder {
    /// What to call it.
    pub(super) name: String,
    catalog: Vec<(String, String)>,
    /// Absent: the list prices compiled in.
    prices: Option<Vec<(String, String)>>,
}

impl Folder {
    /// Reads a folder: one shaped like `configs/catalog`, or one that holds `catalog` and perhaps
    /// `prices`.
    pub(super) fn read(dir: Option<&Path>) -> anyhow::Result<Self> {
        let Some(dir) = dir else {
            let files = CatalogText::embedded();
            let files = files.files().map(|(p, t)| (p.to_owned(), t.to_owned()));
            return Ok(Self {
                name: "the embedded catalog".to_owned(),
                catalog: files.collect(),
                prices: None,
            });
        };
        if !dir.is_dir() {
            let (code, what) = if dir.exists() {
                (ExitCode::Invalid, "is not a folder")
            } else {
                (ExitCode::NotFound, "no such folder")
            };
            let message = format!("{}: {what}", dir.display());
            return Err(Failure::new(code, message).into());
        }
        let inner = dir.join("catalog");
        let (catalog, prices) = if inner.is_dir() {
            (inner, Some(dir.join("prices")).filter(|p| p.is_dir()))
        } else {
            (dir.to_owned(), None)
        };
        Ok(Self {
            name: dir.display().to_string(),
            catalog: read_all(&catalog)?,
            prices: prices.as_deref().map(read_all).transpose()?,
        })
    }

    /// The texts of the catalog.
    pub(super) fn text(&self) -> CatalogText<'_> {
        CatalogText::new(self.catalog.iter().map(|(p, t)| (p.as_str(), t.as_str())))
    }

    /// The list prices.
    pub(super) fn prices(&self) -> Result<PriceBook, Vec<FieldViolation>> {
        self.prices.as_ref().map_or_else(
            || Ok(PriceBook::embedded().clone()),
            |files| PriceBook::load(files.iter().map(|(p, t)| (p.as_str(), t.as_str()))),
        )
    }
}

/// Every `.toml` file of a folder and of the folders in it.
fn read_all(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for (name, path) in entries(dir)? {
        if path.is_dir() {
            for (inner, path) in entries(&path)? {
                add(&mut files, format!("{name}/{inner}"), &path)?;
            }
        } else {
            add(&mut files, name, &path)?;
        }
    }
    Ok(files)
}

fn entries(dir: &Path) -> anyhow::Result<Vec<(String, std::path::PathBuf)>> {
    let listing = std::fs::read_dir(dir).map_err(|e| Failure::unreadable(dir, &e))?;
    let mut found = Vec::new();
    for entry in listing.take(4 * MAX_FILES) {
        let entry = entry.with_context(|| format!("list {}", dir.display()))?;
        found.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.path(),
        ));
    }
    found.sort();
    Ok(found)
}

fn add(files: &mut Vec<(String, String)>, name: String, path: &Path) -> anyhow::Result<()> {
    let is_toml = path.extension().is_some_and(|e| e == "toml");
    if !is_toml || !path.is_file() {
        return Ok(());
    }
    if files.len() >= MAX_FILES {
        let message = format!("more than {MAX_FILES} files");
        return Err(Failure::new(ExitCode::Invalid, message).into());
    }
    files.push((name, read_bounded(path)?));
    Ok(())
}

/// A text file of at most 1 MiB.
pub(super) fn read_bounded(path: &Path) -> anyhow::Result<String> {
    let unreadable = |e: std::io::Error| Failure::unreadable(path, &e);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("{} is larger than {MAX_BYTES} bytes", path.display());
        return Err(Failure::new(ExitCode::Invalid, message).into());
    }
    Ok(text)
}
