//! Bytes in and out: one read brings many frames, one write takes many away.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::error::{Fault, Reason};
use super::frame::{self, Head};

/// Room for one read, in bytes; more when reads fill it, as they do when a large list passes.
const ROOM: usize = 16 * 1024 + frame::HEAD;
const MORE_ROOM: usize = 4 * ROOM;

/// Least room that a read is worth.
const LEAST_ROOM: usize = 4 * 1024;

/// Below this a copy is cheaper than a piece of its own, in bytes.
const COPY: usize = 2048;

/// A writer that has this much to send waits before it takes more from anyone, in bytes.
const ENOUGH: usize = 64 * 1024;

/// Answers to frames of the other end's that may wait to be sent, in bytes. Whoever asks for more does not read.
const MAX_REPLIES: usize = 256 * 1024;

/// Buffers that grew beyond this are not kept, in bytes.
const KEEP: usize = 64 * 1024;

/// How long an answer to a PING waits for something else to be sent. A gRPC-Go peer sends a PING with almost every call
/// to estimate its bandwidth; the answer is not urgent, and should not get between a call and its answer.
const PONG_DELAY: Duration = Duration::from_millis(5);

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Bytes that were read, and behind them room for more.
    buf: BytesMut,
    filled: usize,
    is_busy: bool,
}

impl Input {
    /// Reads once. Gives how much it was; nothing is the end.
    pub(super) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut buf = ReadBuf::new(&mut self.buf[self.filled..]);
        ready!(Pin::new(io).poll_read(cx, &mut buf))?;
        let n = buf.filled().len();
        self.is_busy = buf.remaining() == 0;
        self.filled += n;
        Poll::Ready(Ok(n))
    }

    fn make_room(&mut self) {
        let wanted = match self.filled {
            0 => LEAST_ROOM,
            // A frame that has begun must fit.
            _ => frame::HEAD + frame::MAX_PAYLOAD,
        };
        if self.buf.len() >= wanted {
            return;
        }
        let room = if self.is_busy { MORE_ROOM } else { ROOM };
        if self.filled == 0 && room == ROOM {
            self.buf.clear();
            // The same memory again, if nobody holds a piece of it.
            if self.buf.try_reclaim(room) {
                return self.buf.resize(room, 0);
            }
        }
        let mut buf = BytesMut::zeroed(room);
        buf[..self.filled].copy_from_slice(&self.buf[..self.filled]);
        self.buf = buf;
    }

    /// What was read and not taken yet.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buf[..self.filled]
    }

    /// The head of the next frame, once all of it is there.
    pub(super) fn frame(&self) -> Result<Option<Head>, Fault> {
        let Some(head) = self.bytes().first_chunk() else {
            return Ok(None);
        };
        let head = Head::read(head);
        if head.len > frame::MAX_PAYLOAD {
            let what = "a frame is too large";
            return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, what));
        }
        Ok((self.filled >= frame::HEAD + head.len).then_some(head))
    }

    /// The payload of the frame at the front.
    pub(super) fn payload(&self, head: Head) -> &[u8] {
        &self.buf[frame::HEAD..frame::HEAD + head.len]
    }

    /// Leaves bytes behind.
    pub(super) fn skip(&mut self, n: usize) {
        self.buf.advance(n);
        self.filled -= n;
    }

    /// Takes bytes out, without a copy.
    pub(super) fn take(&mut self, n: usize) -> Bytes {
        self.filled -= n;
        self.buf.split_to(n).freeze()
    }
}

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Output {
    queue: VecDeque<Bytes>,
    /// What comes after the queue.
    tail: Vec<u8>,
    /// How much of the tail is written.
    written: usize,
    queued: usize,
    replies: usize,
    /// How much of the tail is answers to PINGs.
    pongs: usize,
    pong_delay: Option<Pin<Box<Sleep>>>,
    pong_waits: bool,
    /// Something was written since this was last asked.
    has_written: bool,
}

impl Output {
    /// Where frames are appended.
    pub(super) fn buf(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends data; much of it without a copy.
    pub(super) fn data(&mut self, data: Bytes) {
        if data.len() < COPY {
            return self.tail.extend_from_slice(&data);
        }
        let mut tail = Bytes::from(std::mem::take(&mut self.tail));
        tail.advance(std::mem::take(&mut self.written));
        self.queued += tail.len() + data.len();
        self.pongs = 0;
        self.queue.extend([tail, data]);
    }

    /// Notes that so much was appended because the other end asked for it.
    pub(super) fn replied(&mut self, len: usize) -> Result<(), Fault> {
        self.replies += len;
        if self.replies > MAX_REPLIES {
            let what = "too many answers to control frames wait to be read";
            return Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM, what));
        }
        Ok(())
    }

    /// Answers a PING.
    pub(super) fn pong(&mut self, payload: [u8; 8]) -> Result<(), Fault> {
        let len = self.tail.len();
        frame::ping(&mut self.tail, frame::ACK, payload);
        self.pongs += self.tail.len() - len;
        self.replied(self.tail.len() - len)
    }

    /// Ready once answers to PINGs have company, or have waited long enough.
    fn poll_pongs(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pongs == 0 || self.pongs != self.tail.len() || !self.queue.is_empty() {
            return Poll::Ready(());
        }
        let new = || Box::pin(sleep(PONG_DELAY));
        let delay = self.pong_delay.get_or_insert_with(new);
        if !std::mem::replace(&mut self.pong_waits, true) {
            delay.as_mut().reset(Instant::now() + PONG_DELAY);
        }
        delay.as_mut().poll(cx)
    }

    /// Whether anything was written since the last time.
    pub(super) fn has_written(&mut self) -> bool {
        std::mem::take(&mut self.has_written)
    }

    fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.tail.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.queued + self.tail.len() - self.written < ENOUGH
    }

    /// Writes everything.
    pub(super) fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_pongs(cx));
        while !self.is_empty() {
            let tail = &self.tail[self.written..];
            let n = if self.queue.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, tail))?
            } else {
                let mut bufs = [IoSlice::new(&[]); 16];
                let all = self.queue.iter().map(|b| &b[..]).chain([tail]);
                bufs.iter_mut()
                    .zip(all)
                    .for_each(|(buf, bytes)| *buf = IoSlice::new(bytes));
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &bufs))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.has_written = true;
            self.advance(n);
        }
        self.replies = 0;
        self.pongs = 0;
        self.pong_waits = false;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut n: usize) {
        while let Some(first) = self.queue.front_mut() {
            let part = n.min(first.len());
            first.advance(part);
            self.queued -= part;
            n -= part;
            if !first.is_empty() {
                return;
            }
            self.queue.pop_front();
        }
        self.written += n;
        if self.written == self.tail.len() {
            self.written = 0;
            self.tail.clear();
            self.tail.shrink_to(KEEP);
        }
    }
}
