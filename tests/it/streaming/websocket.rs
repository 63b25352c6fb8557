//! A WebSocket client that records everything received, so that tests can wait for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cri_streaming::client::{
    BINARY, CLOSE, PONG, TEXT, WebSocketReceiver, WebSocketSender, encode_frame,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, WriteHalf};

use super::inbox::{Inbox, Record, send};

const MASK: [u8; 4] = [3, 141, 59, 26];

#[derive(Debug, Default)]
pub(super) struct State {
    /// Messages without their bytes: opcode, first byte, length.
    pub(super) messages: Vec<(u8, u8, usize)>,
    /// Data received on each channel.
    pub(super) channels: [Vec<u8>; 8],
    pub(super) pongs: Vec<Vec<u8>>,
    /// The code of the close frame.
    pub(super) close: Option<u16>,
    /// Whether the connection has ended.
    pub(super) ended: bool,
}

pub(super) struct WebSocket<T> {
    write: WebSocketSender<WriteHalf<T>>,
    inbox: Inbox<T, State>,
}

/// A frame with any first byte, for clients that violate the protocol.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    encode_frame(first, MASK, &[payload])
}

impl<T: AsyncRead + AsyncWrite + Send + 'static> WebSocket<T> {
    pub(super) fn new(io: T) -> Self {
        let mut client = Self::that_does_not_read(io);
        client.begin_to_read();
        client
    }

    pub(super) fn that_does_not_read(io: T) -> Self {
        let (inbox, write) = Inbox::split(io);
        let write = WebSocketSender::new(write);
        Self { write, inbox }
    }

    pub(super) fn begin_to_read(&mut self) {
        self.inbox.begin(read_frames);
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        send(self.write.io().write_all(bytes)).await;
    }

    /// A binary message on a channel.
    pub(super) async fn send(&mut self, channel: u8, data: &[u8]) {
        send(self.write.send(BINARY, &[&[channel], data])).await;
    }

    /// A base64 message on a channel.
    pub(super) async fn send_text(&mut self, channel: u8, data: &[u8]) {
        let payload = format!("{channel}{}", STANDARD.encode(data));
        send(self.write.send(TEXT, &[payload.as_bytes()])).await;
    }

    pub(super) async fn close(&mut self) {
        send(self.write.close(1000)).await;
    }

    /// Waits until a condition holds.
    pub(super) async fn wait<R>(&self, what: &str, look: impl FnMut(&State) -> Option<R>) -> R {
        self.inbox.wait(what, look).await
    }

    /// Waits until a channel has this many bytes; returns all that it has.
    pub(super) async fn channel(&self, channel: usize, length: usize) -> Vec<u8> {
        self.wait(&format!("channel {channel}"), |state| {
            let got = &state.channels[channel];
            (got.len() >= length).then(|| got.clone())
        })
        .await
    }

    /// The payloads of pongs so far.
    pub(super) fn pongs(&self) -> Vec<Vec<u8>> {
        self.inbox.now(|state| state.pongs.clone())
    }

    /// Waits for the close frame; returns its code.
    pub(super) async fn closed(&self) -> u16 {
        self.wait("a close frame", |state| {
            assert!(!state.ended || state.close.is_some(), "no close frame");
            state.close
        })
        .await
    }
}

async fn read_frames<R: AsyncRead + Unpin>(read: R, inbox: Record<State>) {
    let mut receiver = WebSocketReceiver::new(read);
    while let Ok(Some(frame)) = receiver.next().await {
        assert!(frame.is_last, "whole messages");
        let payload = frame.payload;
        inbox.put(|state| {
            assert_eq!(state.close, None, "something after the close frame");
            match frame.opcode {
                CLOSE => {
                    state.close = Some(u16::from_be_bytes(payload[..2].try_into().expect("a code")))
                }
                PONG => state.pongs.push(payload.to_vec()),
                opcode @ (TEXT | BINARY) => {
                    let (channel, rest) = payload.split_first().expect("a channel");
                    state.messages.push((opcode, *channel, rest.len()));
                    let (channel, data) = match opcode {
                        TEXT => (channel - b'0', STANDARD.decode(rest).expect("base64")),
                        _ => (*channel, rest.to_vec()),
                    };
                    // Messages of a tunnel have no channel, and are ignored here.
                    if let Some(there) = state.channels.get_mut(usize::from(channel)) {
                        there.extend(data);
                    }
                }
                other => panic!("opcode {other}"),
            }
        });
    }
    inbox.put(|state| state.ended = true);
}

/// A byte stream over the messages of a connection; closing it closes the connection.
pub(super) fn tunnel<T>(io: T) -> tokio::io::DuplexStream
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let (near, far) = tokio::io::duplex(64 << 10);
    let (read, write) = tokio::io::split(io);
    let (mut receiver, mut sender) = (WebSocketReceiver::new(read), WebSocketSender::new(write));
    let (mut from, mut to) = tokio::io::split(far);
    let outward = async move {
        while let Ok(Some(frame)) = receiver.next().await {
            match frame.opcode {
                BINARY if to.write_all(&frame.payload).await.is_err() => return,
                CLOSE => break,
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
            if sender.send(BINARY, &[&buffer[..n]]).await.is_err() {
                return;
            }
        }
        let _ = sender.close(1000).await;
    };
    // A finished test closes the connection, even in the middle of a blocked message.
    tokio::spawn(async move {
        tokio::select! {
            () = outward => {}
            () = inward => {}
        }
    });
    near
}
