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

/// The kind of a message that could not be decoded, in the order of the metrics catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// An event of a kind that this daemon does not know.
    UnknownEvent,
    /// A damaged event.
    Event,
    /// An unknown or damaged response: the request fails.
    Answer,
    /// A frame whose number cannot be decoded.
    Frame,
    /// A request that the shim could not decode.
    Request,
}

impl Unreadable {
    /// All values.
    pub const ALL: [Self; 5] = [
        Self::UnknownEvent,
        Self::Event,
        Self::Answer,
        Self::Frame,
        Self::Request,
    ];

    /// The name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownEvent => "unknown_event",
            Self::Event => "event",
            Self::Answer => "answer",
            Self::Frame => "frame",
            Self::Request => "request",
        }
    }
}
