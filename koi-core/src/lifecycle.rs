//! The life of a mechanism: seed, propose, learn, promote. White paper V1, Appendix D; spec §5.
//!
//! One gate admits seeds and proposals alike; learning itself is [`crate::causal::fan_out()`].

mod admit;

pub use admit::{Origin, admit};

#[cfg(test)]
mod tests;
