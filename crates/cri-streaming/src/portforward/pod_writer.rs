//! Writing to a pod, and how the connection is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;

/// The writing half of a connection into a pod. Dropping it sends a FIN, as for a process that has exited; but if data of
/// the client was lost, the whole connection is reset (RFC 9293 section 3.5.2).
pub(super) struct PodWriter {
    half: Option<OwnedWriteHalf>,
    /// Set if the last write was not accepted completely.
    is_torn: bool,
}

impl PodWriter {
    pub(super) fn new(half: OwnedWriteHalf) -> Self {
        Self {
            half: Some(half),
            is_torn: false,
        }
    }

    /// Marks the data as incomplete.
    pub(super) fn tear(mut self) {
        self.is_torn = true;
    }

    fn with<T>(
        &mut self,
        act: impl FnOnce(Pin<&mut OwnedWriteHalf>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.half {
            Some(half) => act(Pin::new(half)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl Drop for PodWriter {
    fn drop(&mut self) {
        if let Some(half) = self.half.take_if(|_| self.is_torn) {
            // Fails only if the connection has already ended.
            let _ended = half.as_ref().set_zero_linger();
            // The socket is closed with its last half; dropping this half now would send a FIN first.
            half.forget();
        }
    }
}

impl AsyncWrite for PodWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.with(|half| half.poll_write(cx, buf));
        self.is_torn = match written {
            Poll::Pending => true,
            Poll::Ready(Ok(n)) => n < buf.len(),
            // Reset by the pod.
            Poll::Ready(Err(_)) => false,
        };
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|half| half.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|half| half.poll_shutdown(cx))
    }
}
