//! The way into a pod, and what it ends with.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;

/// The way into the pod. Dropped, it ends with a FIN, like the connections of a process that has ended; but if something
/// that the client has sent does not arrive, the whole connection ends with a reset (RFC 9293 section 3.5.2).
pub(super) struct PodWriter {
    half: Option<OwnedWriteHalf>,
    /// What was handed in last was not all taken.
    is_torn: bool,
}

impl PodWriter {
    pub(super) fn new(half: OwnedWriteHalf) -> Self {
        Self {
            half: Some(half),
            is_torn: false,
        }
    }

    /// There should have been more.
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
            // It fails only for one that has ended anyway.
            let _ended = half.as_ref().set_zero_linger();
            // With the last half it is closed; to drop this one would send a FIN before.
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
            // By the pod itself.
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
