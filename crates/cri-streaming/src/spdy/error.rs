//! How a connection can end, and what is wrong with a frame.

use std::io;

/// Why a frame was refused. It ends the connection: behind it nothing can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A control frame of another version of the protocol.
    #[error("control frame of SPDY version {0} instead of 3")]
    Version(u16),
    /// A control frame longer than anybody needs, in bytes.
    #[error("control frame of type {kind} with {len} bytes")]
    TooLong {
        /// The type of the frame.
        kind: u16,
        /// Its length.
        len: usize,
    },
    /// A control frame with a length that its type cannot have, in bytes.
    #[error("control frame of type {kind} cannot have {len} bytes")]
    Length {
        /// The type of the frame.
        kind: u16,
        /// Its length.
        len: usize,
    },
    /// A frame about stream or PING 0.
    #[error("frame of type {0} with id zero")]
    ZeroId(u16),
    /// A data frame of stream 0.
    #[error("data of stream zero")]
    ZeroStream,
    /// A header block that is no continuation of the zlib stream, or asks for another dictionary.
    #[error("header block that cannot be inflated")]
    Compression,
    /// A header block that is larger than allowed once it is inflated.
    #[error("header block that inflates to more than {0} bytes")]
    HeadersTooLarge(usize),
    /// A header block with more headers than allowed.
    #[error("header block with {0} headers")]
    TooManyHeaders(u32),
    /// A header block whose lengths do not add up.
    #[error("header block whose lengths do not add up")]
    HeaderLengths,
    /// A header name that is empty, not in lower case, or no name.
    #[error("header name that is not a lower-case name")]
    HeaderName,
    /// A header value that is no text.
    #[error("header value that is not text")]
    HeaderValue,
    /// The same header name twice in a block.
    #[error("header name that comes twice")]
    DuplicateHeader,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The peer closed or broke the connection.
    #[error("the client went away")]
    ClientGone,
    /// The peer said GOAWAY, and its streams are over.
    #[error("the client said GOAWAY")]
    GoAway,
    /// The peer sent something that is no SPDY.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// Nothing came or went for too long.
    #[error("idle for too long")]
    Idle,
    /// By us: [`Handle::close`](super::Handle::close).
    #[error("closed")]
    Closed,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(#[source] io::Error),
}

impl Reason {
    /// A peer that breaks the connection has gone, whatever the system calls it.
    pub(super) fn of(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof => Self::ClientGone,
            _ => Self::Io(error),
        }
    }
}

/// The end of a connection.
#[derive(Debug)]
pub struct ConnectionEnd {
    /// Why.
    pub reason: Reason,
    /// Whether all that was queued, and the GOAWAY behind it, was handed to the connection.
    pub is_flushed: bool,
    /// What the connection did.
    pub counters: Counters,
}

/// What a connection did so far. Bytes, streams, frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes read, with frame heads.
    pub bytes_in: u64,
    /// Bytes written, with frame heads.
    pub bytes_out: u64,
    /// Bytes of data for streams.
    pub data_in: u64,
    /// Bytes of data from streams.
    pub data_out: u64,
    /// Those of `data_in` that nobody wanted: the stream was over, reset, or its reader dropped.
    pub data_discarded: u64,
    /// Streams that were opened.
    pub streams: u64,
    /// Streams that were refused.
    pub streams_refused: u64,
    /// Streams that were reset because they held back the others.
    pub streams_stalled: u64,
    /// PINGs that were answered.
    pub pings: u64,
    /// Bytes that nobody has read yet, now.
    pub unread: usize,
    /// The most they ever were.
    pub unread_peak: usize,
    /// Bytes that wait to be sent, now.
    pub unsent: usize,
}
