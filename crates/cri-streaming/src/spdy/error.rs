//! How a connection can end, and errors in frames.

use std::io;

/// Why a frame was rejected. This ends the connection, because nothing after the frame can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedFrame {
    /// A control frame of another version of the protocol.
    #[error("control frame of SPDY version {0} instead of 3")]
    Version(u16),
    /// A control frame that is longer than any legitimate one.
    #[error("control frame of type {kind} with {len} bytes")]
    TooLong {
        /// The type of the frame.
        kind: u16,
        /// The length of the frame.
        len: usize,
    },
    /// A control frame with a length that is invalid for its type.
    #[error("control frame of type {kind} cannot have {len} bytes")]
    Length {
        /// The type of the frame.
        kind: u16,
        /// The length of the frame.
        len: usize,
    },
    /// A frame for stream 0 or PING 0.
    #[error("frame of type {0} with id zero")]
    ZeroId(u16),
    /// A data frame of stream 0.
    #[error("data of stream zero")]
    ZeroStream,
    /// A header block that does not continue the zlib stream, or requires another dictionary.
    #[error("header block that cannot be inflated")]
    Compression,
    /// A header block that exceeds the limit once it is inflated.
    #[error("header block that inflates to more than {0} bytes")]
    HeadersTooLarge(usize),
    /// A header block with too many headers.
    #[error("header block with {0} headers")]
    TooManyHeaders(u32),
    /// A header block whose lengths are inconsistent.
    #[error("header block whose lengths do not add up")]
    HeaderLengths,
    /// A header name that is empty, has capitals or contains other invalid characters.
    #[error("header name that is not a lower-case name")]
    HeaderName,
    /// A header value that is not text.
    #[error("header value that is not text")]
    HeaderValue,
    /// A header name that occurs twice in a block.
    #[error("header name that comes twice")]
    DuplicateHeader,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// The peer closed or reset the connection.
    #[error("the client went away")]
    ClientGone,
    /// The peer sent GOAWAY, and its streams have ended.
    #[error("the client said GOAWAY")]
    GoAway,
    /// The peer violated SPDY.
    #[error("malformed: {0}")]
    Malformed(#[from] MalformedFrame),
    /// The idle timeout has expired.
    #[error("idle for too long")]
    Idle,
    /// Closed by the server: [`SpdyHandle::close`](super::SpdyHandle::close).
    #[error("closed")]
    Closed,
    /// The connection failed.
    #[error("connection failed: {0}")]
    Io(#[source] io::Error),
}

impl CloseReason {
    /// The reason for an I/O error: a peer that breaks the connection has disconnected, whichever error is reported.
    pub(super) fn from_io(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::UnexpectedEof => Self::ClientGone,
            _ => Self::Io(error),
        }
    }
}

/// The result of a connection.
#[derive(Debug)]
pub struct ConnectionEnd {
    /// The reason.
    pub reason: CloseReason,
    /// Set if all queued data and the final GOAWAY were written to the connection.
    pub is_flushed: bool,
    /// Counters of the connection.
    pub counters: SpdyCounters,
}

/// Counters of a connection: bytes, streams, frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpdyCounters {
    /// Bytes read, including frame heads.
    pub bytes_in: u64,
    /// Bytes written, including frame heads.
    pub bytes_out: u64,
    /// Bytes of data received on streams.
    pub data_in: u64,
    /// Bytes of data sent on streams.
    pub data_out: u64,
    /// Bytes of `data_in` that were discarded: the stream had ended or was reset, or its reader was dropped.
    pub data_discarded: u64,
    /// Streams that were opened.
    pub streams: u64,
    /// Streams that were refused.
    pub streams_refused: u64,
    /// Streams that were reset because they blocked the others.
    pub streams_stalled: u64,
    /// PINGs that were answered.
    pub pings: u64,
    /// Currently unread bytes.
    pub unread: usize,
    /// Maximum of unread bytes so far.
    pub unread_peak: usize,
    /// Bytes that currently wait to be sent.
    pub unsent: usize,
}
