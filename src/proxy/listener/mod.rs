//! The CRI socket: binds it, identifies callers, serves each connection, and drains at shutdown.

mod authority;
mod batched;
pub(crate) mod metrics;
pub mod peer;
pub mod serve;
pub mod settings;
pub mod socket;

pub use serve::serve;
pub use socket::{BoundSocket, SocketBindError, SocketFile};
