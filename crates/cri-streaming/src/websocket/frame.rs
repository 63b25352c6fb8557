//! Parsing and encoding the head of a frame.

use bytes::{BufMut, Bytes, BytesMut};

/// A violation of RFC 6455.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketViolation {
    /// Reserved bits, which only extensions may set.
    #[error("reserved bits are set")]
    Reserved,
    /// A frame with an unknown opcode.
    #[error("unknown opcode {0}")]
    Opcode(u8),
    /// Clients must mask.
    #[error("frame without a mask")]
    Unmasked,
    /// Control frames carry at most 125 bytes and are not fragmented.
    #[error("control frame too long or in pieces")]
    Control,
    /// The length is not in its shortest form, or exceeds 2^63.
    #[error("frame length badly written")]
    Length,
    /// A message starts within another one, or continues without having started.
    #[error("frames out of order")]
    Order,
    /// The payload of a close frame is invalid.
    #[error("malformed close frame")]
    Close,
}

/// Opcodes.
pub(crate) mod opcode {
    /// Opcode of the continuation of a message.
    pub(crate) const CONTINUATION: u8 = 0;
    /// Opcode of a text message.
    pub const TEXT: u8 = 1;
    /// Opcode of a binary message.
    pub const BINARY: u8 = 2;
    /// Opcode of a close frame.
    pub const CLOSE: u8 = 8;
    /// Opcode of a ping.
    pub const PING: u8 = 9;
    /// Opcode of a pong.
    pub const PONG: u8 = 10;
}

/// Maximum payload of a control frame, in bytes.
pub(super) const MAX_CONTROL_LEN: usize = 125;

/// The head of a frame from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WebSocketHead {
    pub(super) last: bool,
    pub(super) opcode: u8,
    pub(super) mask: [u8; 4],
    pub(super) length: u64,
}

impl WebSocketHead {
    pub(super) fn is_control(self) -> bool {
        self.opcode & 8 != 0
    }

    /// Parses a head; returns it with its length. `None` if it is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, WebSocketViolation> {
        let [first, second, rest @ ..] = bytes else {
            return Ok(None);
        };
        if first & 0x70 != 0 {
            return Err(WebSocketViolation::Reserved);
        }
        let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
        if !matches!(
            opcode,
            opcode::CONTINUATION
                | opcode::TEXT
                | opcode::BINARY
                | opcode::CLOSE
                | opcode::PING
                | opcode::PONG
        ) {
            return Err(WebSocketViolation::Opcode(opcode));
        }
        if second & 0x80 == 0 {
            return Err(WebSocketViolation::Unmasked);
        }
        let short = second & 0x7f;
        if opcode & 8 != 0 && (!last || usize::from(short) > MAX_CONTROL_LEN) {
            return Err(WebSocketViolation::Control);
        }
        let (length, rest) = match short {
            126 => {
                let Some((length, rest)) = rest.split_first_chunk() else {
                    return Ok(None);
                };
                let length = u64::from(u16::from_be_bytes(*length));
                if length < 126 {
                    return Err(WebSocketViolation::Length);
                }
                (length, rest)
            }
            127 => {
                let Some((length, rest)) = rest.split_first_chunk() else {
                    return Ok(None);
                };
                let length = u64::from_be_bytes(*length);
                if length <= u64::from(u16::MAX) || length > i64::MAX as u64 {
                    return Err(WebSocketViolation::Length);
                }
                (length, rest)
            }
            short => (u64::from(short), rest),
        };
        let Some((mask, rest)) = rest.split_first_chunk() else {
            return Ok(None);
        };
        let head = Self {
            last,
            opcode,
            mask: *mask,
            length,
        };
        Ok(Some((head, bytes.len() - rest.len())))
    }
}

