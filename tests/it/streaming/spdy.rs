//! A SPDY client: as little of one as the tests need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use flate2::{Compress, Compression, FlushCompress};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::http::soon;

/// What came on a stream.
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

/// What came, filled by a task of its own.
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
    write: WriteHalf<T>,
    /// Kept by a client that does not read.
    read: Option<ReadHalf<T>>,
    reading: Option<JoinHandle<()>>,
    inbox: Inbox,
    deflate: Compress,
    next: u32,
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
            write,
            read: Some(read),
            reading: None,
            inbox: Inbox::default(),
            deflate: Compress::new(Compression::fast(), true),
            next: 1,
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

    /// Opens a stream, without waiting for the answer.
    pub(crate) async fn open(&mut self, headers: &[(&str, &str)]) -> u32 {
        let id = self.next;
        self.next += 2;
        let mut plain = u32::try_from(headers.len())
            .expect("few")
            .to_be_bytes()
            .to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.extend(u32::try_from(text.len()).expect("short").to_be_bytes());
            plain.extend(text.bytes());
        }
        let mut block = Vec::with_capacity(1024);
        self.deflate
            .compress_vec(&plain, &mut block, FlushCompress::Sync)
            .expect("compressed");
        let mut frame = vec![0x80, 3, 0, 1];
        frame.extend((u32::try_from(block.len()).expect("short") + 10).to_be_bytes());
        frame.extend(id.to_be_bytes());
        frame.extend([0; 6]);
        frame.extend(block);
        self.raw(&frame).await;
        id
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        soon("room to send", self.write.write_all(bytes))
            .await
            .expect("sent");
    }

    /// Sends data; `fin` if it is the last.
    pub(crate) async fn send(&mut self, id: u32, data: &[u8], fin: bool) {
        let mut frame = id.to_be_bytes().to_vec();
        let length = u32::try_from(data.len()).expect("short");
        frame.extend((u32::from(fin) << 24 | length).to_be_bytes());
        frame.extend(data);
        self.raw(&frame).await;
    }

    pub(super) async fn ping(&mut self, id: u32) {
        let mut frame = vec![0x80, 3, 0, 6, 0, 0, 0, 4];
        frame.extend(id.to_be_bytes());
        self.raw(&frame).await;
    }

    pub(super) async fn reset(&mut self, id: u32) {
        let mut frame = vec![0x80, 3, 0, 3, 0, 0, 0, 8];
        frame.extend(id.to_be_bytes());
        frame.extend(5_u32.to_be_bytes());
        self.raw(&frame).await;
    }

    /// The answers to pings so far.
    pub(super) fn pings(&self) -> Vec<u32> {
        self.inbox.0.0.lock().expect("no panic").pings.clone()
    }

    pub(super) async fn pinged(&self, id: u32) {
        let look = |state: &mut State| state.pings.contains(&id).then_some(());
        self.inbox.wait("an answer to a ping", look).await;
    }

    /// Waits for something to hold of a stream.
    pub(crate) async fn wait<R>(&self, id: u32, look: impl Fn(&Got) -> Option<R>) -> R {
        let what = format!("something on stream {id}");
        let look = |state: &mut State| look(state.streams.get(&id)?);
        self.inbox.wait(&what, look).await
    }

    /// All that comes on a stream until its end.
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

async fn read_frames<R: AsyncRead + Unpin>(mut read: R, inbox: &Inbox) {
    let mut head = [0; 8];
    while read.read_exact(&mut head).await.is_ok() {
        let [a, b, c, d, flags, lengths @ ..] = head;
        let length = u32::from_be_bytes([0, lengths[0], lengths[1], lengths[2]]);
        let mut body = vec![0; length as usize];
        if read.read_exact(&mut body).await.is_err() {
            return;
        }
        let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().expect("four"));
        inbox.put(|state| {
            state.after_goaway |= state.goaway;
            if a & 0x80 == 0 {
                let got = state
                    .streams
                    .entry(u32::from_be_bytes([a, b, c, d]))
                    .or_default();
                assert!(got.replied && !got.fin, "data out of order");
                got.data.extend(&body);
                got.fin |= flags & 1 != 0;
                return;
            }
            match d {
                2 => state.streams.entry(word(0)).or_default().replied = true,
                3 => state.streams.entry(word(0)).or_default().reset = true,
                6 => state.pings.push(word(0)),
                7 => state.goaway = true,
                other => panic!("frame of type {other}"),
            }
        });
    }
}
