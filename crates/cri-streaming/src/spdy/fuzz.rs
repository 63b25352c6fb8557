//! Fuzz target: arbitrary bytes from the peer of a connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::task::JoinSet;

use super::input::{FrameEvent, FrameInput, READ_LEN};
use super::{ConnectionEnd, SpdyConnection, SpdyLimits, SpdyStream, frame};

/// Runs one connection whose peer sends these bytes, in pieces of the size in the first byte, and closes. Its streams are
/// read, echoed or dropped.
///
/// # Panics
///
/// If the connection does not end cleanly: with all streams removed, memory within the limits, only whole frames sent,
/// and GOAWAY as the last one.
pub fn fuzz(bytes: &[u8]) -> ConnectionEnd {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    runtime.block_on(carry(bytes))
}

async fn carry(bytes: &[u8]) -> ConnectionEnd {
    let limits = SpdyLimits {
        streams: 8,
        unread: 4096,
        unsent: 4096,
        unsent_all: 8192,
        ..SpdyLimits::session(Duration::from_secs(3600))
    };
    let sent = Arc::new(Mutex::new(Vec::new()));
    let wire = ScriptedIo::new(bytes, &sent);
    let (mut streams, driver) = SpdyConnection::server(wire, limits);
    let handle = streams.handle();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut users = JoinSet::new();
        while let Some(stream) = streams.next().await {
            users.spawn(use_up(stream));
        }
        while users.join_next().await.is_some() {}
    });
    let end = driver.await;
    while let Some(result) = tasks.join_next().await {
        result.expect("no panic");
    }
    let left = handle.counters().unread;
    assert_eq!(left, 0, "unread bytes of streams without a user");
    assert_eq!(handle.counters().unsent, 0, "bytes that will not be sent");
    assert!(end.counters.unread_peak <= limits.unread + READ_LEN);
    assert!(end.is_flushed, "{end:?}");
    let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
    check(&sent);
    end
}

async fn use_up(stream: SpdyStream) {
    let kind = stream.id / 2 % 4;
    let (mut reader, mut writer) = stream.split();
    match kind {
        0 => {
            // Fails if the peer resets the stream.
            if tokio::io::copy_buf(&mut reader, &mut writer).await.is_ok() {
                let _ = writer.shutdown().await;
            }
        }
        1 => {
            let _ = writer.shutdown().await;
            let _ = reader.read_to_end(&mut Vec::new()).await;
            writer.reset();
        }
        2 => drop(writer),
        _ => {
            drop(reader);
            let _ = writer.write_all(b"hello").await;
            let _ = writer.shutdown().await;
        }
    }
}

/// Checks that the output consists of whole frames and ends with a GOAWAY.
fn check(sent: &[u8]) {
    let mut bytes = sent;
    let mut input = FrameInput::new();
    let mut last = 0;
    loop {
        while let Some(event) = input.next().expect("our own frames are well-formed") {
            assert_ne!(last, frame::GOAWAY, "something follows GOAWAY");
            last = match event {
                FrameEvent::Data { .. } => 0,
                FrameEvent::Control { kind, .. } => kind,
            };
        }
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let Poll::Ready(Ok(n)) = input.poll_read(&mut bytes, cx) else {
            panic!("a slice is always ready");
        };
        if n == 0 {
            break;
        }
    }
    assert_eq!(last, frame::GOAWAY);
}

/// A connection in memory whose peer sends bytes, in pieces of the size in the first byte, and closes.
pub(crate) struct ScriptedIo {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl ScriptedIo {
    pub(crate) fn new(bytes: &[u8], sent: &Arc<Mutex<Vec<u8>>>) -> Self {
        Self {
            bytes: bytes.to_vec(),
            at: 0,
            piece: 1 + bytes.first().map_or(0, |b| usize::from(*b) * 16),
            sent: Arc::clone(sent),
        }
    }
}

impl AsyncRead for ScriptedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.bytes[self.at..];
        let n = rest.len().min(self.piece).min(buf.remaining());
        buf.put_slice(&rest[..n]);
        self.at += n;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ScriptedIo {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
