//! The messages for statistics of containers that a shim of containerd runs.

use prost::Message;

/// Query the resource usage of a container that a shim of containerd runs. If that shim does not report any, this fails with
/// [`UNIMPLEMENTED`](super::UNIMPLEMENTED).
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stats {
    /// The container.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Timeout in milliseconds.
    #[prost(uint32, tag = "2")]
    pub timeout_ms: u32,
}

/// The resource usage of a container as the shim of containerd reported it, a `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Metrics {
    /// The type of the message; empty if nothing was reported.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// The encoded message, usually `io.containerd.cgroups.v1.Metrics` or `io.containerd.cgroups.v2.Metrics`.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}
