//! A unix stream socket for request and response traffic.
//!
//! On a unix socket every read by the peer makes our end writable again, and an edge-triggered registration for both
//! directions is woken by it: several empty turns of the event loop per call. So this stream registers for reading only. It
//! writes directly, and registers a duplicate of the descriptor for writing only while the kernel's buffer is full.
//!
//! The stream has no buffer: written bytes are in the kernel. h2 batches frames.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{MsgFlags, Shutdown, recv, sendmsg, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A unix stream socket that registers for writing only while the kernel's buffer is full.
#[derive(Debug)]
pub struct SocketStream {
    readable: AsyncFd<UnixStream>,
    writable: Option<AsyncFd<UnixStream>>,
}

/// Registers a socket of the standard library with the async runtime.
#[allow(unsafe_code)]
pub(super) fn register<S: AsRawFd + Into<OwnedFd>>(
    socket: S,
    interest: Interest,
) -> io::Result<AsyncFd<S>> {
    // SAFETY: the standard library's sockets own their descriptors and return the same one for their whole life, as long
    // as the `AsyncFd` that owns it lives; nothing here lets the socket out again.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(Into::into)
}

impl SocketStream {
    /// Takes a connected socket over. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking or registered with the runtime.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            readable: register(socket, Interest::READABLE)?,
            writable: None,
        })
    }

    /// Waits until there is data to read, or the peer has closed.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.readable.readable().await?.retain_ready();
        Ok(())
    }

    /// Sends, or waits until the kernel has buffer space.
    fn poll_send(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(writable) = &self.writable {
                ready!(writable.poll_write_ready(cx))?.clear_ready();
            }
            let fd = self.readable.get_ref().as_raw_fd();
            match sendmsg::<()>(fd, bufs, &[], MsgFlags::MSG_NOSIGNAL, None) {
                Ok(n) => {
                    self.writable = None;
                    return Poll::Ready(Ok(n));
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => {
                    if self.writable.is_none() {
                        let duplicate = self.readable.get_ref().try_clone()?;
                        self.writable = Some(register(duplicate, Interest::WRITABLE)?);
                    }
                }
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

impl AsyncRead for SocketStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.readable.poll_read_ready(cx))?;
            let space = buf.initialize_unfilled();
            let room = space.len();
            let fd = self.readable.get_ref().as_raw_fd();
            match recv(fd, space, MsgFlags::empty()) {
                Ok(n) => {
                    // A short read emptied the socket; the next byte raises a new edge. An end of file stays ready.
                    if n > 0 && n < room {
                        guard.clear_ready();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(nix::Error::EAGAIN) => guard.clear_ready(),
                Err(nix::Error::EINTR) => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }
}

impl AsyncWrite for SocketStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(self.readable.get_ref().as_raw_fd(), Shutdown::Write) {
            Ok(()) | Err(nix::Error::ENOTCONN) => Poll::Ready(Ok(())),
            Err(e) => Poll::Ready(Err(e.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (SocketStream, SocketStream) {
        let (a, b) = UnixStream::pair().expect("socket pair");
        (
            SocketStream::new(a).expect("stream"),
            SocketStream::new(b).expect("stream"),
        )
    }

    #[tokio::test]
    async fn writes_larger_than_the_socket_buffer_arrive_complete() {
        let (mut a, mut b) = pair();
        let sent: Vec<u8> = (0..4_000_000u32).map(|i| (i % 251) as u8).collect();
        let copy = sent.clone();
        let writer = tokio::spawn(async move {
            for chunk in sent.chunks(100_003) {
                a.write_all(chunk).await.expect("write");
            }
            a.flush().await.expect("flush");
            a.shutdown().await.expect("shutdown");
        });
        let mut received = Vec::new();
        b.read_to_end(&mut received).await.expect("read");
        writer.await.expect("writer");
        assert!(received == copy);
    }

    #[tokio::test]
    async fn a_closed_peer_is_an_error_not_a_signal() {
        let (mut a, b) = pair();
        drop(b);
        let e = a.write_all(b"x").await.expect_err("peer is gone");
        assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
    }
}
