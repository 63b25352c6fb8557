//! A unix stream socket made for request and answer.
//!
//! On a unix socket every read of the peer makes our end writable again, and a socket registered for both directions
//! with edge triggering is woken for it: several empty turns of the event loop per call. So this stream asks the kernel
//! about reading only. It writes directly, and registers a duplicate of the descriptor for writing only after the
//! kernel said the buffer is full, until it is empty again.
//!
//! Small writes are gathered until the flush: HEADERS, DATA and trailers leave in one system call instead of three.
//!
//! A gRPC-Go peer sends a PING with almost every call to estimate its bandwidth. The answer to it is not urgent: it
//! waits for company for a few milliseconds, so that it does not get between a call and its answer.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use nix::sys::socket::{MsgFlags, Shutdown, recv, sendmsg, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Writes below this many bytes are gathered; above it they go to the kernel without a copy.
const GATHER: usize = 16 * 1024;

/// How long an answer to a PING waits for something else to be sent.
const PONG_DELAY: Duration = Duration::from_millis(5);

/// A PING frame with the ACK flag, less its eight bytes of payload (RFC 9113, section 6.7).
const PONG_HEAD: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];
const PONG_LEN: usize = PONG_HEAD.len() + 8;

/// See the module documentation.
#[derive(Debug)]
pub struct Stream {
    readable: AsyncFd<UnixStream>,
    writable: Option<AsyncFd<UnixStream>>,
    pending: BytesMut,
    /// Runs while answers to PINGs wait.
    pong_delay: Option<Pin<Box<Sleep>>>,
    pong_waits: bool,
}

/// Whether there is nothing to send but answers to PINGs.
fn only_pongs(pending: &[u8]) -> bool {
    let (frames, rest) = pending.as_chunks::<PONG_LEN>();
    rest.is_empty() && frames.iter().all(|frame| frame.starts_with(&PONG_HEAD))
}

/// Registers a socket with the runtime.
#[allow(unsafe_code)]
fn register(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: a `UnixStream` owns its descriptor and gives the same one for as long as it lives, which is as long as
    // the `AsyncFd` that takes it over; nothing here lets the socket out again.
    unsafe { AsyncFd::register_with_interest(socket, interest) }.map_err(Into::into)
}

impl Stream {
    /// Takes a connected socket over. Must be called inside a Tokio runtime.
    ///
    /// # Errors
    /// If the socket cannot be made non-blocking or registered with the runtime.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            readable: register(socket, Interest::READABLE)?,
            writable: None,
            pending: BytesMut::new(),
            pong_delay: None,
            pong_waits: false,
        })
    }

    /// Waits until there is something to read, or the other end has left.
    ///
    /// # Errors
    /// If the runtime is shutting down.
    pub async fn readable(&self) -> io::Result<()> {
        self.readable.readable().await?.retain_ready();
        Ok(())
    }

    /// Sends, or waits until the kernel takes more.
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

    /// Ready once the answers to PINGs have waited long enough.
    fn poll_pong_delay(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let delay = self
            .pong_delay
            .get_or_insert_with(|| Box::pin(sleep(PONG_DELAY)));
        if !std::mem::replace(&mut self.pong_waits, true) {
            delay.as_mut().reset(Instant::now() + PONG_DELAY);
        }
        delay.as_mut().poll(cx)
    }

    /// Sends all that was gathered.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let pending = std::mem::take(&mut self.pending);
            let sent = self.poll_send(cx, &[IoSlice::new(&pending)]);
            self.pending = pending;
            match ready!(sent)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.pending.advance(n),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
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

impl AsyncWrite for Stream {
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
        let total = bufs.iter().map(|b| b.len()).sum::<usize>();
        if self.pending.len() + total <= GATHER {
            for buf in bufs {
                self.pending.extend_from_slice(buf);
            }
            return Poll::Ready(Ok(total));
        }
        ready!(self.poll_drain(cx))?;
        self.poll_send(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pending.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if only_pongs(&self.pending) {
            ready!(self.poll_pong_delay(cx));
        }
        ready!(self.poll_drain(cx))?;
        self.pong_waits = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
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

    fn pair() -> (Stream, Stream) {
        let (a, b) = UnixStream::pair().expect("socket pair");
        (
            Stream::new(a).expect("stream"),
            Stream::new(b).expect("stream"),
        )
    }

    #[tokio::test]
    async fn more_than_the_kernel_takes_arrives_whole() {
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
    async fn small_writes_leave_as_one() {
        let (mut a, b) = pair();
        for part in [b"one ".as_slice(), b"two ", b"three"] {
            a.write_all(part).await.expect("write");
        }
        let mut buf = [0; 64];
        assert_eq!(
            recv(
                b.readable.get_ref().as_raw_fd(),
                &mut buf,
                MsgFlags::empty()
            ),
            Err(nix::Error::EAGAIN),
            "nothing may leave before the flush"
        );
        a.flush().await.expect("flush");
        let n = recv(
            b.readable.get_ref().as_raw_fd(),
            &mut buf,
            MsgFlags::empty(),
        );
        assert_eq!(n, Ok(13));
    }

    #[tokio::test]
    async fn an_answer_to_a_ping_waits_for_company_but_not_for_ever() {
        let (mut a, mut b) = pair();
        let pong = [&PONG_HEAD[..], b"12345678"].concat();
        a.write_all(&pong).await.expect("write");
        let flushed = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut a).poll_flush(cx))).await;
        assert!(flushed.is_pending());
        a.write_all(b"company").await.expect("write");
        a.flush().await.expect("flush");
        let mut buf = [0; 64];
        assert_eq!(
            b.read(&mut buf).await.expect("read"),
            pong.len() + 7,
            "one write"
        );

        a.write_all(&pong).await.expect("write");
        a.flush().await.expect("flush by itself");
        assert_eq!(b.read(&mut buf).await.expect("read"), pong.len());
    }

    #[test]
    fn only_answers_to_pings_may_wait() {
        let pong = [&PONG_HEAD[..], b"12345678"].concat();
        let mut ping = pong.clone();
        ping[4] = 0;
        assert!(only_pongs(&[&pong[..], &pong].concat()));
        assert!(!only_pongs(&ping));
        assert!(!only_pongs(&pong[1..]));
        assert!(!only_pongs(&[&pong[..], b"x"].concat()));
    }

    #[tokio::test]
    async fn a_peer_that_left_is_an_error_not_a_signal() {
        let (mut a, b) = pair();
        drop(b);
        a.write_all(b"x").await.expect("gathered");
        let e = a.flush().await.expect_err("peer is gone");
        assert_eq!(e.kind(), io::ErrorKind::BrokenPipe);
    }
}
