//! A byte stream inside WebSocket messages: SPDY for clients that reach the server through WebSocket proxies. Message
//! boundaries have no meaning.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::PollSender;
use tokio_util::task::AbortOnDropHandle;

use crate::pipe::{StreamPipe, pipe};
use crate::websocket::{self, PROTOCOL_ERROR, WebSocketReader, binary};

/// Maximum size of a message, in bytes. Clients have buffers of 32 KiB.
const MAX_MESSAGE_LEN: usize = 32 << 10;

/// The byte stream.
pub(crate) struct WebSocketTunnel {
    input: StreamPipe,
    output: PollSender<Bytes>,
    /// The task that reads and writes the connection. Shutdown of this side waits for it.
    writing: Option<tokio::task::JoinHandle<io::Result<()>>>,
    _reading: AbortOnDropHandle<()>,
}

impl WebSocketTunnel {
    pub(crate) fn new<T>(io: T) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read, write) = tokio::io::split(io);
        let (frames, control, writing) = websocket::start(write);
        let (sender, input) = pipe();
        let reading = async move {
            let mut reader = WebSocketReader::new(read, control.clone());
            // Clients report their own errors in text messages, which end the stream.
            let ended = loop {
                match reader.next().await {
                    // SPDY no longer reads if this fails, but the client's close frame is still to come.
                    Ok(Some(piece)) if !piece.text => drop(sender.send(piece.bytes).await),
                    ended => break ended,
                }
            };
            if ended.is_err_and(|error| error.kind() == io::ErrorKind::InvalidData) {
                control.fail(PROTOCOL_ERROR);
            }
        };
        Self {
            input,
            output: PollSender::new(frames),
            writing: Some(tokio::spawn(writing)),
            _reading: AbortOnDropHandle::new(tokio::spawn(reading)),
        }
    }
}

impl Drop for WebSocketTunnel {
    fn drop(&mut self) {
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }
}

impl AsyncRead for WebSocketTunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(cx, buf)
    }
}

impl AsyncWrite for WebSocketTunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(self.output.poll_reserve(cx)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        let mut message = Vec::with_capacity(total.min(MAX_MESSAGE_LEN));
        for buf in bufs {
            let n = buf.len().min(MAX_MESSAGE_LEN - message.len());
            message.extend_from_slice(&buf[..n]);
        }
        let frame = binary(&message, b"");
        let sent = self.output.send_item(frame);
        sent.map_err(|_| io::ErrorKind::BrokenPipe)?;
        Poll::Ready(Ok(message.len()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.output.close();
        let Some(writing) = &mut self.writing else {
            return Poll::Ready(Ok(()));
        };
        let result = ready!(Pin::new(writing).poll(cx));
        self.writing = None;
        Poll::Ready(result.unwrap_or(Ok(())))
    }
}
