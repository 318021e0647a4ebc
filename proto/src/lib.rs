//! The wire: generated messages and services of `koi.v1`, and nothing that decides.
//!
//! Conversions between wire and domain live in `convert/<noun>.rs`: senders convert with `From`,
//! receivers with a fallible function that names the field.

pub mod convert;

/// Generated code of package `koi.v1`.
#[expect(
    missing_docs,
    clippy::all,
    clippy::too_many_lines,
    clippy::missing_errors_doc,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("koi.v1");
}

/// Encoded descriptor set of every service, for reflection.
pub const DESCRIPTORS: &[u8] = tonic::include_file_descriptor_set!("koi_descriptor");
