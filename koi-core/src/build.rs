//! The build id that every Koi binary carries. Binaries of one cluster must agree on it.

/// Version and hash of the sources that all binaries share: core, wire and catalog.
pub const BUILD_ID: &str = env!("KOI_BUILD_ID");
