//! Placeholder while the crate is being laid out.
pub mod mem_store;
