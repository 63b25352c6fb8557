//! Sends the frames of a response together.
//!
//! h2 writes each DATA frame with a system call of its own, and each wakes the caller: 64 of both for a list of 1,000 containers. After a
//! DATA frame more of the response follows, at least its trailers. So DATA frames wait for it, at most until the connection is
//! polled again, which it asks for itself. Everything else is sent at once.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::uds::StreamFilter;

/// The longest payload of a DATA frame, in bytes: the default and the minimum of `SETTINGS_MAX_FRAME_SIZE` (RFC 9113, section 6.5.2).
const MAX_FRAME_PAYLOAD: usize = 16 << 10;

/// Most bytes that wait: eight full frames with their headers, as many as are read from a runtime at once.
const MAX_HELD_BYTES: usize = 8 * (9 + MAX_FRAME_PAYLOAD);

/// Sends the DATA frames of a response together.
#[derive(Debug, Default)]
pub(super) struct BatchFrames {
    waiting: Vec<u8>,
    /// How much of it was sent.
    sent: usize,
}

impl BatchFrames {
    /// Returns whether another full frame may be added before the waiting frames are sent.
    fn has_room(&self) -> bool {
        self.sent == 0 && self.waiting.len() + MAX_FRAME_PAYLOAD <= MAX_HELD_BYTES
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamFilter<S> for BatchFrames {
    /// A connection reads first whenever it is polled, so frames that have waited since the last poll are sent here.
    fn poll_read(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.poll_release(inner, cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(inner).poll_read(cx, buf)
    }

    fn poll_write(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        if self.waiting.len() + length > MAX_HELD_BYTES {
            ready!(self.poll_release(inner, cx))?;
        }
        if self.waiting.is_empty() {
            // The payload of a DATA frame is a slice of its own, unless it is so short that h2 copies it.
            if bufs.len() < 2 || length > MAX_HELD_BYTES {
                return Pin::new(inner).poll_write_vectored(cx, bufs);
            }
            cx.waker().wake_by_ref();
        }
        for buf in bufs {
            self.waiting.extend_from_slice(buf);
        }
        Poll::Ready(Ok(length))
    }

    /// Frames that wait for more count as flushed.
    fn poll_flush(&mut self, inner: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_room() {
            ready!(self.poll_release(inner, cx))?;
        }
        Pin::new(inner).poll_flush(cx)
    }

    fn poll_release(&mut self, inner: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.waiting.len() {
            let rest = &self.waiting[self.sent..];
            let sent = ready!(Pin::new(&mut *inner).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.waiting.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uds::FilteredStream;

    type BatchedStream = FilteredStream<Peer, BatchFrames>;

    /// Takes a number of bytes, and notes each write.
    #[derive(Default)]
    struct Peer {
        space: usize,
        writes: Vec<Vec<u8>>,
    }

    impl AsyncRead for Peer {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Peer {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.space);
            if taken == 0 {
                return Poll::Pending;
            }
            self.space -= taken;
            self.writes.push(buf[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn stream(space: usize) -> BatchedStream {
        let peer = Peer {
            space,
            ..Peer::default()
        };
        BatchedStream::new(peer, BatchFrames::default())
    }

    /// Writes and flushes like h2; returns whether both were done.
    fn write(stream: &mut BatchedStream, bytes: &[u8]) -> bool {
        write_slices(stream, &[IoSlice::new(bytes)])
    }

    /// A DATA frame: its header, and its payload.
    fn write_data(stream: &mut BatchedStream, frame: &[u8]) -> bool {
        let (header, payload) = frame.split_at(9);
        write_slices(stream, &[IoSlice::new(header), IoSlice::new(payload)])
    }

    fn write_slices(stream: &mut BatchedStream, bufs: &[IoSlice<'_>]) -> bool {
        let length: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match Pin::new(&mut *stream).poll_write_vectored(&mut cx, bufs) {
            Poll::Ready(written) => assert_eq!(written.expect("written"), length),
            Poll::Pending => return false,
        }
        Pin::new(stream).poll_flush(&mut cx).is_ready()
    }

    fn read(stream: &mut BatchedStream) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let read = Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(&mut []));
        assert!(read.is_pending());
    }

    fn lengths(stream: &BatchedStream) -> Vec<usize> {
        stream.inner.writes.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_short_response_is_sent_at_once() {
        let mut stream = stream(usize::MAX);
        assert!(write(&mut stream, b"headers"));
        assert!(write(&mut stream, b"trailers"));
        assert_eq!(lengths(&stream), [7, 8]);
    }

    #[test]
    fn data_is_sent_together_with_the_trailers() {
        let mut stream = stream(usize::MAX);
        assert!(write_data(&mut stream, &[1; 9 + 300]));
        assert!(write(&mut stream, b"trailers"));
        assert!(stream.inner.writes.is_empty());
        read(&mut stream);
        assert_eq!(lengths(&stream), [9 + 300 + 8]);
    }

    #[test]
    fn full_frames_are_sent_together_with_what_follows() {
        let mut stream = stream(usize::MAX);
        let full = [1; 9 + MAX_FRAME_PAYLOAD];
        assert!(write_data(&mut stream, &full));
        assert!(write_data(&mut stream, &full));
        assert!(write(&mut stream, b"trailers"));
        assert!(stream.inner.writes.is_empty());
        read(&mut stream);
        assert_eq!(lengths(&stream), [2 * full.len() + 8]);
        assert!(write(&mut stream, b"headers"));
        assert_eq!(lengths(&stream)[1..], [7]);
    }

    #[test]
    fn not_more_waits_than_there_is_room_for() {
        let mut stream = stream(usize::MAX);
        let full = [1; 9 + MAX_FRAME_PAYLOAD];
        for _ in 0..17 {
            assert!(write_data(&mut stream, &full));
        }
        assert_eq!(lengths(&stream), [MAX_HELD_BYTES, MAX_HELD_BYTES]);
        // A caller may allow longer frames.
        assert!(write(&mut stream, &[2; MAX_HELD_BYTES + 1]));
        assert_eq!(lengths(&stream)[2..], [full.len(), MAX_HELD_BYTES + 1]);
    }

    #[test]
    fn a_slow_reader_holds_the_connection_back_and_loses_nothing() {
        let mut stream = stream(100);
        let frames: Vec<_> = (0..9)
            .map(|number| vec![number; 9 + MAX_FRAME_PAYLOAD])
            .collect();
        for frame in &frames[..7] {
            assert!(write_data(&mut stream, frame));
        }
        assert!(!write_data(&mut stream, &frames[7]), "it is not flushed");
        assert!(!write_data(&mut stream, &frames[8]), "there is no room");
        stream.inner.space = usize::MAX;
        assert!(write_data(&mut stream, &frames[8]));
        read(&mut stream);
        assert_eq!(stream.inner.writes.concat(), frames.concat());
    }

    #[test]
    fn the_task_is_woken_to_send_what_waits() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};

        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Arc::clone(&woken).into();
        let mut cx = Context::from_waker(&waker);
        let mut stream = stream(usize::MAX);
        let frame = [IoSlice::new(&[0; 9]), IoSlice::new(&[0; MAX_FRAME_PAYLOAD])];
        let written = Pin::new(&mut stream).poll_write_vectored(&mut cx, &frame);
        assert!(written.is_ready() && woken.0.load(Ordering::Relaxed));
        let shut = Pin::new(&mut stream).poll_shutdown(&mut cx);
        assert!(shut.is_ready());
        assert_eq!(lengths(&stream), [9 + MAX_FRAME_PAYLOAD]);
    }
}
