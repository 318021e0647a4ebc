//! The control-plane server: the only writer of Postgres. Decisions are koi-core's; this crate
//! decodes, applies and sends.

pub mod agents;
pub mod api;
pub mod auth;
pub mod config;
pub mod core_loop;
pub mod endpoints;
pub mod observability;
pub mod postgres;
pub mod pulse;
pub mod serve;
pub mod store;
pub mod tick;
