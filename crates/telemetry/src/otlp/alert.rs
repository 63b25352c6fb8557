//! The reason of a collector that closes a connection with TLS.
//!
//! With TLS 1.3 a client has finished its handshake before the server checks the client's certificate. So the alert comes after the
//! first write, and a later write may fail with a broken pipe before the alert is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection with TLS whose failed writes return the alert of the other side, if it has sent one.
pub(super) struct TlsAlertStream<S> {
    stream: S,
    /// The error of a failed write, while the rest of the connection is being read.
    failed: Option<io::Error>,
}

impl<S: AsyncRead + Unpin> TlsAlertStream<S> {
    pub(super) fn new(stream: S) -> Self {
        let failed = None;
        Self { stream, failed }
    }

    /// Reads to the end of a connection after `error`. Returns the alert if there is one, else `error`. Other data that is read is
    /// lost with the connection.
    fn poll_cause(&mut self, error: io::Error, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut bytes = [0; 1024];
        loop {
            let mut into = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) if !into.filled().is_empty() => {}
                // rustls: an alert, or no TLS
                Poll::Ready(Err(alert)) if alert.kind() == io::ErrorKind::InvalidData => {
                    return Poll::Ready(alert);
                }
                Poll::Ready(_) => return Poll::Ready(error),
                Poll::Pending => {
                    self.failed = Some(error);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TlsAlertStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsAlertStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = match self.failed.take() {
            Some(error) => Err(error),
            None => ready!(Pin::new(&mut self.stream).poll_write(cx, bytes)),
        };
        match written {
            Ok(count) => Poll::Ready(Ok(count)),
            Err(error) => self.poll_cause(error, cx).map(Err),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = match self.failed.take() {
            Some(error) => Err(error),
            None => ready!(Pin::new(&mut self.stream).poll_flush(cx)),
        };
        match flushed {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => self.poll_cause(error, cx).map(Err),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
