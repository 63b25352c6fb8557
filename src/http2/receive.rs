//! What comes in: each frame, and what the rules make of it (RFC 9113, sections 5 and 6).

use tokio::io::{AsyncRead, AsyncWrite};

use std::io;
use std::task::{Context, Poll, ready};

use super::core::{Core, Role};
use super::error::{Error, Fault, Reason, protocol};
use super::frame::{self, Head};
use super::head::Block;
use super::hpack::decode::Decoder;
use super::io::Input;
use super::stream::Key;
use super::{MAX_HEADER_LIST, MAX_RESETS};

/// Largest flow control window (RFC 9113, 6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;

/// Frames that one header block may come in.
const MAX_PARTS: usize = 256;

/// The payload of the PING that asks whether our GOAWAY has arrived.
pub(super) const LEAVING: [u8; 8] = *b"leaving.";

/// A header block whose end has not come yet.
#[derive(Debug)]
struct Partial {
    head: Head,
    parts: usize,
    block: Vec<u8>,
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct Receiver {
    input: Input,
    decoder: Decoder,
    partial: Option<Partial>,
    /// What the other end has to say first.
    preface: &'static [u8],
    is_greeted: bool,
    /// Streams that were at fault, and those that were reset before anybody looked at them, since the last answer.
    pub(super) resets: usize,
    /// Our second thoughts about leaving have arrived.
    pub(super) is_left: bool,
}

impl Receiver {
    pub(super) fn new(preface: &'static [u8]) -> Self {
        Self {
            input: Input::default(),
            decoder: Decoder::default(),
            partial: None,
            preface,
            is_greeted: false,
            resets: 0,
            is_left: false,
        }
    }

    /// Reads once. Gives whether there was room left, or `None` at the end.
    pub(super) fn poll_read<T: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<bool>>> {
        Poll::Ready(Ok(ready!(self.input.poll_read(io, cx))?))
    }

    /// Takes in all frames that are here.
    pub(super) fn frames(&mut self, core: &mut Core) -> Result<(), Fault> {
        let expected = self.preface.len().min(self.input.bytes().len());
        if expected > 0 {
            let (now, later) = self.preface.split_at(expected);
            if !self.input.bytes().starts_with(now) {
                return Err(protocol("no HTTP/2 preface"));
            }
            self.preface = later;
            self.input.skip(expected);
        }
        while self.preface.is_empty()
            && let Some(head) = self.input.frame()?
        {
            match self.frame(core, head) {
                Ok(()) => {}
                Err(Fault::Stream(id, reason)) => self.fault(core, id, reason)?,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn fault(&mut self, core: &mut Core, id: u32, reason: Reason) -> Result<(), Fault> {
        match core.streams.find(id) {
            Some(key) => {
                core.reset(key, reason);
                core.fail(key, Error::Protocol(reason, "a stream broke the rules"));
            }
            None => frame::reset(core.out.buf(), id, reason),
        }
        core.out.replied(frame::HEAD + 4)?;
        self.was_reset()
    }

    /// A stream that was no use to anybody.
    fn was_reset(&mut self) -> Result<(), Fault> {
        self.resets += 1;
        if self.resets > MAX_RESETS {
            let what = "too many streams were reset";
            return Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM, what));
        }
        Ok(())
    }

    fn frame(&mut self, core: &mut Core, head: Head) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.is_greeted, true) {
            if head.kind != frame::SETTINGS {
                return Err(protocol("the first frame is not SETTINGS"));
            }
            core.max_streams = usize::MAX;
        }
        if self.partial.is_some() && head.kind != frame::CONTINUATION {
            return Err(protocol("a header block was broken off"));
        }
        if head.kind == frame::DATA {
            return self.data(core, head);
        }
        let payload = self.input.payload(head);
        let done = match head.kind {
            frame::HEADERS => headers(&mut self.decoder, &mut self.partial, core, head, payload),
            frame::CONTINUATION => {
                continuation(&mut self.decoder, &mut self.partial, core, head, payload)
            }
            frame::RST_STREAM => match reset(core, head, payload) {
                Ok(true) => Err(Fault::Stream(0, Reason::NO_ERROR)),
                other => other.map(|_| ()),
            },
            frame::SETTINGS => settings(core, head, payload),
            frame::PING => match ping(core, head, payload) {
                Ok(is_left) => {
                    self.is_left |= is_left;
                    Ok(())
                }
                Err(fault) => Err(fault),
            },
            frame::GOAWAY => go_away(core, head, payload),
            frame::WINDOW_UPDATE => window_update(core, head, payload),
            frame::PRIORITY if head.stream == 0 => Err(protocol("PRIORITY of no stream")),
            frame::PRIORITY if head.len != 5 => {
                Err(Fault::Stream(head.stream, Reason::FRAME_SIZE_ERROR))
            }
            frame::PUSH_PROMISE => Err(protocol("PUSH_PROMISE was not asked for")),
            // PRIORITY says nothing any more (RFC 9113, 5.3.2), and frames nobody knows never did.
            _ => Ok(()),
        };
        self.input.skip(frame::HEAD + head.len);
        match done {
            Err(Fault::Stream(0, _)) => self.was_reset(),
            done => done,
        }
    }

