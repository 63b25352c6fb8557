//! A SPDY client that records everything received, so that tests can wait for it.

use cri_streaming::client::{SpdyFrame, SpdyReceiver, SpdySender};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, WriteHalf};

use super::inbox::{Inbox, Record, send};
use crate::prelude::*;

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

pub(crate) struct Spdy<T> {
    write: SpdySender<WriteHalf<T>>,
    inbox: Inbox<T, State>,
}

impl<T: AsyncRead + AsyncWrite + Send + 'static> Spdy<T> {
    pub(super) fn new(io: T) -> Self {
        let mut client = Self::that_does_not_read(io);
        client.begin_to_read();
        client
    }

    pub(super) fn that_does_not_read(io: T) -> Self {
        let (inbox, write) = Inbox::split(io);
        let write = SpdySender::new(write).expect("a client");
        Self { write, inbox }
    }

    pub(crate) fn begin_to_read(&mut self) {
        self.inbox.begin(read_frames);
    }

    /// Opens a stream, without waiting for the reply.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let opened = soon("room to send", self.write.open(headers)).await;
        opened.expect("sent")
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        send(self.write.io().write_all(bytes)).await;
    }

    /// Sends data; `fin` if it is the last.
    pub(crate) async fn send(&mut self, id: u32, data: &[u8], fin: bool) {
        send(self.write.data(id, data, fin)).await;
    }

    pub(super) async fn ping(&mut self, id: u32) {
        send(self.write.ping(id)).await;
    }

    pub(super) async fn reset(&mut self, id: u32) {
        send(self.write.reset(id)).await;
    }

    /// The answers to pings so far.
    pub(super) fn pings(&self) -> Vec<u32> {
        self.inbox.now(|state| state.pings.clone())
    }

    pub(super) async fn pinged(&self, id: u32) {
        let look = |state: &State| state.pings.contains(&id).then_some(());
        self.inbox.wait("an answer to a ping", look).await;
    }

    /// Waits until a condition on a stream holds.
    pub(crate) async fn wait<R>(&self, id: u32, look: impl Fn(&Got) -> Option<R>) -> R {
        let what = format!("something on stream {id}");
        let look = |state: &State| look(state.streams.get(&id)?);
        self.inbox.wait(&what, look).await
    }

    /// Waits for the end of a stream; returns everything received on it.
    pub(crate) async fn end(&self, id: u32) -> Got {
        self.wait(id, |got| (got.fin || got.reset).then(|| got.clone()))
            .await
    }

    /// Waits for the end of the connection, which must be a GOAWAY.
    pub(super) async fn goodbye(&self) {
        let look = |state: &State| state.closed.then_some((state.goaway, state.after_goaway));
        let (goaway, after) = self.inbox.wait("the end", look).await;
        assert!(goaway, "no GOAWAY");
        assert!(!after, "something after the GOAWAY");
    }
}

async fn read_frames<R: AsyncRead + Unpin>(read: R, inbox: Record<State>) {
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
    inbox.put(|state| state.closed = true);
}
