//! A SPDY client that records everything received, so that tests can wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cri_streaming::client::{SpdyFrame, SpdyReceiver, SpdySender};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::http::soon;

/// Data received on a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Got {
    pub(super) replied: bool,
    pub(crate) data: Vec<u8>,
    pub(super) fin: bool,
    pub(super) reset: bool,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<u32, Got>,
    pings: Vec<u32>,
    goaway: bool,
    /// Whether anything came after the GOAWAY.
    after_goaway: bool,
    closed: bool,
}

/// Received frames, filled by a separate task.
#[derive(Clone, Debug, Default)]
struct Inbox(Arc<(Mutex<State>, Notify)>);

impl Inbox {
    fn put(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock().expect("no panic"));
        self.0.1.notify_waiters();
    }

    async fn wait<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        soon(what, async {
            loop {
                let changed = self.0.1.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = look(&mut self.0.0.lock().expect("no panic")) {
                    return found;
                }
                changed.await;
            }
        })
        .await
    }
}

pub(crate) struct Spdy<T> {
    write: SpdySender<WriteHalf<T>>,
    /// Unused half of a client that does not read yet.
    read: Option<ReadHalf<T>>,
    reading: Option<JoinHandle<()>>,
    inbox: Inbox,
}

impl<T: AsyncRead + AsyncWrite + Send + 'static> Spdy<T> {
    pub(super) fn new(io: T) -> Self {
        let mut client = Self::that_does_not_read(io);
        client.begin_to_read();
        client
    }

    pub(super) fn that_does_not_read(io: T) -> Self {
        let (read, write) = tokio::io::split(io);
        Self {
            write: SpdySender::new(write).expect("a client"),
            read: Some(read),
            reading: None,
            inbox: Inbox::default(),
        }
    }

    pub(crate) fn begin_to_read(&mut self) {
        let read = self.read.take().expect("not yet");
        let inbox = self.inbox.clone();
        self.reading = Some(tokio::spawn(async move {
            read_frames(read, &inbox).await;
            inbox.put(|state| state.closed = true);
        }));
    }

    /// Opens a stream, without waiting for the reply.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let opened = soon("room to send", self.write.open(headers)).await;
        opened.expect("sent")
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        soon("room to send", self.write.io().write_all(bytes))
            .await
            .expect("sent");
    }

    /// Sends data; `fin` if it is the last.
    pub(crate) async fn send(&mut self, id: u32, data: &[u8], fin: bool) {
        soon("room to send", self.write.data(id, data, fin))
            .await
            .expect("sent");
    }

    pub(super) async fn ping(&mut self, id: u32) {
        soon("room to send", self.write.ping(id))
            .await
            .expect("sent");
    }

    pub(super) async fn reset(&mut self, id: u32) {
        soon("room to send", self.write.reset(id))
            .await
            .expect("sent");
    }

    /// The answers to pings so far.
    pub(super) fn pings(&self) -> Vec<u32> {
        self.inbox.0.0.lock().expect("no panic").pings.clone()
    }

    pub(super) async fn pinged(&self, id: u32) {
        let look = |state: &mut State| state.pings.contains(&id).then_some(());
        self.inbox.wait("an answer to a ping", look).await;
    }

    /// Waits until a condition on a stream holds.
    pub(crate) async fn wait<R>(&self, id: u32, look: impl Fn(&Got) -> Option<R>) -> R {
        let what = format!("something on stream {id}");
        let look = |state: &mut State| look(state.streams.get(&id)?);
        self.inbox.wait(&what, look).await
    }

    /// Waits for the end of a stream; returns everything received on it.
    pub(crate) async fn end(&self, id: u32) -> Got {
        self.wait(id, |got| (got.fin || got.reset).then(|| got.clone()))
            .await
    }

    /// Waits for the end of the connection, which must be a GOAWAY.
    pub(super) async fn goodbye(&self) {
        let look = |state: &mut State| state.closed.then_some((state.goaway, state.after_goaway));
        let (goaway, after) = self.inbox.wait("the end", look).await;
        assert!(goaway, "no GOAWAY");
        assert!(!after, "something after the GOAWAY");
    }
}

impl<T> Drop for Spdy<T> {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

async fn read_frames<R: AsyncRead + Unpin>(read: R, inbox: &Inbox) {
    let mut receiver = SpdyReceiver::new(read);
    while let Ok(Some(frame)) = receiver.next().await {
        inbox.put(|state| {
            state.after_goaway |= state.goaway;
            match frame {
                SpdyFrame::Data {
                    stream,
                    bytes,
                    is_last,
                } => {
                    let got = state.streams.entry(stream).or_default();
                    assert!(got.replied && !got.fin, "data out of order");
                    got.data.extend(&bytes);
                    got.fin |= is_last;
                }
                SpdyFrame::Reply { stream } => {
                    state.streams.entry(stream).or_default().replied = true;
                }
                SpdyFrame::Reset { stream } => {
                    state.streams.entry(stream).or_default().reset = true;
                }
                SpdyFrame::Ping { id } => state.pings.push(id),
                SpdyFrame::GoAway => state.goaway = true,
                SpdyFrame::Other { kind } => panic!("frame of type {kind}"),
            }
        });
    }
}
