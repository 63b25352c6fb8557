//! Accepts callers that put the path of the socket into `:authority`.
//!
//! Kubelets and crictl up to 1.30 do that, with the path as it is or percent-encoded (kubernetes/kubernetes#123463). A path
//! is not a valid authority (RFC 3986, section 3.2). gRPC servers in Go ignore it, but h2 resets such a call before a
//! service sees it. So the path is replaced by `localhost`, which later versions send, in the bytes as they arrive from the
//! caller. All other bytes pass unchanged.
//!
//! Only the literal that carries the path has to be found; later calls refer to it by its index (RFC 7541). The
//! replacement is never longer than the path, so the caller's dynamic table never holds an entry that ours has evicted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::uds::StreamFilter;

/// Length of the connection preface (RFC 9113, section 3.4).
const PREFACE_LENGTH: usize = 24;

/// Length of a frame header (RFC 9113, section 4.1), and of the largest payload that the server accepts.
const FRAME_HEADER_LENGTH: usize = 9;
const MAX_PAYLOAD: usize = 16_384;

/// The type of a HEADERS frame, and the flags that add fields around the header block.
const HEADERS: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// Index of `:authority` in the static table (RFC 7541, appendix A).
const AUTHORITY: usize = 1;

const REPLACEMENT_AUTHORITY: &[u8] = b"localhost";

/// Replaces a path in `:authority` by `localhost`. For a connection from which nothing has been read.
#[derive(Debug)]
pub(super) struct RewriteAuthority {
    /// Bytes to forward before the next frame begins.
    skip: usize,
    /// An incomplete HEADERS frame.
    held: BytesMut,
    /// Bytes ready for the reader.
    out: BytesMut,
}

impl Default for RewriteAuthority {
    fn default() -> Self {
        Self {
            skip: PREFACE_LENGTH,
            held: BytesMut::new(),
            out: BytesMut::new(),
        }
    }
}

impl RewriteAuthority {
    /// Returns how many of these bytes can be forwarded unchanged.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let skipped = self.skip.min(rest.len());
            self.skip -= skipped;
            at += skipped;
            let rest = &rest[skipped..];
            let Some((kind, len)) = head(rest) else {
                return at;
            };
            if kind != HEADERS || len > MAX_PAYLOAD {
                self.skip = FRAME_HEADER_LENGTH + len;
                continue;
            }
            match rest.get(..FRAME_HEADER_LENGTH + len) {
                Some(frame) if find(frame).is_none() => at += frame.len(),
                _ => return at,
            }
        }
    }

    /// Moves complete frames from `held` to `out`.
    fn rewrite(&mut self) {
        loop {
            let held = self.held.split();
            let passed = self.pass(&held);
            self.out.extend_from_slice(&held[..passed]);
            self.held = held;
            self.held.advance(passed);
            let Some((_, len)) =
                head(&self.held).filter(|(_, len)| self.held.len() >= FRAME_HEADER_LENGTH + len)
            else {
                return;
            };
            let frame = self.held.split_to(FRAME_HEADER_LENGTH + len);
            self.out.extend_from_slice(&rewritten(&frame));
        }
    }
}

/// The type of a frame and the length of its payload.
fn head(bytes: &[u8]) -> Option<(u8, usize)> {
    let head = bytes.first_chunk::<FRAME_HEADER_LENGTH>()?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    Some((head[3], usize::try_from(len).ok()?))
}

/// The frame with its authority replaced.
fn rewritten(frame: &[u8]) -> Vec<u8> {
    let Some(value) = find(frame) else {
        return frame.to_vec();
    };
    let len = value.len.min(REPLACEMENT_AUTHORITY.len());
    let mut out = frame[..value.at].to_vec();
    // Below 127 a length is one byte, and without its top bit the text is not Huffman-coded.
    out.push(len.to_le_bytes()[0]);
    out.extend_from_slice(&REPLACEMENT_AUTHORITY[..len]);
    out.extend_from_slice(&frame[value.end..]);
    // The payload did not grow, so its length still fits in three bytes.
    let payload = u32::try_from(out.len() - FRAME_HEADER_LENGTH).unwrap_or_default();
    out[..3].copy_from_slice(&payload.to_be_bytes()[1..]);
    out
}

