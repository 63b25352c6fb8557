//! The limits of a connection, which bound its memory and its time.

use std::time::Duration;

/// Limits of one connection.
#[derive(Clone, Copy, Debug)]
pub struct SpdyLimits {
    /// Concurrent streams: streams that have not ended, or with a half that is still in use. More are refused.
    pub streams: usize,
    /// Unread bytes of all streams, including pieces that readers have taken. One read, of at most 64 KiB, may exceed it.
    pub unread: usize,
    /// Bytes per stream that wait to be sent.
    pub unsent: usize,
    /// Bytes of all streams that wait to be sent.
    pub unsent_all: usize,
    /// The connection ends after this long without a byte in either direction.
    pub idle: Duration,
    /// How long unread bytes may block the connection before the stream with the most unread bytes is reset.
    pub stall: Duration,
    /// How long the shutdown may take: sending the queued frames, and waiting for the peer to close.
    pub linger: Duration,
}

impl SpdyLimits {
    /// Limits of exec and attach: few streams, all of one process. A process that does not read its input blocks only its
    /// own client, and may do so until the idle timeout: resetting its input would lose data that it may read later.
    pub fn session(idle: Duration) -> Self {
        Self {
            streams: 16,
            unread: 1 << 20,
            unsent: 64 << 10,
            unsent_all: 1 << 20,
            idle,
            stall: idle,
            linger: Duration::from_secs(10),
        }
    }

    /// Limits of port-forward: many independent TCP connections, two streams each.
    pub fn port_forward(idle: Duration) -> Self {
        Self {
            streams: 1024,
            unread: 4 << 20,
            unsent_all: 4 << 20,
            stall: Duration::from_secs(60),
            ..Self::session(idle)
        }
    }
}
