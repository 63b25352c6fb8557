//! Input: one read returns many frames. Data is passed on in the pieces in which it arrives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use super::error::MalformedFrame;
use super::frame::{self, FrameHead};

/// Capacity of one read, in bytes. A control frame fits.
pub(super) const READ_LEN: usize = frame::FRAME_HEAD_LEN + frame::MAX_CONTROL_LEN;

/// Minimum capacity that is worth a read.
const MIN_READ_LEN: usize = 4 * 1024;

/// The read buffer.
#[derive(Debug)]
pub(super) struct FrameInput {
    /// Bytes that were read, followed by spare capacity.
    buf: BytesMut,
    filled: usize,
    at: ParseState,
}

/// The element that the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum ParseState {
    Head,
    Data { id: u32, flags: u8, left: usize },
    Skipped { left: usize },
}

/// Parsed input.
#[derive(Debug)]
pub(super) enum FrameEvent {
    /// A piece of a stream's data; the last piece of a frame has the frame's flags.
    Data { id: u32, piece: BytesMut, flags: u8 },
    /// A whole control frame.
    Control {
        kind: u16,
        flags: u8,
        payload: BytesMut,
    },
}

impl FrameInput {
    pub(super) fn new() -> Self {
        Self {
            buf: BytesMut::new(),
            filled: 0,
            at: ParseState::Head,
        }
    }

    /// Reads once. Returns the number of bytes; 0 is the end.
    pub(super) fn poll_read<T: AsyncRead + Unpin + ?Sized>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut buf = ReadBuf::new(&mut self.buf[self.filled..]);
        ready!(Pin::new(io).poll_read(cx, &mut buf))?;
        let n = buf.filled().len();
        self.filled += n;
        Poll::Ready(Ok(n))
    }

    /// Discards everything that was read.
    pub(super) fn discard(&mut self) {
        self.skip(self.filled);
    }

    fn make_room(&mut self) {
        let wanted = match self.frame() {
            // The rest of a read is not data: it is an incomplete control frame or head.
            Ok(Some(FrameHead::Control { len, .. })) => frame::FRAME_HEAD_LEN + len,
            _ => self.filled + MIN_READ_LEN,
        };
        if self.buf.len() >= wanted {
            return;
        }
        if self.filled == 0 {
            self.buf.clear();
            // Reuses the memory if no piece of it is in use.
            if self.buf.try_reclaim(READ_LEN) {
                return self.buf.resize(READ_LEN, 0);
            }
        }
        let mut buf = BytesMut::zeroed(READ_LEN);
        buf[..self.filled].copy_from_slice(&self.buf[..self.filled]);
        self.buf = buf;
    }

    /// The head at the front of the buffer, if it is complete.
    fn frame(&self) -> Result<Option<FrameHead>, MalformedFrame> {
        match (self.at, self.buf[..self.filled].first_chunk()) {
            (ParseState::Head, Some(head)) => FrameHead::read(head).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the next complete element.
    pub(super) fn next(&mut self) -> Result<Option<FrameEvent>, MalformedFrame> {
        loop {
            match self.at {
                ParseState::Data { id, flags, left } => return Ok(self.data(id, flags, left)),
                ParseState::Skipped { left } => {
                    let part = left.min(self.filled);
                    self.skip(part);
                    if part < left {
                        self.at = ParseState::Skipped { left: left - part };
                        return Ok(None);
                    }
                    self.at = ParseState::Head;
                }
                ParseState::Head => match self.frame()? {
                    None => return Ok(None),
                    Some(FrameHead::Data { id, flags, len }) => {
                        self.skip(frame::FRAME_HEAD_LEN);
                        self.at = ParseState::Data {
                            id,
                            flags,
                            left: len,
                        };
                    }
                    Some(FrameHead::Control { kind, flags, len }) if frame::is_kept(kind) => {
                        if self.filled < frame::FRAME_HEAD_LEN + len {
                            return Ok(None);
                        }
                        self.skip(frame::FRAME_HEAD_LEN);
                        let payload = self.take(len);
                        return Ok(Some(FrameEvent::Control {
                            kind,
                            flags,
                            payload,
                        }));
                    }
                    Some(FrameHead::Control { len, .. }) => {
                        self.skip(frame::FRAME_HEAD_LEN);
                        self.at = ParseState::Skipped { left: len };
                    }
                },
            }
        }
    }

    fn data(&mut self, id: u32, flags: u8, left: usize) -> Option<FrameEvent> {
        let part = left.min(self.filled);
        if part == 0 && left > 0 {
            return None;
        }
        let left = left - part;
        self.at = match left {
            0 => ParseState::Head,
            _ => ParseState::Data { id, flags, left },
        };
        let flags = if left == 0 { flags } else { 0 };
        let piece = self.take(part);
        Some(FrameEvent::Data { id, piece, flags })
    }

    fn skip(&mut self, n: usize) {
        self.buf.advance(n);
        self.filled -= n;
    }

    /// Takes bytes out without copying them.
    fn take(&mut self, n: usize) -> BytesMut {
        self.filled -= n;
        self.buf.split_to(n)
    }
}