/// The position of a string in a frame, from its length field to its end.
struct StringPosition {
    at: usize,
    end: usize,
    /// Length of the encoded text, in bytes.
    len: usize,
}

/// The authority of a HEADERS frame, if it is a literal and a path. h2 refuses a block that cannot be parsed.
fn find(frame: &[u8]) -> Option<StringPosition> {
    let flags = *frame.get(4)?;
    let mut at = FRAME_HEADER_LENGTH + usize::from(flags & PADDED != 0);
    if flags & PRIORITY != 0 {
        at += 5;
    }
    while at < frame.len() {
        let first = frame[at];
        // RFC 7541, section 6: an index, a new table size, or one of three kinds of literals.
        let prefix = match first {
            0x80.. => 7,
            0x40..0x80 => 6,
            0x20..0x40 => 5,
            _ => 4,
        };
        let (name, next) = integer(frame, at, prefix)?;
        at = next;
        if matches!(first, 0x20..0x40 | 0x80..) {
            continue;
        }
        if name == 0 {
            at = string(frame, at)?.end;
        }
        let value = string(frame, at)?;
        if name == AUTHORITY {
            return is_path(frame, &value).then_some(value);
        }
        at = value.end;
    }
    None
}

/// RFC 7541, section 5.1.
fn integer(bytes: &[u8], mut at: usize, prefix: u8) -> Option<(usize, usize)> {
    let max = (1 << prefix) - 1;
    let mut value = usize::from(*bytes.get(at)?) & max;
    at += 1;
    if value < max {
        return Some((value, at));
    }
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(*bytes.get(at)?);
        at += 1;
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((value, at));
        }
    }
    None
}

/// RFC 7541, section 5.2.
fn string(bytes: &[u8], at: usize) -> Option<StringPosition> {
    let (len, begin) = integer(bytes, at, 7)?;
    let end = begin.checked_add(len).filter(|end| *end <= bytes.len())?;
    Some(StringPosition { at, end, len })
}