    fn data(&mut self, core: &mut Core, head: Head) -> Result<(), Fault> {
        if head.stream == 0 {
            return Err(protocol("DATA of no stream"));
        }
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
        let Some(key) = core.streams.find(head.stream) else {
            core.took(None, head.len);
            return closed(core, head.stream, Reason::STREAM_CLOSED);
        };
        let stream = &mut core.streams[key];
        let fault = |reason| Err(Fault::Stream(head.stream, reason));
        let is_unread = stream.is_unread || stream.received_all || stream.receive_window < len;
        if is_unread {
            let reason = match (stream.received_all, stream.receive_window < len) {
                (true, _) => Some(Reason::STREAM_CLOSED),
                (_, true) => Some(Reason::FLOW_CONTROL_ERROR),
                _ => None,
            };
            stream.receive_window -= len;
            core.took(None, head.len);
            if let Some(reason) = reason {
                return fault(reason);
            }
        } else {
            stream.receive_window -= len;
            let padding = head.len - piece.len();
            if let Some(expected) = &mut stream.expected {
                let left = expected.checked_sub(piece.len() as u64);
                let is_wrong = head.has(frame::END_STREAM) && left != Some(0);
                match left {
                    Some(left) if !is_wrong => *expected = left,
                    _ => {
                        core.took(None, head.len);
                        return fault(Reason::PROTOCOL_ERROR);
                    }
                }
            }
            if !piece.is_empty() {
                stream.push(piece);
            }
            stream.wake_reader();
            if padding > 0 {
                core.took(Some(key), padding);
            }
        }
        if head.has(frame::END_STREAM) {
            core.received_all(key);
        }
        Ok(())
    }
}

/// A frame for a stream that is not open: it may have been on its way when the stream was reset.
fn closed(core: &Core, id: u32, reason: Reason) -> Result<(), Fault> {
    let is_idle = id > core.last_id || id.is_multiple_of(2);
    match is_idle {
        true => Err(protocol("a frame for a stream that was never opened")),
        // What a client hears of its past is nothing to it.
        false if core.role == Role::Client || core.was_reset(id) => Ok(()),
        false => Err(Fault::Stream(id, reason)),
    }
}

fn headers(
    decoder: &mut Decoder,
    partial: &mut Option<Partial>,
    core: &mut Core,
    head: Head,
    payload: &[u8],
) -> Result<(), Fault> {
    if head.stream == 0 {
        return Err(protocol("HEADERS of no stream"));
    }
    let room = frame::unpadded(head, payload);
    let (mut begin, end) = room.ok_or_else(|| protocol("padding beyond the frame"))?;
    if head.has(frame::WITH_PRIORITY) {
        begin += 5;
    }
    let block = payload.get(begin..end);
    let block = block.ok_or_else(|| protocol("HEADERS are too short"))?;
    if head.has(frame::END_HEADERS) {
        return whole_block(decoder, core, head, block);
    }
    *partial = Some(Partial {
        head,
        parts: 1,
        block: block.to_vec(),
    });
    Ok(())
}

fn continuation(
    decoder: &mut Decoder,
    partial: &mut Option<Partial>,
    core: &mut Core,
    head: Head,
    payload: &[u8],
) -> Result<(), Fault> {
    let Some(mut begun) = partial.take_if(|begun| begun.head.stream == head.stream) else {
        return Err(protocol("CONTINUATION of nothing"));
    };
    begun.parts += 1;
    if begun.parts > MAX_PARTS || begun.block.len() + payload.len() > MAX_HEADER_LIST as usize {
        let what = "a header block is too large";
        return Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM, what));
    }
    begun.block.extend_from_slice(payload);
    if head.has(frame::END_HEADERS) {
        return whole_block(decoder, core, begun.head, &begun.block);
    }
    *partial = Some(begun);
    Ok(())
}

