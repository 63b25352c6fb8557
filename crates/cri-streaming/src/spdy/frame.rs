//! Encoding of frames (SPDY/3.1, section 2.2): a head of eight bytes, then the payload.

use super::error::MalformedFrame;

/// Length of a head, in bytes.
pub(crate) const FRAME_HEAD_LEN: usize = 8;

/// Maximum payload of a data frame that is sent, in bytes: that of Go clients, the size of a copy buffer.
pub(crate) const MAX_DATA_LEN: usize = 32 * 1024;

/// Maximum payload of a control frame that is parsed, in bytes.
pub(crate) const MAX_CONTROL_LEN: usize = 64 * 1024;

const SPDY_VERSION: u16 = 3;

pub(crate) const SYN_STREAM: u16 = 1;
pub(crate) const SYN_REPLY: u16 = 2;
pub(crate) const RST_STREAM: u16 = 3;
pub(crate) const PING: u16 = 6;
pub(crate) const GOAWAY: u16 = 7;
pub(crate) const HEADERS: u16 = 8;
pub(crate) const WINDOW_UPDATE: u16 = 9;

/// The last frame of the sender's half of the stream.
pub(crate) const FIN: u8 = 1;
/// On SYN_STREAM: the other half is closed.
pub(crate) const UNIDIRECTIONAL: u8 = 2;

const STREAM_ID_MASK: u32 = 0x7fff_ffff;

/// Why a stream is reset (section 2.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ResetStatus {
    Protocol = 1,
    InvalidStream = 2,
    Refused = 3,
    Cancel = 5,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameHead {
    Data { id: u32, flags: u8, len: usize },
    Control { kind: u16, flags: u8, len: usize },
}

impl FrameHead {
    pub(crate) fn read(bytes: &[u8; FRAME_HEAD_LEN]) -> Result<Self, MalformedFrame> {
        let [a, b, c, d, flags, e, f, g] = *bytes;
        let len = u32::from_be_bytes([0, e, f, g]) as usize;
        if a & 0x80 == 0 {
            let id = u32::from_be_bytes([a, b, c, d]);
            return match id {
                0 => Err(MalformedFrame::ZeroStream),
                _ => Ok(Self::Data { id, flags, len }),
            };
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        let kind = u16::from_be_bytes([c, d]);
        if version != SPDY_VERSION {
            Err(MalformedFrame::Version(version))
        } else if kind == WINDOW_UPDATE && len != 8 {
            Err(MalformedFrame::Length { kind, len })
        } else if is_kept(kind) && len > MAX_CONTROL_LEN {
            Err(MalformedFrame::TooLong { kind, len })
        } else {
            Ok(Self::Control { kind, flags, len })
        }
    }
}

/// Returns whether control frames of this type are parsed; the payload of others is skipped.
pub(crate) fn is_kept(kind: u16) -> bool {
    matches!(
        kind,
        SYN_STREAM | SYN_REPLY | RST_STREAM | PING | GOAWAY | HEADERS
    )
}

/// A parsed control frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ControlFrame<'a> {
    SynStream {
        id: u32,
        block: &'a [u8],
    },
    /// For a stream that the server never opened.
    SynReply {
        block: &'a [u8],
    },
    Reset {
        id: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    Headers {
        id: u32,
        block: &'a [u8],
    },
}

impl<'a> ControlFrame<'a> {
    /// Parses the payload of a type that is kept; the last possible type is PING.
    pub(crate) fn read(kind: u16, payload: &'a [u8]) -> Result<Self, MalformedFrame> {
        let len = payload.len();
        let (least, most) = match kind {
            SYN_STREAM => (10, MAX_CONTROL_LEN),
            SYN_REPLY | HEADERS => (4, MAX_CONTROL_LEN),
            RST_STREAM | GOAWAY => (8, 8),
            _ => (4, 4),
        };
        if len < least || len > most {
            return Err(MalformedFrame::Length { kind, len });
        }
        let (id, rest) = payload.split_at(4);
        let id = id.iter().fold(0, |id, byte| id << 8 | u32::from(*byte));
        if kind == GOAWAY {
            return Ok(Self::GoAway);
        }
        // The id of a PING has all 32 bits.
        let stream = id & STREAM_ID_MASK;
        if id == 0 || (stream == 0 && kind != PING) {
            return Err(MalformedFrame::ZeroId(kind));
        }
        Ok(match kind {
            SYN_STREAM => Self::SynStream {
                id: stream,
                block: &rest[6..],
            },
            SYN_REPLY => Self::SynReply { block: rest },
            RST_STREAM => Self::Reset { id: stream },
            HEADERS => Self::Headers {
                id: stream,
                block: rest,
            },
            _ => Self::Ping { id },
        })
    }
}

fn control(out: &mut Vec<u8>, kind: u16, len: usize) {
    out.extend((0x8000 | SPDY_VERSION).to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
}

/// The head of a data frame.
pub(crate) fn data_head(id: u32, flags: u8, len: usize) -> [u8; FRAME_HEAD_LEN] {
    let [a, b, c, d] = id.to_be_bytes();
    let [_, e, f, g] = (len as u32).to_be_bytes();
    [a, b, c, d, flags, e, f, g]
}

/// Appends a SYN_STREAM around a compressed block: no associated stream, the highest priority.
pub(crate) fn syn_stream(out: &mut Vec<u8>, id: u32, block: &[u8]) {
    control(out, SYN_STREAM, 10 + block.len());
    out.extend(id.to_be_bytes());
    out.extend([0; 6]);
    out.extend(block);
}

/// Appends a SYN_REPLY around a compressed block.
pub(crate) fn syn_reply(out: &mut Vec<u8>, id: u32, block: &[u8]) {
    control(out, SYN_REPLY, 4 + block.len());
    out.extend(id.to_be_bytes());
    out.extend(block);
}

/// Appends a RST_STREAM.
pub(crate) fn reset(out: &mut Vec<u8>, id: u32, status: ResetStatus) {
    control(out, RST_STREAM, 8);
    out.extend(id.to_be_bytes());
    out.extend((status as u32).to_be_bytes());
}

/// Appends a PING.
pub(crate) fn ping(out: &mut Vec<u8>, id: u32) {
    control(out, PING, 4);
    out.extend(id.to_be_bytes());
}

/// Appends a GOAWAY: the last processed stream, and whether the peer violated the protocol.
pub(crate) fn go_away(out: &mut Vec<u8>, last: u32, is_fault: bool) {
    control(out, GOAWAY, 8);
    out.extend(last.to_be_bytes());
    out.extend(u32::from(is_fault).to_be_bytes());
}
