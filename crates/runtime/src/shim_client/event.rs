//! Events of the shim.

use criscope_shim::protocol::{Exit, Oom};

/// An event of the shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process has exited; its exit record is on disk.
    Exit(Exit),
    /// An OOM kill.
    Oom(Oom),
    /// The init of the pod's PID namespace has exited, and with it all processes in it.
    PidNamespaceEnded,
    /// A message that cannot be decoded. What it reported is in the state of the shim.
    Unreadable(Unreadable),
}

criscope_cri::named! {
    /// The kind of a message that could not be decoded, in the order of the metrics catalogue.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unreadable {
        /// An event of a kind that this daemon does not know.
        UnknownEvent = "unknown_event",
        /// A damaged event.
        Event = "event",
        /// An unknown or damaged response: the request fails.
        Answer = "answer",
        /// A frame whose number cannot be decoded.
        Frame = "frame",
        /// A request that the shim could not decode.
        Request = "request",
    }
}
