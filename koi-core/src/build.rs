//! The build id that every Koi binary carries. Binaries of one cluster must agree on it.

/// Version and content hash of the build; the version alone when no hash was given to the compiler.
pub const BUILD_ID: &str = match option_env!("KOI_BUILD_HASH") {
    Some(hash) if !hash.is_empty() => hash,
    Some(_) | None => env!("CARGO_PKG_VERSION"),
};
