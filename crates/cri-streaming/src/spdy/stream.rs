//! The streams of a connection, as seen by their users.

use std::future::poll_fn;
use std::sync::Arc;

use super::core::SharedConnection;
use super::error::{CloseReason, SpdyCounters};
use super::headers::StreamHeaders;
use super::reader::SpdyReader;
use super::writer::SpdyWriter;

/// The streams opened by the peer. Dropping it refuses further ones.
#[derive(Debug)]
pub struct SpdyStreams(Arc<SharedConnection>);

impl SpdyStreams {
    pub(super) fn new(shared: Arc<SharedConnection>) -> Self {
        Self(shared)
    }

    /// Returns the next stream, in the order in which they were opened, and queues the reply. `None` at the end of the
    /// connection. Cancel safe.
    pub async fn next(&mut self) -> Option<SpdyStream> {
        let (id, headers) = poll_fn(|cx| self.0.lock().poll_opened(cx)).await?;
        Some(SpdyStream {
            id,
            headers,
            reader: SpdyReader::new(self.0.clone(), id),
            writer: SpdyWriter::new(self.0.clone(), id),
        })
    }

    /// Returns a handle that can end the connection.
    pub fn handle(&self) -> SpdyHandle {
        SpdyHandle::new(self.0.clone())
    }
}

impl Drop for SpdyStreams {
    fn drop(&mut self) {
        self.0.lock().stop_accepting();
    }
}

/// One stream. Dropping it resets it.
#[derive(Debug)]
pub struct SpdyStream {
    /// The stream id. Streams that the client opens have odd, increasing ids (SPDY/3.1, section 2.3.2).
    pub id: u32,
    /// The headers of its SYN_STREAM.
    pub headers: StreamHeaders,
    reader: SpdyReader,
    writer: SpdyWriter,
}

impl SpdyStream {
    /// The server's half, for messages before the stream is split.
    pub fn writer(&mut self) -> &mut SpdyWriter {
        &mut self.writer
    }

    /// Splits the stream into its halves. They end independently, and each must be ended: a [`SpdyWriter`] that is dropped
    /// without [`shutdown`](tokio::io::AsyncWriteExt::shutdown) resets the stream in both directions. To use a stream for
    /// reading only, shut down its writer first.
    pub fn split(self) -> (SpdyReader, SpdyWriter) {
        (self.reader, self.writer)
    }
}

/// Ends a connection, from any task. Dropping it does nothing.
#[derive(Clone, Debug)]
pub struct SpdyHandle(Arc<SharedConnection>);

impl SpdyHandle {
    pub(super) fn new(shared: Arc<SharedConnection>) -> Self {
        Self(shared)
    }

    /// Starts the shutdown without waiting for it. Queued data is sent, streams whose server half is not finished are
    /// reset, GOAWAY is the last frame, and the driver then resolves. From then on readers see the end of file after the
    /// data that has arrived, and writers a broken pipe.
    pub fn close(&self) {
        self.0.lock().close(CloseReason::Closed);
    }

    /// Returns whether so much data is unread that the connection is not read.
    pub fn is_held_back(&self) -> bool {
        self.0.lock().is_full()
    }

    /// Returns when [`is_held_back`](SpdyHandle::is_held_back) is true. Only one task at a time may wait for it.
    pub async fn held_back(&self) {
        poll_fn(|cx| self.0.lock().poll_full(cx)).await;
    }

    /// Sends the reply to a PING that the peer never sent, which it ignores (SPDY/3 section 2.6.5). This does not count
    /// as activity. If the peer has exited, the connection breaks.
    pub fn heartbeat(&self) {
        self.0.lock().heartbeat();
    }

    /// The counters of the connection so far.
    pub fn counters(&self) -> SpdyCounters {
        self.0.lock().counters
    }
}
