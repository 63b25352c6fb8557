//! The CRI socket: binds it, says who calls, serves each connection, and drains at the end.

mod authority;
mod counted;
pub(crate) mod metrics;
pub mod peer;
pub mod serve;
pub mod settings;
pub mod socket;

pub use serve::serve;
pub use socket::{Error, Socket};
