//! The life of a mechanism: seed, propose, learn, persist, promote. White paper V1, Appendix D;
//! spec §5.
//!
//! One gate admits seeds and proposals alike; learning itself is [`crate::causal::fan_out()`].

mod admit;
pub mod record;
pub mod review;

pub use admit::{Origin, admit, twin};
pub use record::{MechanismRecord, PROPOSALS_MAX, StoredModel, with_records};
pub use review::{MechanismTrack, Review, review};

#[cfg(test)]
mod tests;
