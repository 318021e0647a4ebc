//! The gRPC API: decode, ask the core or the store, encode. No decisions here.

pub mod admin;
pub mod beliefs;
pub mod contrasts;
pub mod encode;
mod explain;
pub mod fleet;
pub mod idempotency;
mod job_view;
pub mod jobs;
mod mechanisms;
pub mod paging;
pub mod performance;
pub mod plans;
mod prices;
mod slow;
pub mod status;
pub mod ticks;
