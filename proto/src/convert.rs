//! Wire and domain, one file per noun.

pub mod job;
