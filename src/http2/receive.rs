//! What comes in: each frame finds whom it is for (RFC 9113, sections 5 and 6).

use std::task::{Context, Poll, ready};

use tokio::io::AsyncRead;

use super::blocks::Blocks;
use super::control;
use super::core::{Core, Role};
use super::error::{Error, Fault, Reason, protocol};
use super::frame::{self, Head};
use super::io::Input;

/// How many more streams may be a waste than are answered. A kubelet that restarts drops many at once.
const MAX_WASTED: usize = 1024;

/// Reads frames.
#[derive(Debug)]
pub(super) struct Receiver {
    input: Input,
    blocks: Blocks,
    /// What the other end has to say first.
    preface: &'static [u8],
    is_greeted: bool,
    /// Streams that were no use to anybody, less those that were answered.
    wasted: usize,
    /// The other end knows that this one is leaving.
    pub(super) is_left: bool,
}

impl Receiver {
    pub(super) fn new(preface: &'static [u8]) -> Self {
        Self {
            input: Input::default(),
            blocks: Blocks::default(),
            preface,
            is_greeted: false,
            wasted: 0,
            is_left: false,
        }
    }

    /// Reads once. Gives whether that was not the end.
    pub(super) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Error>> {
        Poll::Ready(Ok(ready!(self.input.poll_read(io, cx))? > 0))
    }

    /// Takes in all frames that are here.
    pub(super) fn frames(&mut self, core: &mut Core) -> Result<(), Fault> {
        let expected = self.preface.len().min(self.input.bytes().len());
        let (now, later) = self.preface.split_at(expected);
        if !self.input.bytes().starts_with(now) {
            return Err(protocol("no HTTP/2 preface"));
        }
        self.preface = later;
        self.input.skip(expected);
        while self.preface.is_empty()
            && let Some(head) = self.input.frame()?
        {
            match self.frame(core, head) {
                Ok(()) => {}
                Err(Fault::Stream(id, reason)) => self.refuse(core, id, reason)?,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn frame(&mut self, core: &mut Core, head: Head) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.is_greeted, true) {
            if head.kind != frame::SETTINGS {
                return Err(protocol("the first frame is not SETTINGS"));
            }
            if core.role == Role::Client {
                core.max_streams = usize::MAX;
            }
        }
        if self.blocks.has_begun() && head.kind != frame::CONTINUATION {
            return Err(protocol("a header block was broken off"));
        }
        if head.kind == frame::DATA {
            return self.data(core, head);
        }
        let payload = self.input.payload(head);
        let mut is_waste = false;
        let done = match head.kind {
            frame::HEADERS => self.blocks.headers(core, head, payload),
            frame::CONTINUATION => self.blocks.continuation(core, head, payload),
            frame::RST_STREAM => {
                control::reset(core, head, payload).map(|is_unseen| is_waste = is_unseen)
            }
            frame::SETTINGS => control::settings(core, head, payload),
            frame::PING => {
                control::ping(core, head, payload).map(|is_left| self.is_left |= is_left)
            }
            frame::GOAWAY => control::go_away(core, head, payload),
            frame::WINDOW_UPDATE => control::window_update(core, head, payload),
            frame::PRIORITY if head.stream == 0 => Err(protocol("PRIORITY of no stream")),
            frame::PRIORITY if head.len != 5 => {
                Err(Fault::Stream(head.stream, Reason::FRAME_SIZE_ERROR))
            }
            frame::PUSH_PROMISE => Err(protocol("PUSH_PROMISE was not asked for")),
            // PRIORITY says nothing any more (RFC 9113, 5.3.2), and frames nobody knows never did.
            _ => Ok(()),
        };
        self.input.skip(frame::HEAD + head.len);
        match is_waste {
            true => self.wasted(),
            false => done,
        }
    }

    /// Resets a stream that is at fault.
    fn refuse(&mut self, core: &mut Core, id: u32, reason: Reason) -> Result<(), Fault> {
        match core.streams.find(id) {
            Some(key) => {
                core.reset(key, reason);
                core.fail(key, Error::Protocol(reason, "a stream broke the rules"));
            }
            None => core.reset_id(id, reason),
        }
        core.out.replied(frame::HEAD + 4)?;
        self.wasted()
    }

    /// A stream came to its end.
    pub(super) fn was_answered(&mut self) {
        self.wasted = self.wasted.saturating_sub(1);
    }

    /// A stream was reset for a fault, or before anybody looked at it.
    fn wasted(&mut self) -> Result<(), Fault> {
        self.wasted += 1;
        if self.wasted > MAX_WASTED {
            let what = "too many streams were reset";
            return Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM, what));
        }
        Ok(())
    }

    fn data(&mut self, core: &mut Core, head: Head) -> Result<(), Fault> {
        let room = frame::unpadded(head, self.input.payload(head));
        let (begin, end) = room.ok_or_else(|| protocol("padding beyond the frame"))?;
        self.input.skip(frame::HEAD + begin);
        let piece = self.input.take(end - begin);
        self.input.skip(head.len - end);

        let len = head.len as i64;
        if core.receive_window < len {
            let what = "more data than there was room for";
            return Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR, what));
        }
        core.receive_window -= len;
        let reset = |reason| Err(Fault::Stream(head.stream, reason));
        let Some(key) = core.streams.find(head.stream) else {
            core.took(None, head.len);
            return match core.may_come_late(head.stream) {
                _ if core.is_idle(head.stream) => Err(protocol("DATA of a stream never opened")),
                true => Ok(()),
                false => reset(Reason::STREAM_CLOSED),
            };
        };
        let stream = &mut core.streams[key];
        stream.receive_window -= len;
        let is_end = head.has(frame::END_STREAM);
        let fault = if stream.received_all {
            Some(Reason::STREAM_CLOSED)
        } else if stream.receive_window < 0 {
            Some(Reason::FLOW_CONTROL_ERROR)
        } else if !stream.expects(piece.len(), is_end) {
            Some(Reason::PROTOCOL_ERROR)
        } else {
            None
        };
        if stream.is_unread || fault.is_some() {
            core.took(None, head.len);
            if let Some(reason) = fault {
                return reset(reason);
            }
        } else {
            let padding = head.len - piece.len();
            if !piece.is_empty() {
                stream.push(piece);
            }
            stream.wake_reader();
            if padding > 0 {
                core.took(Some(key), padding);
            }
        }
        if is_end {
            core.received_all(key);
        }
        Ok(())
    }
}
