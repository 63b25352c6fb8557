//! The reason of a collector that closes a connection with TLS.
//!
//! With TLS 1.3 a client has finished its handshake before the server checks the client's certificate. So the alert comes after the
//! first write, and a later write may fail with a broken pipe before the alert is read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use criscope_grpc::uds::StreamFilter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Makes failed writes of a connection with TLS return the alert of the other side, if it has sent one.
#[derive(Default)]
pub(super) struct TlsAlert {
    /// The error of a failed write, while the rest of the connection is being read.
    failed: Option<io::Error>,
}

impl TlsAlert {
    /// Writes, and after an error reads to the end of the connection. Returns the alert if there is one, else the error. Other
    /// data that is read is lost with the connection.
    fn poll_write_with<S: AsyncRead + Unpin, T>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let error = match self.failed.take() {
            Some(error) => error,
            None => match ready!(write(Pin::new(&mut *stream), cx)) {
                Ok(written) => return Poll::Ready(Ok(written)),
                Err(error) => error,
            },
        };
        let mut bytes = [0; 1024];
        loop {
            let mut into = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) if !into.filled().is_empty() => {}
                // rustls: an alert, or no TLS
                Poll::Ready(Err(alert)) if alert.kind() == io::ErrorKind::InvalidData => {
                    return Poll::Ready(Err(alert));
                }
                Poll::Ready(_) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.failed = Some(error);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamFilter<S> for TlsAlert {
    fn poll_write(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(stream, cx, |stream, cx| {
            stream.poll_write_vectored(cx, bufs)
        })
    }

    fn poll_flush(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_write_with(stream, cx, S::poll_flush)
    }
}
