//! Sends the acknowledgements of PINGs together with the frames that follow them.
//!
//! gRPC for Go sends a PING with the data of nearly every response, to estimate the bandwidth of the connection. h2 would
//! acknowledge it before the caller has its response: one more system call in the latency of the call, and the runtime wakes up
//! for it. So an acknowledgement waits for the next frames of this connection, at most `MAX_HOLD_TIME`. RFC 9113, section 6.7,
//! asks for a higher priority than other frames, and sets no time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

use crate::uds::StreamFilter;

/// How long an acknowledgement waits for other frames.
const MAX_HOLD_TIME: Duration = Duration::from_millis(5);

/// Length of a PING frame: header and eight bytes.
const PING_FRAME_LENGTH: usize = 17;

/// Start of the header of an acknowledgement: length, type PING, flag ACK, stream 0.
const ACKNOWLEDGEMENT_HEADER: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];

/// Holds acknowledgements of PINGs back until other frames follow.
#[derive(Debug)]
pub struct HoldPingAcknowledgement {
    /// The acknowledgement, and how much of it was written.
    held: Option<([u8; PING_FRAME_LENGTH], usize)>,
    /// Until when it may wait.
    deadline: Pin<Box<Sleep>>,
}

/// Must be called inside a Tokio runtime.
impl Default for HoldPingAcknowledgement {
    fn default() -> Self {
        Self {
            held: None,
            deadline: Box::pin(sleep(Duration::ZERO)),
        }
    }
}

impl HoldPingAcknowledgement {
    /// Takes a write that is one acknowledgement.
    fn hold(&mut self, bytes: &[u8]) -> bool {
        let Ok(frame) = <[u8; PING_FRAME_LENGTH]>::try_from(bytes) else {
            return false;
        };
        if self.held.is_some() || !frame.starts_with(&ACKNOWLEDGEMENT_HEADER) {
            return false;
        }
        self.held = Some((frame, 0));
        self.deadline.as_mut().reset(Instant::now() + MAX_HOLD_TIME);
        true
    }

    /// Writes the held bytes, and then `bufs`. Returns how much was written of `bufs`.
    fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        while let Some((frame, written)) = &mut self.held {
            let rest = &frame[*written..];
            let mut all = [IoSlice::new(rest); 8];
            let copied = bufs.len().min(all.len() - 1);
            all[1..=copied].copy_from_slice(&bufs[..copied]);
            let sent = ready!(Pin::new(&mut *inner).poll_write_vectored(cx, &all[..=copied]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            if sent < rest.len() {
                *written += sent;
                continue;
            }
            let of_bufs = sent - rest.len();
            self.held = None;
            if of_bufs > 0 || bufs.is_empty() {
                return Poll::Ready(Ok(of_bufs));
            }
        }
        Pin::new(inner).poll_write_vectored(cx, bufs)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamFilter<S> for HoldPingAcknowledgement {
    fn poll_write(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs
            && self.hold(only)
        {
            return Poll::Ready(Ok(PING_FRAME_LENGTH));
        }
        self.poll_send(inner, cx, bufs)
    }

    /// Held bytes count as flushed; the deadline wakes the connection, which flushes again.
    fn poll_flush(&mut self, inner: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_some() {
            if self.deadline.as_mut().poll(cx).is_pending() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_release(inner, cx))?;
        }
        Pin::new(inner).poll_flush(cx)
    }

    fn poll_release(&mut self, inner: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_some() {
            ready!(self.poll_send(inner, cx, &[]))?;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::uds::FilteredStream;

    fn acknowledgement(with: u8) -> [u8; PING_FRAME_LENGTH] {
        let mut frame = [with; PING_FRAME_LENGTH];
        frame[..ACKNOWLEDGEMENT_HEADER.len()].copy_from_slice(&ACKNOWLEDGEMENT_HEADER);
        frame
    }

    fn pair(
        room: usize,
    ) -> (
        FilteredStream<DuplexStream, HoldPingAcknowledgement>,
        DuplexStream,
    ) {
        let (ours, theirs) = duplex(room);
        (
            FilteredStream::new(ours, HoldPingAcknowledgement::default()),
            theirs,
        )
    }

    async fn read(from: &mut DuplexStream, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes).await.expect("bytes");
        bytes
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_sent_with_the_next_frame() {
        let (mut ours, mut theirs) = pair(100);
        ours.write_all(&acknowledgement(7)).await.expect("held");
        ours.flush().await.expect("flushed");
        let early = tokio::time::timeout(MAX_HOLD_TIME / 2, theirs.read_u8()).await;
        assert!(early.is_err(), "nothing was sent yet");
        ours.write_all(b"next").await.expect("written");
        let mut both = acknowledgement(7).to_vec();
        both.extend_from_slice(b"next");
        assert_eq!(read(&mut theirs, both.len()).await, both);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_sent_alone_at_the_deadline() {
        let (mut ours, mut theirs) = pair(100);
        ours.write_all(&acknowledgement(7)).await.expect("held");
        let begun = Instant::now();
        // Like h2, which flushes whenever the connection is woken.
        let mut flushed = 0;
        let flushes = std::future::poll_fn(|cx| {
            flushed += 1;
            let _ = Pin::new(&mut ours).poll_flush(cx);
            Poll::<()>::Pending
        });
        let arrived = read(&mut theirs, PING_FRAME_LENGTH);
        let arrived = tokio::select! {
            biased;
            arrived = arrived => arrived,
            () = flushes => unreachable!("never ready"),
        };
        assert_eq!(arrived, acknowledgement(7));
        assert!(begun.elapsed() >= MAX_HOLD_TIME);
        assert_eq!(flushed, 2, "once at first, once at the deadline");
    }

    #[tokio::test]
    async fn a_second_one_releases_the_first_in_order() {
        // Capacity for less than a frame: everything is written in pieces.
        let (mut ours, mut theirs) = pair(5);
        let written = tokio::spawn(async move {
            for with in [1, 2, 3] {
                ours.write_all(&acknowledgement(with)).await.expect("taken");
            }
            ours.write_all(b"end").await.expect("written");
            ours.shutdown().await.expect("shut down");
        });
        let mut all = Vec::new();
        theirs.read_to_end(&mut all).await.expect("all");
        written.await.expect("written");
        let want = [1, 2, 3].map(acknowledgement).concat();
        assert_eq!(all, [&want[..], b"end"].concat());
    }

    #[tokio::test]
    async fn it_is_sent_before_shutdown() {
        let (mut ours, mut theirs) = pair(100);
        ours.write_all(&acknowledgement(9)).await.expect("held");
        ours.shutdown().await.expect("shut down");
        assert_eq!(
            read(&mut theirs, PING_FRAME_LENGTH).await,
            acknowledgement(9)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn other_frames_are_not_held() {
        let (mut ours, mut theirs) = pair(100);
        let mut ping = acknowledgement(1);
        ping[4] = 0;
        ours.write_all(&ping).await.expect("written");
        assert_eq!(read(&mut theirs, PING_FRAME_LENGTH).await, ping);
    }
}
