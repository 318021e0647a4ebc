//! The integration tests: one binary, one link. A test of whole processes or of the repository is a
//! module here; a test of one crate's functions stays in that crate.

// Modules in alphabetical order; each names what it covers in its first line. `cfg(test)` makes helper
// functions count as test code for the lints.
#[cfg(test)]
mod agents;
#[cfg(test)]
mod chaos;
#[cfg(test)]
mod real_vllm;
#[cfg(test)]
mod store;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tidy;
