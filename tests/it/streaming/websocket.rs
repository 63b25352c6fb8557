//! A WebSocket client: as little of one as the tests need.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::http::soon;

const MASK: [u8; 4] = [3, 141, 59, 26];

#[derive(Debug, Default)]
pub(super) struct State {
    /// Messages without their bytes: opcode, first byte, length.
    pub(super) messages: Vec<(u8, u8, usize)>,
    /// What came on each channel.
    pub(super) channels: [Vec<u8>; 8],
    pub(super) pongs: Vec<Vec<u8>>,
    /// The code of the close frame.
    pub(super) close: Option<u16>,
    /// Whether the connection has ended.
    pub(super) ended: bool,
}

#[derive(Clone, Debug, Default)]
struct Inbox(Arc<(Mutex<State>, Notify)>);

pub(super) struct WebSocket<T> {
    write: WriteHalf<T>,
    read: Option<ReadHalf<T>>,
    reading: Option<JoinHandle<()>>,
    inbox: Inbox,
}

/// A frame as a client sends it.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        n @ 0..=125 => frame.push(0x80 | u8::try_from(n).expect("short")),
        n @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(n).expect("fits").to_be_bytes());
        }
        n => {
            frame.push(0x80 | 127);
            frame.extend((n as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(b, m)| b ^ m));
    frame
}

impl<T: AsyncRead + AsyncWrite + Send + 'static> WebSocket<T> {
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
        }
    }

    pub(super) fn begin_to_read(&mut self) {
        let read = self.read.take().expect("not yet");
        let inbox = self.inbox.clone();
        self.reading = Some(tokio::spawn(async move {
            read_frames(read, &inbox).await;
            inbox.put(|state| state.ended = true);
        }));
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        soon("room to send", self.write.write_all(bytes))
            .await
            .expect("sent");
    }

    /// A binary message on a channel.
    pub(super) async fn send(&mut self, channel: u8, data: &[u8]) {
        let payload = [&[channel], data].concat();
        self.raw(&frame(0x82, &payload)).await;
    }

    /// The same in base64.
    pub(super) async fn send_text(&mut self, channel: u8, data: &[u8]) {
        let payload = format!("{channel}{}", STANDARD.encode(data));
        self.raw(&frame(0x81, payload.as_bytes())).await;
    }

    pub(super) async fn close(&mut self) {
        self.raw(&frame(0x88, &1000_u16.to_be_bytes())).await;
    }

    /// Waits for something to hold.
    pub(super) async fn wait<R>(&self, what: &str, mut look: impl FnMut(&State) -> Option<R>) -> R {
        soon(what, async {
            loop {
                let changed = self.inbox.0.1.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if let Some(found) = look(&self.inbox.0.0.lock().expect("no panic")) {
                    return found;
                }
                changed.await;
            }
        })
        .await
    }

    /// What pongs have carried so far.
    pub(super) fn pongs(&self) -> Vec<Vec<u8>> {
        self.inbox.0.0.lock().expect("no panic").pongs.clone()
    }

    /// Waits for the close frame; gives its code.
    pub(super) async fn closed(&self) -> u16 {
        self.wait("a close frame", |state| {
            assert!(!state.ended || state.close.is_some(), "no close frame");
            state.close
        })
        .await
    }
}

impl Inbox {
    fn put(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock().expect("no panic"));
        self.0.1.notify_waiters();
    }
}

impl<T> Drop for WebSocket<T> {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

/// Reads one frame.
async fn next<R: AsyncRead + Unpin>(read: &mut R) -> std::io::Result<(u8, Vec<u8>)> {
    let first = read.read_u8().await?;
    let length = match read.read_u8().await? {
        126 => u64::from(read.read_u16().await?),
        127 => read.read_u64().await?,
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length).expect("fits")];
    read.read_exact(&mut payload).await?;
    Ok((first, payload))
}

async fn read_frames<R: AsyncRead + Unpin>(mut read: R, inbox: &Inbox) {
    while let Ok((first, payload)) = next(&mut read).await {
        assert_eq!(first & 0x80, 0x80, "whole messages");
        inbox.put(|state| {
            assert_eq!(state.close, None, "something after the close frame");
            match first & 0x0f {
                8 => {
                    state.close = Some(u16::from_be_bytes(payload[..2].try_into().expect("a code")))
                }
                10 => state.pongs.push(payload),
                opcode @ (1 | 2) => {
                    let (channel, rest) = payload.split_first().expect("a channel");
                    state.messages.push((opcode, *channel, rest.len()));
                    let (channel, data) = match opcode {
                        1 => (channel - b'0', STANDARD.decode(rest).expect("base64")),
                        _ => (*channel, rest.to_vec()),
                    };
                    // Messages of a tunnel have no channel, and are not looked at here.
                    if let Some(there) = state.channels.get_mut(usize::from(channel)) {
                        there.extend(data);
                    }
                }
                other => panic!("opcode {other}"),
            }
        });
    }
}

/// A stream of bytes through the messages of a connection; the other end of it closes the connection.
pub(super) fn tunnel<T>(io: T) -> tokio::io::DuplexStream
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (near, far) = tokio::io::duplex(64 << 10);
    let (mut read, mut write) = tokio::io::split(io);
    let (mut from, mut to) = tokio::io::split(far);
    let outward = async move {
        while let Ok((first, payload)) = next(&mut read).await {
            match first & 0x0f {
                2 if to.write_all(&payload).await.is_err() => return,
                8 => break,
                _ => {}
            }
        }
        let _ = to.shutdown().await;
        std::future::pending().await
    };
    let inward = async move {
        // Small and odd, so that messages end in the middle of frames.
        let mut buffer = vec![0; 10_007];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            if write.write_all(&frame(0x82, &buffer[..n])).await.is_err() {
                return;
            }
        }
        let _ = write.write_all(&frame(0x88, &1000_u16.to_be_bytes())).await;
    };
    // A test that has gone closes the connection, also in the middle of a message that nobody takes.
    tokio::spawn(async move {
        tokio::select! {
            () = outward => {}
            () = inward => {}
        }
    });
    near
}
