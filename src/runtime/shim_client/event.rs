//! What the daemon hears of a shim without having asked.

use criscope_shim::protocol::{Exit, Oom};

/// What the daemon hears of a shim without having asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process ended; its record is on disk.
    Exit(Exit),
    /// The kernel killed for want of memory.
    Oom(Oom),
    /// The init of the pod's PID namespace has ended, and everything in it.
    PidNamespaceEnded,
    /// A message that cannot be read: whatever it said, the state has it.
    Unreadable(Unreadable),
}

/// What could not be read, in the order of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// An event of a kind that this daemon does not know.
    UnknownEvent,
    /// A damaged event.
    Event,
    /// An answer, unknown or damaged: the request fails.
    Answer,
    /// A frame of which not even the number can be read.
    Frame,
    /// A request, by the shim.
    Request,
}

impl Unreadable {
    /// Every value.
    pub const ALL: [Self; 5] = [
        Self::UnknownEvent,
        Self::Event,
        Self::Answer,
        Self::Frame,
        Self::Request,
    ];

    /// As metrics and the log have it.
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