fn whole_block(
    decoder: &mut Decoder,
    core: &mut Core,
    head: Head,
    bytes: &[u8],
) -> Result<(), Fault> {
    let block = Block::read(decoder, bytes).map_err(|_| {
        let what = "a header block cannot be read";
        Fault::Connection(Reason::COMPRESSION_ERROR, what)
    })?;
    let is_end = head.has(frame::END_STREAM);
    let fault = |reason| Err(Fault::Stream(head.stream, reason));
    if let Some(key) = core.streams.find(head.stream) {
        return match (core.streams[key].received_all, block.is_too_large) {
            (true, _) => fault(Reason::STREAM_CLOSED),
            (_, true) => fault(Reason::ENHANCE_YOUR_CALM),
            _ if core.role == Role::Client && !core.streams[key].has_head => {
                response(core, key, block, is_end).map_or_else(|| fault(Reason::PROTOCOL_ERROR), Ok)
            }
            _ => {
                trailers(core, key, block, is_end).map_or_else(|| fault(Reason::PROTOCOL_ERROR), Ok)
            }
        };
    }
    if core.role == Role::Client || head.stream <= core.last_id || head.stream.is_multiple_of(2) {
        return closed(core, head.stream, Reason::STREAM_CLOSED).map_err(|fault| match fault {
            Fault::Stream(..) => {
                Fault::Connection(Reason::STREAM_CLOSED, "HEADERS of a stream of the past")
            }
            fault => fault,
        });
    }
    core.last_id = head.stream;
    if core.over.is_some() {
        // It was told that nobody will look at it.
        return Ok(());
    }
    if block.is_too_large {
        return fault(Reason::ENHANCE_YOUR_CALM);
    }
    let expected = block.content_length;
    if is_end && expected.is_some_and(|expected| expected > 0) {
        return fault(Reason::PROTOCOL_ERROR);
    }
    let Some(request) = block.into_request(()) else {
        return fault(Reason::PROTOCOL_ERROR);
    };
    let key = core.open(head.stream);
    core.streams[key].expected = expected;
    if is_end {
        core.received_all(key);
    }
    core.accepted.push_back((key, request));
    Ok(())
}

fn response(core: &mut Core, key: Key, block: Block, is_end: bool) -> Option<()> {
    let (status, headers) = block.into_response()?;
    if status.is_informational() {
        return (!is_end).then_some(());
    }
    let stream = &mut core.streams[key];
    stream.has_head = true;
    stream.head = Some((status, headers));
    stream.wake_reader();
    if is_end {
        core.received_all(key);
    }
    Some(())
}

fn trailers(core: &mut Core, key: Key, block: Block, is_end: bool) -> Option<()> {
    let trailers = block.into_trailers()?;
    let stream = &mut core.streams[key];
    if !is_end || stream.expected.is_some_and(|expected| expected > 0) {
        return None;
    }
    if !stream.is_unread {
        stream.trailers = Some(trailers);
    }
    stream.wake_reader();
    core.received_all(key);
    Some(())
}

/// Gives whether nobody had looked at the stream.
fn reset(core: &mut Core, head: Head, payload: &[u8]) -> Result<bool, Fault> {
    let reason = frame::number(payload).filter(|_| head.len == 4);
    let Some(reason) = reason.map(Reason) else {
        let what = "RST_STREAM of a wrong size";
        return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, what));
    };
    let Some(key) = core.streams.find(head.stream) else {
        return match head.stream == 0 || head.stream > core.last_id {
            true => Err(protocol("RST_STREAM of a stream that was never opened")),
            false => Ok(false),
        };
    };
    core.fail(key, Error::Reset(reason));
    Ok(core.accepted.iter().any(|(accepted, _)| *accepted == key))
}

