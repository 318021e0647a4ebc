//! The control-plane server: the only writer of Postgres.

pub mod postgres;
pub mod store;
