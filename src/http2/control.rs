//! Frames that are about the connection, or about a stream as a whole (RFC 9113, 6.4 to 6.9).

use super::core::{Core, Role};
use super::error::{Error, Fault, Reason, protocol};
use super::frame::{self, Head};

/// Largest flow control window (RFC 9113, 6.9.1).
const MAX_WINDOW: i64 = 0x7fff_ffff;

/// The payload of the PING that asks whether our GOAWAY has arrived.
pub(super) const LEAVING: [u8; 8] = *b"leaving.";

fn size(what: &'static str) -> Fault {
    Fault::Connection(Reason::FRAME_SIZE_ERROR, what)
}

fn window(what: &'static str) -> Fault {
    Fault::Connection(Reason::FLOW_CONTROL_ERROR, what)
}

/// Gives whether nobody had looked at the stream.
pub(super) fn reset(core: &mut Core, head: Head, payload: &[u8]) -> Result<bool, Fault> {
    let Ok(reason) = payload.try_into().map(u32::from_be_bytes).map(Reason) else {
        return Err(size("RST_STREAM of a wrong size"));
    };
    let Some(key) = core.streams.find(head.stream) else {
        return match core.is_idle(head.stream) {
            true => Err(protocol("RST_STREAM of a stream that was never opened")),
            false => Ok(false),
        };
    };
    core.fail(key, Error::Reset(reason));
    Ok(core.accepted.iter().any(|(accepted, _)| *accepted == key))
}

pub(super) fn settings(core: &mut Core, head: Head, payload: &[u8]) -> Result<(), Fault> {
    if head.stream != 0 {
        return Err(protocol("SETTINGS of a stream"));
    }
    let (settings, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() || (head.has(frame::ACK) && head.len > 0) {
        return Err(size("SETTINGS of a wrong size"));
    }
    if head.has(frame::ACK) {
        return Ok(());
    }
    for [a, b, value @ ..] in settings {
        let value = u32::from_be_bytes(*value);
        match u16::from_be_bytes([*a, *b]) {
            frame::HEADER_TABLE_SIZE => core.encoder.limit(value as usize),
            // To a server it says how many may be pushed, which are none.
            frame::MAX_CONCURRENT_STREAMS if core.role == Role::Client => {
                core.max_streams = value as usize;
            }
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
fn initial_window(core: &mut Core, to: i64) -> Result<(), Fault> {
    let change = to - std::mem::replace(&mut core.initial_window, to);
    for key in core.streams.keys() {
        let stream = &mut core.streams[key];
        stream.send_window += change;
        if stream.send_window > MAX_WINDOW {
            return Err(window("a window is too large"));
        }
        stream.wake_writer();
    }
    match to > MAX_WINDOW {
        true => Err(window("a window is too large")),
        false => Ok(()),
    }
}

/// Gives whether it is the answer to the PING of one who leaves.
pub(super) fn ping(core: &mut Core, head: Head, payload: &[u8]) -> Result<bool, Fault> {
    if head.stream != 0 {
        return Err(protocol("PING of a stream"));
    }
    let payload = payload.try_into();
    let payload: [u8; 8] = payload.map_err(|_| size("PING of a wrong size"))?;
    if head.has(frame::ACK) {
        return Ok(payload == LEAVING);
    }
    core.out.pong(payload)?;
    Ok(false)
}

pub(super) fn go_away(core: &mut Core, head: Head, payload: &[u8]) -> Result<(), Fault> {
    if head.stream != 0 {
        return Err(protocol("GOAWAY of a stream"));
    }
    let numbers = payload.first_chunk::<8>().map(|p| p.as_chunks::<4>().0);
    let Some([last, reason]) = numbers else {
        return Err(size("GOAWAY of a wrong size"));
    };
    // A server opens no streams that a client could turn away.
    if core.role == Role::Client {
        let last = u32::from_be_bytes(*last) & 0x7fff_ffff;
        let reason = Reason(u32::from_be_bytes(*reason));
        core.fail_above(last, &Error::NotTaken(reason));
    }
    Ok(())
}

pub(super) fn window_update(core: &mut Core, head: Head, payload: &[u8]) -> Result<(), Fault> {
    let Ok(by) = payload.try_into().map(u32::from_be_bytes) else {
        return Err(size("WINDOW_UPDATE of a wrong size"));
    };
    let by = i64::from(by & 0x7fff_ffff);
    if head.stream == 0 {
        core.send_window += by;
        core.wake_writers();
        return match core.send_window > MAX_WINDOW {
            _ if by == 0 => Err(protocol("WINDOW_UPDATE of nothing")),
            true => Err(window("a window is too large")),
            false => Ok(()),
        };
    }
    let Some(key) = core.streams.find(head.stream) else {
        return match core.is_idle(head.stream) {
            true => Err(protocol("WINDOW_UPDATE of a stream that was never opened")),
            false => Ok(()),
        };
    };
    let stream = &mut core.streams[key];
    stream.send_window += by;
    stream.wake_writer();
    match stream.send_window > MAX_WINDOW {
        _ if by == 0 => Err(Fault::Stream(head.stream, Reason::PROTOCOL_ERROR)),
        true => Err(Fault::Stream(head.stream, Reason::FLOW_CONTROL_ERROR)),
        false => Ok(()),
    }
}
