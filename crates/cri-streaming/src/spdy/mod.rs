//! SPDY/3.1, the server's end, as used by Kubernetes: kubelets, API servers and crictl carry exec, attach and port-forward
//! in it, mostly over a TCP connection after a `101 Switching Protocols`.
//!
//! ```text
//!          bytes              frames               streams
//!   io ----------> input ------------> receive ----------> Streams, Reader
//!    \                                 core
//!     <---------- output <------------ send  <------------ Writer, Handle
//!       batches of frames   one frame per stream in turn
//! ```
//!
//! The [`SpdyDriver`] is the only task that reads and writes the connection. The state that it shares with the users of streams
//! (`core`) is protected by a lock that is held briefly, never across an await.
//!
//! # Memory and unread streams
//!
//! SPDY has flow control windows like HTTP/2, but no Kubernetes implementation of it sends or honours WINDOW_UPDATE:
//! enforcing windows would stall forever. Only the TCP connection exerts back pressure, and blocks all streams at
//! once. The strategy:
//!
//! 1. The connection is read, whether or not the streams are, until [`SpdyLimits::unread`] bytes are unread. Up to this limit
//!    an unread stream blocks nothing: PINGs are answered, other streams flow. A piece that a [`SpdyReader`] has taken counts
//!    until all of it is consumed.
//! 2. Then the connection is not read until a stream is; TCP blocks the peer.
//! 3. After [`SpdyLimits::stall`], the stream with the most unread bytes is reset, its data is dropped, its [`SpdyReader`] gets
//!    [`TimedOut`](std::io::ErrorKind::TimedOut) (not an end of file, which would look complete), and the other streams
//!    continue. One stream can thus block the others for at most that long.
//!
//! Data of a stream whose [`SpdyReader`] was dropped is discarded and counted, so a process that has exited blocks nothing. In
//! the other direction each stream may queue [`SpdyLimits::unsent`] bytes, and all of them [`SpdyLimits::unsent_all`]; a [`SpdyWriter`]
//! without capacity waits, for the second limit in a queue. Frames of the streams are sent in round-robin order, those of a
//! [deferred](SpdyWriter::defer) stream after all others, and replies to the peer's frames before them: a PING is answered
//! behind at most the 128 KiB that are already being written.
//!
//! Unread data is kept in the pieces in which it was read, and small pieces are copied together; with the worst mixture of
//! pieces this takes four times [`SpdyLimits::unread`]. A read is at most 64 KiB; the output buffer holds at most 128 KiB of
//! data and as much of replies, and with more replies the connection is not read. Everything else is per stream, and
//! limited by [`SpdyLimits::streams`].
//!
//! # Tolerated and rejected input
//!
//! Data frames may have any length; they are passed on in pieces. Control frames may have 64 KiB, and a header block 256
//! KiB and 1000 headers once it is inflated; those of real clients are smaller than 1 KiB. A stream whose headers exceed 4
//! KiB is refused, because they are kept until the stream is accepted. Every block is inflated in order, also of refused
//! streams, because all share one compression context. SETTINGS, WINDOW_UPDATE and unknown types are skipped; RST_STREAM
//! and data of finished streams are ignored. A [`MalformedFrame`] frame ends the connection.
//!
//! Nothing is sent before the peer's first frame: a Go client loses bytes that arrive together with the `101`. The shutdown
//! sends the queued frames, RST_STREAM for unfinished streams, and GOAWAY as the last frame. The write half is then shut down
//! and further input drained, so that no TCP reset destroys data in flight.

mod core;
mod dictionary;
mod driver;
mod error;
mod flow_control;
pub(crate) mod frame;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod headers;
mod input;
mod limits;
mod output;
mod reader;
mod receive;
mod send;
mod stream;
mod stream_state;
#[cfg(test)]
mod tests;
mod writer;

use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::dictionary::HEADER_DICTIONARY;
pub use self::driver::SpdyDriver;
pub use self::error::{CloseReason, ConnectionEnd, MalformedFrame, SpdyCounters};
#[cfg(any(test, fuzzing))]
pub(super) use self::fuzz::ScriptedIo;
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::headers::StreamHeaders;
pub use self::limits::SpdyLimits;
pub use self::reader::SpdyReader;
pub use self::stream::{SpdyHandle, SpdyStream, SpdyStreams};
pub use self::writer::SpdyWriter;

/// The server's end of one SPDY connection.
#[derive(Debug)]
pub struct SpdyConnection;

impl SpdyConnection {
    /// Starts SPDY on an upgraded connection: TCP, or a byte stream inside another protocol. The driver must be polled to
    /// make any progress, inside a tokio runtime with a timer.
    pub fn server<T>(io: T, limits: SpdyLimits) -> (SpdyStreams, SpdyDriver)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = core::SharedConnection::new(limits);
        (
            SpdyStreams::new(shared.clone()),
            SpdyDriver::new(Box::new(io), shared, limits),
        )
    }
}
