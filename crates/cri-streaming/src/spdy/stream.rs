//! The streams of a connection, as those hold them who carry their bytes.

use std::future::poll_fn;
use std::sync::Arc;

use super::core::Shared;
use super::error::{Counters, Reason};
use super::headers::Headers;
use super::reader::Reader;
use super::writer::Writer;

/// The streams that the peer opens. Dropping it refuses further ones.
#[derive(Debug)]
pub struct Streams(Arc<Shared>);

impl Streams {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// The next stream, in the order in which they were opened; the answer to it is on its way. Nothing at the end of
    /// the connection. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Stream> {
        let (id, headers) = poll_fn(|cx| self.0.lock().poll_opened(cx)).await?;
        Some(Stream {
            id,
            headers,
            reader: Reader::new(self.0.clone(), id),
            writer: Writer::new(self.0.clone(), id),
        })
    }

    /// What can end the connection.
    pub fn handle(&self) -> Handle {
        Handle::new(self.0.clone())
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.0.lock().stop_accepting();
    }
}

/// One stream. Dropping it resets it.
#[derive(Debug)]
pub struct Stream {
    /// Its number: odd, and higher than those before it.
    pub id: u32,
    /// What the peer opened it with.
    pub headers: Headers,
    reader: Reader,
    writer: Writer,
}

impl Stream {
    /// Our half, to say something before both are taken.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// The two halves. They end on their own, and each must be ended: a [`Writer`] that is dropped without
    /// [`shutdown`](tokio::io::AsyncWriteExt::shutdown) resets the stream both ways. Who only reads a stream shuts its
    /// writer down first.
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }
}

/// Ends a connection, from any task. Dropping it does nothing.
#[derive(Clone, Debug)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Begins the end and does not wait for it. What is queued is sent, streams of which our half is not finished are
    /// reset, GOAWAY is the last frame, and the driver then gives the end. From now on readers see the end behind what
    /// is there already, and writers a broken pipe.
    pub fn close(&self) {
        self.0.lock().close(Reason::Closed);
    }

    /// Whether so much waits to be read that the connection is not read.
    pub fn is_held_back(&self) -> bool {
        self.0.lock().is_full()
    }

    /// Returns when [`is_held_back`](Handle::is_held_back) is true. One task at a time may wait for it.
    pub async fn held_back(&self) {
        poll_fn(|cx| self.0.lock().poll_full(cx)).await;
    }

    /// Sends the answer to a PING that the peer never sent, which it ignores (SPDY/3 section 2.6.5). It is not counted
    /// against idleness. A peer that is not there any more breaks the connection by it.
    pub fn heartbeat(&self) {
        self.0.lock().heartbeat();
    }

    /// What the connection did so far.
    pub fn counters(&self) -> Counters {
        self.0.lock().counters
    }
}
