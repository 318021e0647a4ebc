//! One integration binary.

mod store;
mod support;
