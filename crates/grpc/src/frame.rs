//! The parts of the gRPC wire format that a proxy has to read: the length-prefixed message, the deadline, and the status
//! (gRPC over HTTP/2, "PROTOCOL-HTTP2").

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use tonic::Code;

/// One byte of flags and four bytes of length before each message.
pub const HEADER_LENGTH: usize = 5;

/// The header of a length-prefixed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// True if the message is compressed with the call's `grpc-encoding`.
    pub compressed: bool,
    /// Length of the message, in bytes.
    pub len: usize,
}

impl FrameHeader {
    /// Reads a header; `None` if there are fewer than five bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<HEADER_LENGTH>()?;
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        Some(Self {
            compressed: head[0] != 0,
            len: usize::try_from(len).unwrap_or(usize::MAX),
        })
    }
}

/// The first message in these bytes; `None` if it is compressed or incomplete.
pub fn message(bytes: &[u8]) -> Option<&[u8]> {
    let head = FrameHeader::read(bytes).filter(|head| !head.compressed)?;
    bytes.get(HEADER_LENGTH..HEADER_LENGTH.checked_add(head.len)?)
}

/// Prepends the header to an uncompressed message.
///
/// # Errors
/// [`MessageTooLarge`] if the length does not fit in four bytes.
pub fn frame(message: &[u8]) -> Result<Bytes, MessageTooLarge> {
    let len = u32::try_from(message.len()).map_err(|_| MessageTooLarge(message.len()))?;
    let mut out = BytesMut::with_capacity(HEADER_LENGTH + message.len());
    out.put_u8(0);
    out.put_u32(len);
    out.put_slice(message);
    Ok(out.freeze())
}

/// A message of 4 GiB or more.
#[derive(Debug, thiserror::Error)]
#[error("a message of {0} bytes does not fit in a gRPC frame")]
pub struct MessageTooLarge(usize);

/// Reads `grpc-timeout`: up to eight digits and a unit. A malformed one counts as no deadline.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let split = text.len().checked_sub(1)?;
    let (digits, unit) = (text.get(..split)?, text.get(split..)?);
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(n * 3600),
        "M" => Duration::from_secs(n * 60),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return None,
    })
}

/// Reads `grpc-status` and `grpc-message` from headers or trailers; `None` if there is no status. A status that is not
/// a number of the specification is `Unknown`.
pub fn status(headers: &HeaderMap) -> Option<(Code, Option<String>)> {
    let code = Code::from_bytes(headers.get("grpc-status")?.as_bytes());
    if code == Code::Ok {
        return Some((code, None));
    }
    let message = headers.get("grpc-message").map(|m| {
        percent_encoding::percent_decode(m.as_bytes())
            .decode_utf8_lossy()
            .into_owned()
    });
    Some((code, message))
}

/// The code that a caller derives from a response without `grpc-status` (gRPC, "HTTP to gRPC status code mapping").
pub const fn code_of_http(status: http::StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn timeouts() {
        let cases = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999S", Some(Duration::from_secs(99_999_999))),
            ("119999m", Some(Duration::from_millis(119_999))),
            ("7u", Some(Duration::from_micros(7))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("123456789S", None),
            ("+1S", None),
            ("1s", None),
            ("1 S", None),
        ];
        for (text, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            assert_eq!(timeout(&headers), want, "{text:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }

    #[test]
    fn statuses() {
        let mut headers = HeaderMap::new();
        assert_eq!(status(&headers), None);
        headers.insert("grpc-status", HeaderValue::from_static("5"));
        headers.insert(
            "grpc-message",
            HeaderValue::from_static("no%20such %25 pod"),
        );
        assert_eq!(
            status(&headers),
            Some((Code::NotFound, Some("no such % pod".to_owned())))
        );
        headers.insert("grpc-status", HeaderValue::from_static("77"));
        assert_eq!(status(&headers).map(|s| s.0), Some(Code::Unknown));
    }

    #[test]
    fn frames() {
        let framed = frame(b"abc").expect("small");
        assert_eq!(&framed[..], b"\0\0\0\0\x03abc");
        assert_eq!(FrameHeader::read(&framed[..4]), None);
        assert_eq!(
            FrameHeader::read(&framed),
            Some(FrameHeader {
                compressed: false,
                len: 3
            })
        );
        assert!(FrameHeader::read(b"\x01\0\0\0\0").expect("head").compressed);
    }
}
