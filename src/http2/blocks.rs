//! Header blocks: from the frames they come in to requests, answers and trailers (RFC 9113, 6.2, 6.10 and 8).

use super::MAX_HEADER_LIST;
use super::core::{Core, Role};
use super::error::{Fault, Reason, protocol};
use super::frame::{self, Head};
use super::head::Block;
use super::hpack::decode::Decoder;
use super::stream::Key;

/// Frames that one block may come in.
const MAX_PARTS: usize = 256;

/// Puts blocks together.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    decoder: Decoder,
    /// A block whose end has not come yet.
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    head: Head,
    parts: usize,
    bytes: Vec<u8>,
}

impl Blocks {
    /// Whether nothing but the rest of a block may come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.is_some()
    }

    pub(super) fn headers(
        &mut self,
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
        let bytes = payload.get(begin..end);
        let bytes = bytes.ok_or_else(|| protocol("HEADERS are too short"))?;
        if head.has(frame::END_HEADERS) {
            return self.whole(core, head, bytes);
        }
        self.begun = Some(Begun {
            head,
            parts: 1,
            bytes: bytes.to_vec(),
        });
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        core: &mut Core,
        head: Head,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let of_this = |begun: &mut Begun| begun.head.stream == head.stream;
        let Some(mut begun) = self.begun.take_if(of_this) else {
            return Err(protocol("CONTINUATION of nothing"));
        };
        begun.parts += 1;
        begun.bytes.extend_from_slice(payload);
        if begun.parts > MAX_PARTS || begun.bytes.len() > MAX_HEADER_LIST as usize {
            let what = "a header block is too large";
            return Err(Fault::Connection(Reason::ENHANCE_YOUR_CALM, what));
        }
        if head.has(frame::END_HEADERS) {
            return self.whole(core, begun.head, &begun.bytes);
        }
        self.begun = Some(begun);
        Ok(())
    }

    fn whole(&mut self, core: &mut Core, head: Head, bytes: &[u8]) -> Result<(), Fault> {
        let block = Block::read(&mut self.decoder, bytes).map_err(|_| {
            let what = "a header block cannot be read";
            Fault::Connection(Reason::COMPRESSION_ERROR, what)
        })?;
        let is_end = head.has(frame::END_STREAM);
        let found = core.streams.find(head.stream);
        let is_new = core.role == Role::Server
            && head.stream > core.last_id
            && !head.stream.is_multiple_of(2);
        let done = match found {
            None if !is_new => return closed(core, head.stream),
            None => {
                core.last_id = head.stream;
                // After the last GOAWAY nobody looks at it, as was said there.
                if core.over.is_some() {
                    return Ok(());
                }
                match block.is_too_large {
                    true => Err(Reason::ENHANCE_YOUR_CALM),
                    // RFC 9113, 5.1.2: nothing of it was looked at, so the caller may try again.
                    false if core.streams.count() >= core.max_streams => {
                        Err(Reason::REFUSED_STREAM)
                    }
                    false => request(core, head.stream, block, is_end),
                }
            }
            Some(key) if core.streams[key].received_all => Err(Reason::STREAM_CLOSED),
            Some(_) if block.is_too_large => Err(Reason::ENHANCE_YOUR_CALM),
            Some(key) if core.role == Role::Client && !core.streams[key].has_head => {
                response(core, key, block, is_end)
            }
            Some(key) => trailers(core, key, block, is_end),
        };
        done.map_err(|reason| Fault::Stream(head.stream, reason))
    }
}

/// HEADERS for a stream that is not open: they may have been on their way when it was reset.
fn closed(core: &Core, id: u32) -> Result<(), Fault> {
    if core.is_idle(id) {
        return Err(protocol("HEADERS of a stream that cannot be opened"));
    }
    match core.may_come_late(id) {
        true => Ok(()),
        false => {
            let what = "HEADERS of a stream of the past";
            Err(Fault::Connection(Reason::STREAM_CLOSED, what))
        }
    }
}

fn request(core: &mut Core, id: u32, block: Block, is_end: bool) -> Result<(), Reason> {
    let expected = block.content_length;
    if is_end && expected.is_some_and(|expected| expected > 0) {
        return Err(Reason::PROTOCOL_ERROR);
    }
    let request = block.into_request().ok_or(Reason::PROTOCOL_ERROR)?;
    let key = core.open(id);
    core.streams[key].expected = expected;
    if is_end {
        core.received_all(key);
    }
    core.accepted.push_back((key, request));
    Ok(())
}

fn response(core: &mut Core, key: Key, block: Block, is_end: bool) -> Result<(), Reason> {
    let (status, headers) = block.into_response().ok_or(Reason::PROTOCOL_ERROR)?;
    if status.is_informational() {
        // The answer proper is yet to come.
        return match is_end {
            true => Err(Reason::PROTOCOL_ERROR),
            false => Ok(()),
        };
    }
    let stream = &mut core.streams[key];
    stream.has_head = true;
    stream.head = Some((status, headers));
    stream.wake_reader();
    if is_end {
        core.received_all(key);
    }
    Ok(())
}

fn trailers(core: &mut Core, key: Key, block: Block, is_end: bool) -> Result<(), Reason> {
    let trailers = block.into_trailers().ok_or(Reason::PROTOCOL_ERROR)?;
    let stream = &mut core.streams[key];
    if !is_end || stream.expected.is_some_and(|expected| expected > 0) {
        return Err(Reason::PROTOCOL_ERROR);
    }
    if !stream.is_unread {
        stream.trailers = Some(trailers);
    }
    stream.wake_reader();
    core.received_all(key);
    Ok(())
}
