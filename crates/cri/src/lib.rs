//! The Container Runtime Interface: generated types, the table of methods, partial decoders, status codes and redaction, and
//! the record of a [`call`]. No I/O.

pub mod annotations;
pub mod call;
mod configs;
pub mod container_request;
pub mod error_chain;
pub mod identity;
pub mod image_pattern;
pub mod lists;
pub mod method;
mod names;
pub mod peek;
mod readable;
pub mod redact;
pub mod secrets;
pub mod status;
pub mod subject;
pub mod units;
pub mod visible;
mod words;

pub use method::Method;
pub use names::{Named, NamedSet};

/// The messages and services of CRI v1, generated from `proto/api.proto`. They have no `Debug`: printing one would
/// print secrets.
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    clippy::all
)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// The descriptor set of `proto/api.proto`, options included, as protox wrote it.
pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));
