//! Where tests find vectors and data that live outside the repository.

/// A path in the shared folder, or `None` with a loud line.
#[expect(
    clippy::disallowed_methods,
    reason = "vectors and data live outside the repository"
)]
pub(crate) fn shared(path: &str) -> Option<std::path::PathBuf> {
    let mut roots: Vec<std::path::PathBuf> = std::env::var("KOI_SHARED")
        .map(Into::into)
        .into_iter()
        .collect();
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    roots.extend(here.ancestors().map(|p| p.join("shared")));
    let found = roots
        .iter()
        .map(|root| root.join(path))
        .find(|p| p.exists());
    if found.is_none() {
        eprintln!("SKIPPED: no shared/{path} above {}", here.display());
    }
    found
}

/// The text of a file there.
#[expect(
    clippy::disallowed_methods,
    reason = "vectors and data live outside the repository"
)]
pub(crate) fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