/// Adds the first byte and the length of a payload; `mask` is the bit that says that a mask follows, or 0.
pub(crate) fn put_head(frame: &mut impl BufMut, first: u8, mask: u8, length: usize) {
    frame.put_u8(first);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..=125), _) => frame.put_u8(mask | short),
        (_, Ok(medium)) => {
            frame.put_u8(mask | 126);
            frame.put_u16(medium);
        }
        _ => {
            frame.put_u8(mask | 127);
            frame.put_u64(length as u64);
        }
    }
}

/// Encodes a whole frame to a client. Callers need not concatenate the two parts of the payload.
pub(super) fn frame(opcode: u8, first: &[u8], second: &[u8]) -> Bytes {
    let length = first.len() + second.len();
    let mut frame = BytesMut::with_capacity(10 + length);
    put_head(&mut frame, 0x80 | opcode, 0, length);
    frame.put_slice(first);
    frame.put_slice(second);
    frame.freeze()
}

/// Unmasks a part of a payload that starts at `offset`.
pub(crate) fn unmask(bytes: &mut [u8], mask: [u8; 4], offset: u64) {
    let mut turned = mask;
    turned.rotate_left((offset % 4) as usize);
    let [a, b, c, d] = turned;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip([a, b, c, d, a, b, c]) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_parsed_as_soon_as_it_is_complete() {
        let whole = [0x82, 0xfe, 0x01, 0x00, 1, 2, 3, 4, 99];
        for cut in 0..8 {
            assert_eq!(WebSocketHead::parse(&whole[..cut]), Ok(None), "{cut}");
        }
        let head = WebSocketHead {
            last: true,
            opcode: opcode::BINARY,
            mask: [1, 2, 3, 4],
            length: 256,
        };
        assert_eq!(WebSocketHead::parse(&whole), Ok(Some((head, 8))));
        let long = [0x02, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        let (head, length) = WebSocketHead::parse(&long).expect("valid").expect("whole");
        assert_eq!((head.last, head.length, length), (false, 65536, 14));
    }

    #[test]
    fn violations_are_rejected() {
        for (bytes, violation) in [
            (&[0xc2, 0x80][..], WebSocketViolation::Reserved),
            (&[0x83, 0x80], WebSocketViolation::Opcode(3)),
            (&[0x8b, 0x80], WebSocketViolation::Opcode(11)),
            (&[0x82, 0x01], WebSocketViolation::Unmasked),
            (&[0x09, 0x80], WebSocketViolation::Control),
            (&[0x89, 0xfe], WebSocketViolation::Control),
            (&[0x82, 0xfe, 0, 125], WebSocketViolation::Length),
            (
                &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 255, 255],
                WebSocketViolation::Length,
            ),
            (
                &[0x82, 0xff, 128, 0, 0, 0, 0, 0, 0, 0],
                WebSocketViolation::Length,
            ),
        ] {
            assert_eq!(WebSocketHead::parse(bytes), Err(violation), "{bytes:?}");
        }
    }

    #[test]
    fn a_payload_may_be_unmasked_in_parts() {
        let mask = [1, 20, 40, 200];
        let plain: Vec<u8> = (0..100).collect();
        let masked: Vec<u8> = plain
            .iter()
            .zip(mask.iter().cycle())
            .map(|(b, m)| b ^ m)
            .collect();
        for cut in 0..100 {
            let mut bytes = masked.clone();
            let (left, right) = bytes.split_at_mut(cut);
            unmask(left, mask, 0);
            unmask(right, mask, cut as u64);
            assert_eq!(bytes, plain, "{cut}");
        }
    }

    #[test]
    fn lengths_have_the_shortest_form() {
        assert_eq!(&frame(opcode::BINARY, b"a", b"bc")[..], b"\x82\x03abc");
        assert_eq!(&frame(opcode::BINARY, &[0; 125], b"")[..2], [0x82, 125]);
        assert_eq!(
            &frame(opcode::BINARY, &[0; 125], b"x")[..4],
            [0x82, 126, 0, 126]
        );
        assert_eq!(
            &frame(opcode::TEXT, &[0; 65536], b"")[..10],
            [0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]
        );
    }
}
