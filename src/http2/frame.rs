//! The head of a frame, and the frames that are written whole (RFC 9113, sections 4 and 6).

use super::error::Reason;

/// What a client sends first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of the head of a frame, in bytes.
pub(super) const HEAD: usize = 9;

/// Largest payload that is accepted, and the smallest limit a peer may have, in bytes.
pub(super) const MAX_PAYLOAD: usize = 16_384;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

/// Of DATA and HEADERS.
pub(super) const END_STREAM: u8 = 0x1;
/// Of SETTINGS and PING.
pub(super) const ACK: u8 = 0x1;
/// Of HEADERS and CONTINUATION.
pub(super) const END_HEADERS: u8 = 0x4;
/// Of DATA and HEADERS.
pub(super) const PADDED: u8 = 0x8;
/// Of HEADERS.
pub(super) const WITH_PRIORITY: u8 = 0x20;

pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const ENABLE_PUSH: u16 = 2;
pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const MAX_FRAME_SIZE: u16 = 5;
pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Length of the payload, in bytes.
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Head {
    /// Reads a head.
    pub(super) fn read(bytes: &[u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Self {
            len: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// As it is on the wire. Lengths here fit in three bytes: no peer may take more.
    pub(super) fn bytes(self) -> [u8; HEAD] {
        let [.., a, b, c] = self.len.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, d, e, f, g]
    }
}

/// Writes the head of a frame.
pub(super) fn head(out: &mut Vec<u8>, len: usize, kind: u8, flags: u8, stream: u32) {
    let head = Head {
        len,
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&head.bytes());
}

/// Writes RST_STREAM.
pub(super) fn reset(out: &mut Vec<u8>, stream: u32, reason: Reason) {
    head(out, 4, RST_STREAM, 0, stream);
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Writes WINDOW_UPDATE; stream 0 is the connection.
pub(super) fn window_update(out: &mut Vec<u8>, stream: u32, by: u32) {
    head(out, 4, WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&by.to_be_bytes());
}

/// Writes PING.
pub(super) fn ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    head(out, 8, PING, flags, 0);
    out.extend_from_slice(&payload);
}

/// Writes GOAWAY without further words.
pub(super) fn go_away(out: &mut Vec<u8>, last: u32, reason: Reason) {
    head(out, 8, GOAWAY, 0, 0);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&reason.0.to_be_bytes());
}

/// Writes SETTINGS.
pub(super) fn settings(out: &mut Vec<u8>, values: &[(u16, u32)]) {
    head(out, values.len() * 6, SETTINGS, 0, 0);
    for (id, value) in values {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// The payload of DATA or HEADERS without its padding: where it begins and ends.
pub(super) fn unpadded(head: Head, payload: &[u8]) -> Option<(usize, usize)> {
    if !head.has(PADDED) {
        return Some((0, payload.len()));
    }
    let pad = usize::from(*payload.first()?);
    let end = payload.len().checked_sub(pad).filter(|end| *end >= 1)?;
    Some((1, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive() {
        for (len, kind, flags, stream) in [
            (0, SETTINGS, ACK, 0),
            (16_384, DATA, 9, 0x7fff_ffff),
            (70_000, HEADERS, 0xff, 5),
        ] {
            let mut out = Vec::new();
            head(&mut out, len, kind, flags, stream);
            let read = Head::read(out.first_chunk().expect("a head"));
            assert_eq!(
                (read.len, read.kind, read.flags, read.stream),
                (len, kind, flags, stream)
            );
        }
        // The reserved bit is nobody's.
        let read = Head::read(&[0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(read.stream, 0x7fff_ffff);
    }

    #[test]
    fn padding_is_taken_away() {
        let head = |flags| Head {
            len: 0,
            kind: DATA,
            flags,
            stream: 1,
        };
        assert_eq!(unpadded(head(0), b"abc"), Some((0, 3)));
        assert_eq!(unpadded(head(PADDED), b"\x01ab"), Some((1, 2)));
        assert_eq!(unpadded(head(PADDED), b"\x02ab"), Some((1, 1)));
        assert_eq!(unpadded(head(PADDED), b"\x03ab"), None);
        assert_eq!(unpadded(head(PADDED), b""), None);
    }
}