/// Returns whether the text begins with `/` or `%`, which no valid authority does.
fn is_path(frame: &[u8], value: &StringPosition) -> bool {
    let Some(first) = frame[value.end - value.len..value.end].first() else {
        return false;
    };
    match frame[value.at] & 0x80 {
        0 => matches!(first, b'/' | b'%'),
        // Huffman codes of six bits (RFC 7541, appendix B).
        _ => matches!(first >> 2, 0b01_1000 | 0b01_0101),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> StreamFilter<S> for RewriteAuthority {
    fn poll_read(
        &mut self,
        inner: &mut S,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.out.is_empty() {
                let n = self.out.len().min(buf.remaining());
                buf.put_slice(&self.out.split_to(n));
                return Poll::Ready(Ok(()));
            }
            let before = buf.filled().len();
            ready!(Pin::new(&mut *inner).poll_read(cx, buf))?;
            if buf.filled().len() == before {
                // End of file, or a full buffer. A truncated frame is dropped.
                return Poll::Ready(Ok(()));
            }
            let mut passed = 0;
            if self.held.is_empty() {
                passed = self.pass(&buf.filled()[before..]);
            }
            self.held
                .extend_from_slice(&buf.filled()[before + passed..]);
            buf.set_filled(before + passed);
            if !self.held.is_empty() {
                self.rewrite();
            }
            if passed > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::uds::FilteredStream;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).expect("small").to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// `:method POST`, `:scheme http`, a literal `:path /x`, and the given encoding of the authority.
    fn block(authority: &[u8]) -> Vec<u8> {
        [b"\x83\x86\x04\x02/x", authority, b"\x00\x01a\x01b"].concat()
    }

    /// Reads the bytes through the adapter, in pieces of this length.
    async fn through(bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut near, far) = tokio::io::duplex(piece);
        let bytes = bytes.to_vec();
        let writer = tokio::spawn(async move { near.write_all(&bytes).await });
        let mut read = Vec::new();
        let mut rewritten = FilteredStream::new(far, RewriteAuthority::default());
        rewritten.read_to_end(&mut read).await.expect("read");
        writer.await.expect("joined").expect("written");
        read
    }

    fn session(frames: &[Vec<u8>]) -> Vec<u8> {
        [&[7; PREFACE_LENGTH][..], &frames.concat()].concat()
    }

    #[tokio::test]
    async fn a_path_becomes_localhost() {
        let good = block(b"\x41\x09localhost");
        let short = block(b"\x41\x02lo");
        let cases: [(&[u8], &[u8]); 5] = [
            (b"\x41\x0d/run/cri.sock", &good),
            (b"\x41\x0e%2Frun%2Fa.soc", &good),
            (b"\x41\x02/x", &short),
            // "/run/x", and the same with its slashes encoded, in the Huffman code.
            (b"\x41\x85\x62\xcb\x6a\x63\xcf", &block(b"\x41\x05local")),
            (b"\x41\x82\x54\x5f", &short),
        ];
        for (authority, want) in cases {
            for (flags, around) in [
                (4, [&b""[..], b""]),
                (0x2c, [b"\x02\0\0\0\x03\x07", b"\0\0"]),
            ] {
                let payload = |block: &[u8]| [around[0], block, around[1]].concat();
                let frames = |block: &[u8]| {
                    session(&[
                        frame(4, 0, &[0; 6]),
                        frame(1, flags, &payload(block)),
                        frame(0, 1, b"/data"),
                        frame(1, flags, &payload(block)),
                    ])
                };
                let (sent, want) = (frames(&block(authority)), frames(want));
                for piece in [1, 2, 7, 60, 4096] {
                    assert_eq!(through(&sent, piece).await, want, "pieces of {piece}");
                }
            }
        }
    }

    #[tokio::test]
    async fn all_other_bytes_pass_unchanged() {
        let mut sessions = vec![
            b"/".to_vec(),
            b"GET / HTTP/1.1\r\nhost: /run/x\r\n\r\n".to_vec(),
            session(&[frame(1, 4, &block(b"\x41\x09localhost"))]),
            session(&[frame(1, 4, &block(b"\x41\x00"))]),
            session(&[frame(1, 4, &block(b"\xbe"))]),
            session(&[frame(1, 4, &block(b"\x3f\xe1\x1f\x41\x84\xa0\xe4\x1d\x13"))]),
            // Blocks that cannot be parsed.
            session(&[frame(1, 4, b"\x41\x7f/run")]),
            session(&[frame(1, 4, b"\x41\xff\xff\xff\xff\xff\xff/run")]),
            session(&[frame(1, 0x28, b"\x41")]),
            // Not HEADERS, or far too long.
            session(&[frame(9, 4, b"\x41\x02/x"), frame(0, 0, b"\x41\x02/x")]),
            session(&[frame(1, 4, &[0x41; MAX_PAYLOAD + 1])]),
        ];
        let noise: Vec<u8> = (0..100_000u32)
            .map(|i| (i.wrapping_mul(i) / 7 % 251) as u8)
            .collect();
        sessions.push(session(&[noise]));
        for sent in &sessions {
            for piece in [1, 9, 4096] {
                let read = through(sent, piece).await;
                // A HEADERS frame that never becomes complete need not be forwarded.
                assert!(sent.starts_with(&read));
                assert!(sent.len() - read.len() <= FRAME_HEADER_LENGTH + MAX_PAYLOAD);
            }
        }
        for whole in &sessions[2..6] {
            assert_eq!(&through(whole, 5).await, whole);
        }
    }
}
