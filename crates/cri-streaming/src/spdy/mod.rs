//! SPDY/3.1, the server's end, as Kubernetes clients speak it: kubelets, API servers and crictl carry exec, attach and
//! port-forward in it, mostly over a TCP connection after a `101 Switching Protocols`.
//!
//! ```text
//!          bytes              frames               streams
//!   io ----------> input ------------> receive ----------> Streams, Reader
//!    \                                 core
//!     <---------- output <------------ send  <------------ Writer, Handle
//!       batches of frames   one frame per stream in turn
//! ```
//!
//! The [`Driver`] is the one task that reads and writes the connection. What it shares with the holders of streams
//! (`core`) stands behind a lock that is held for a moment only, never across a wait.
//!
//! # Memory, and a stream that nobody reads
//!
//! SPDY has windows like HTTP/2, but no peer of this protocol in Kubernetes sends or honours one: enforcing them would
//! stall for ever. So the only back pressure is that of the connection itself, and it holds back all streams at once.
//! The strategy:
//!
//! 1. The connection is read on, whoever reads his stream or not, until [`Limits::unread`] bytes wait. Up to there
//!    a stream that nobody reads is in nobody's way: PINGs are answered, other streams flow. A piece that a [`Reader`] has
//!    in hand counts until it has done with all of it.
//! 2. Then the connection is not read until somebody takes something; the peer feels it.
//! 3. If that lasts for [`Limits::stall`], the stream with the most unread bytes is reset, its data is dropped, its
//!    [`Reader`] gets [`TimedOut`](std::io::ErrorKind::TimedOut) (not an end of file, which would look complete), and
//!    the others go on. So one stream holds back the others for that long at most.
//!
//! Data of a stream whose [`Reader`] was dropped is taken off the connection and counted, so a process that is gone
//! holds back nobody. In the other direction each stream has room for [`Limits::unsent`] bytes, and all of them for
//! [`Limits::unsent_all`]; a [`Writer`] without room waits, for the second in line. Frames of the streams leave in turn,
//! answers to the peer's frames before all of them: a PING is answered behind at most the 128 KiB that are already on their
//! way.
//!
//! Unread data is kept in the pieces in which it was read, small ones are copied together; with the worst mixture of
//! pieces that is four times [`Limits::unread`]. A read is at most 64 KiB, what is on its way to the peer at most 128 KiB of
//! data and as much of answers; with more answers than that the connection is not read. All else is per stream, and
//! bounded by [`Limits::streams`].
//!
//! # What is lenient and what is not
//!
//! Data frames may have any length, they pass in pieces. Control frames may have 64 KiB, and a header block 256 KiB and
//! 1000 headers once it is inflated; those of real clients stay below 1 KiB. A stream whose headers take more than
//! 4 KiB is refused: they are kept until somebody takes it. Every block is inflated in order, also of
//! streams that are refused: there is one compression context. SETTINGS, WINDOW_UPDATE and unknown types are skipped,
//! RST_STREAM and data of streams that are over are ignored. A [`Malformed`] frame ends the connection.
//!
//! Nothing is sent before the peer's first frame: a Go client loses bytes that come together with the `101`.
//! The end is: what is queued, RST_STREAM for what is unfinished, GOAWAY as the very last frame, then the connection's
//! write half is shut and what still comes is drained, so that no reset of TCP destroys what is on its way.

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
mod output;
mod reader;
mod receive;
mod send;
mod stream;
mod stream_state;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

pub(crate) use self::dictionary::DICTIONARY;
pub use self::driver::Driver;
pub use self::error::{ConnectionEnd, Counters, Malformed, Reason};
#[cfg(any(test, fuzzing))]
pub(super) use self::fuzz::ScriptedIo;
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::headers::Headers;
pub use self::reader::Reader;
pub use self::stream::{Handle, Stream, Streams};
pub use self::writer::Writer;

/// What one connection may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams at a time: those that are not over, or of which a half is still held. More are refused.
    pub streams: usize,
    /// Bytes of all streams that nobody has done with yet. One read, of at most 64 KiB, may go beyond.
    pub unread: usize,
    /// Bytes per stream that wait to be sent.
    pub unsent: usize,
    /// Bytes of all streams that wait to be sent.
    pub unsent_all: usize,
    /// The connection ends after this long without a byte either way.
    pub idle: Duration,
    /// How long unread bytes may hold back the connection before the stream that has the most of them is reset.
    pub stall: Duration,
    /// How long the end may take: sending what is queued, and waiting for the peer to close.
    pub linger: Duration,
}

impl Limits {
    /// For exec and attach: few streams, all of one process. A process that does not read its input holds back its own
    /// client only, and for as long as the idle time: resetting its input would lose data that it may read later.
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

    /// For port-forward: many TCP connections, two streams each, which have nothing to do with each other.
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

/// The server's end of one SPDY connection.
#[derive(Debug)]
pub struct Connection;

impl Connection {
    /// Begins on an upgraded connection: TCP, or a stream of bytes inside something else. The driver must be polled
    /// for anything to happen, inside a tokio runtime with a clock.
    pub fn server<T>(io: T, limits: Limits) -> (Streams, Driver)
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = core::Shared::new(limits);
        (
            Streams::new(shared.clone()),
            Driver::new(Box::new(io), shared, limits),
        )
    }
}