fn settings(core: &mut Core, head: Head, payload: &[u8]) -> Result<(), Fault> {
    if head.stream != 0 {
        return Err(protocol("SETTINGS of a stream"));
    }
    let (settings, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() || (head.has(frame::ACK) && head.len > 0) {
        let what = "SETTINGS of a wrong size";
        return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, what));
    }
    if head.has(frame::ACK) {
        return Ok(());
    }
    for [a, b, value @ ..] in settings {
        let value = u32::from_be_bytes(*value);
        match u16::from_be_bytes([*a, *b]) {
            frame::HEADER_TABLE_SIZE => core.encoder.limit(value as usize),
            frame::MAX_CONCURRENT_STREAMS => core.max_streams = value as usize,
            frame::INITIAL_WINDOW_SIZE => initial_window(core, i64::from(value))?,
            frame::ENABLE_PUSH if value > 1 => return Err(protocol("ENABLE_PUSH is 0 or 1")),
            frame::MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                return Err(protocol("MAX_FRAME_SIZE is out of range"));
            }
            _ => {}
        }
    }
    core.wake_writers();
    frame::head(core.out.buf(), 0, frame::SETTINGS, frame::ACK, 0);
    core.out.replied(frame::HEAD)
}

/// Applies to all streams, back to their beginning (RFC 9113, 6.9.2).
fn initial_window(core: &mut Core, window: i64) -> Result<(), Fault> {
    let what = "a window is too large";
    let fault = Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR, what));
    if window > MAX_WINDOW {
        return fault;
    }
    let change = window - std::mem::replace(&mut core.initial_window, window);
    for key in core.streams.keys() {
        let stream = &mut core.streams[key];
        stream.send_window += change;
        if stream.send_window > MAX_WINDOW {
            return fault;
        }
        stream.wake_writer();
    }
    Ok(())
}

/// Gives whether it is the answer to the PING of one who leaves.
fn ping(core: &mut Core, head: Head, payload: &[u8]) -> Result<bool, Fault> {
    if head.stream != 0 {
        return Err(protocol("PING of a stream"));
    }
    let Ok(payload) = <[u8; 8]>::try_from(payload) else {
        let what = "PING of a wrong size";
        return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, what));
    };
    if head.has(frame::ACK) {
        return Ok(payload == LEAVING);
    }
    frame::ping(core.out.buf(), frame::ACK, payload);
    core.out.replied(frame::HEAD + payload.len())?;
    Ok(false)
}

fn go_away(core: &mut Core, head: Head, payload: &[u8]) -> Result<(), Fault> {
    if head.stream != 0 {
        return Err(protocol("GOAWAY of a stream"));
    }
    let numbers = payload.first_chunk::<8>().map(|p| p.as_chunks::<4>().0);
    let Some([last, reason]) = numbers else {
        let what = "GOAWAY of a wrong size";
        return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, what));
    };
    // A server opens no streams that a client could turn away.
    if core.role == Role::Client {
        let last = u32::from_be_bytes(*last) & 0x7fff_ffff;
        let reason = Reason(u32::from_be_bytes(*reason));
        core.fail_above(last, &Error::NotTaken(reason));
    }
    Ok(())
}

fn window_update(core: &mut Core, head: Head, payload: &[u8]) -> Result<(), Fault> {
    let by = frame::number(payload).filter(|_| head.len == 4);
    let Some(by) = by.map(|by| i64::from(by & 0x7fff_ffff)) else {
        let what = "WINDOW_UPDATE of a wrong size";
        return Err(Fault::Connection(Reason::FRAME_SIZE_ERROR, what));
    };
    if head.stream == 0 {
        if by == 0 {
            return Err(protocol("WINDOW_UPDATE of nothing"));
        }
        core.send_window += by;
        if core.send_window > MAX_WINDOW {
            let what = "a window is too large";
            return Err(Fault::Connection(Reason::FLOW_CONTROL_ERROR, what));
        }
        core.wake_writers();
        return Ok(());
    }
    let Some(key) = core.streams.find(head.stream) else {
        return match head.stream > core.last_id {
            true => Err(protocol("WINDOW_UPDATE of a stream that was never opened")),
            false => Ok(()),
        };
    };
    let stream = &mut core.streams[key];
    stream.send_window += by;
    let window = stream.send_window;
    stream.wake_writer();
    match (by, window) {
        (0, _) => Err(Fault::Stream(head.stream, Reason::PROTOCOL_ERROR)),
        (_, MAX_WINDOW..) if window > MAX_WINDOW => {
            Err(Fault::Stream(head.stream, Reason::FLOW_CONTROL_ERROR))
        }
        _ => Ok(()),
    }
}
