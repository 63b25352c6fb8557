//! The URL of an upstream: which ones are replaced, and how the message around it is rewritten.

use std::net::SocketAddr;

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

use super::metrics::UrlRewriteOutcome;

/// The field of the URL in `ExecResponse`, `AttachResponse` and `PortForwardResponse`.
const URL: u32 = 1;

/// Longest URL that is parsed.
const MAX_URL: usize = 4096;

/// Address and target of an upstream's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpstreamTarget {
    pub(super) address: SocketAddr,
    /// Path and query, as received. They hold the upstream's token, so they are never printed.
    pub(super) target: String,
    /// True for `https`.
    pub(super) tls: bool,
}

/// Parses a URL. Only a loopback address is accepted: other addresses may be reachable for clients that cannot reach
/// criscope.
///
/// # Errors
/// The reason why the URL is left unchanged.
pub(super) fn parse(url: &str) -> Result<UpstreamTarget, UrlRewriteOutcome> {
    if url.len() > MAX_URL {
        return Err(UrlRewriteOutcome::Unparsable);
    }
    let (tls, rest) = match url.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return Err(UrlRewriteOutcome::Unparsable),
    };
    let (authority, target) = rest.split_at(rest.find('/').ok_or(UrlRewriteOutcome::Unparsable)?);
    // The target becomes part of a request head.
    if !target.bytes().all(|b| b.is_ascii_graphic()) || target.contains('#') {
        return Err(UrlRewriteOutcome::Unparsable);
    }
    // Host names are refused: the client might resolve them to another address.
    let address: SocketAddr = authority
        .parse()
        .map_err(|_| UrlRewriteOutcome::Unparsable)?;
    if address.port() == 0 {
        return Err(UrlRewriteOutcome::Unparsable);
    }
    if !address.ip().is_loopback() {
        return Err(UrlRewriteOutcome::NotLoopback);
    }
    Ok(UpstreamTarget {
        address,
        target: target.to_owned(),
        tls,
    })
}

/// A message with one URL: the bytes before it, the URL, and the bytes after it.
pub(super) struct UrlMessage<'a> {
    before: &'a [u8],
    pub(super) url: &'a str,
    behind: &'a [u8],
}

impl<'a> UrlMessage<'a> {
    /// Splits a message; `None` if it is malformed, or has no URL or several.
    pub(super) fn split(message: &'a [u8]) -> Option<Self> {
        let mut found = None;
        let mut rest = message;
        while !rest.is_empty() {
            let begin = message.len() - rest.len();
            let (tag, wire_type) = decode_key(&mut rest).ok()?;
            let len = match wire_type {
                WireType::Varint => decode_varint(&mut rest).map(|_| 0).ok()?,
                WireType::SixtyFourBit => 8,
                WireType::ThirtyTwoBit => 4,
                WireType::LengthDelimited => {
                    usize::try_from(decode_varint(&mut rest).ok()?).ok()?
                }
                // proto3 has no groups.
                WireType::StartGroup | WireType::EndGroup => return None,
            };
            let value = rest.get(..len)?;
            rest = &rest[len..];
            if tag != URL {
                continue;
            }
            if wire_type != WireType::LengthDelimited || found.is_some() {
                return None;
            }
            found = Some(Self {
                before: &message[..begin],
                url: std::str::from_utf8(value).ok()?,
                behind: rest,
            });
        }
        // The fields after the URL have been parsed, too.
        found
    }

    /// The message with another URL; every other byte is unchanged.
    pub(super) fn with(&self, url: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.before.len() + url.len() + self.behind.len() + 8);
        out.extend_from_slice(self.before);
        encode_key(URL, WireType::LengthDelimited, &mut out);
        encode_varint(url.len() as u64, &mut out);
        out.extend_from_slice(url.as_bytes());
        out.extend_from_slice(self.behind);
        out
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::cri::v1;

    #[test]
    fn only_urls_with_a_loopback_address_are_accepted() {
        let url = parse("http://127.0.0.1:4321/exec/abc?x=%20y").expect("plain");
        assert_eq!(url.address, "127.0.0.1:4321".parse().expect("an address"));
        assert_eq!(url.target, "/exec/abc?x=%20y");
        assert!(!url.tls);
        let url = parse("http://[::1]:1/attach/abc").expect("plain");
        assert_eq!(url.address, "[::1]:1".parse().expect("an address"));
        let url = parse("https://127.0.0.1:2/exec/abc").expect("with TLS");
        assert_eq!(url.address, "127.0.0.1:2".parse().expect("an address"));
        assert!(url.tls && url.target == "/exec/abc");
        for (url, why) in [
            ("https://10.0.0.1:1/exec/a", UrlRewriteOutcome::NotLoopback),
            ("https://localhost:1/exec/a", UrlRewriteOutcome::Unparsable),
            ("https://127.0.0.1/exec/a", UrlRewriteOutcome::Unparsable),
            ("http://10.0.0.1:1/exec/a", UrlRewriteOutcome::NotLoopback),
            ("http://0.0.0.0:1/exec/a", UrlRewriteOutcome::NotLoopback),
            ("http://localhost:1/exec/a", UrlRewriteOutcome::Unparsable),
            ("http://127.0.0.1/exec/a", UrlRewriteOutcome::Unparsable),
            ("http://127.0.0.1:0/exec/a", UrlRewriteOutcome::Unparsable),
            (
                "http://user@127.0.0.1:1/exec/a",
                UrlRewriteOutcome::Unparsable,
            ),
            ("http://127.0.0.1:1", UrlRewriteOutcome::Unparsable),
            ("http://127.0.0.1:1?x=/", UrlRewriteOutcome::Unparsable),
            ("http://127.0.0.1:1/exec/a b", UrlRewriteOutcome::Unparsable),
            (
                "http://127.0.0.1:1/exec/a\r\nX: y",
                UrlRewriteOutcome::Unparsable,
            ),
            ("http://127.0.0.1:1/exec/a#b", UrlRewriteOutcome::Unparsable),
            (
                "http://127.0.0.1:1/exec/\u{e4}",
                UrlRewriteOutcome::Unparsable,
            ),
            ("HTTP://127.0.0.1:1/exec/a", UrlRewriteOutcome::Unparsable),
            ("unix:///run/x.sock", UrlRewriteOutcome::Unparsable),
            ("/exec/a", UrlRewriteOutcome::Unparsable),
            ("//127.0.0.1:1/exec/a", UrlRewriteOutcome::Unparsable),
            ("://127.0.0.1:1/exec/a", UrlRewriteOutcome::Unparsable),
            ("", UrlRewriteOutcome::Unparsable),
        ] {
            assert_eq!(parse(url), Err(why), "{url}");
        }
        let long = format!("http://127.0.0.1:1/{}", "a".repeat(MAX_URL));
        assert_eq!(parse(&long), Err(UrlRewriteOutcome::Unparsable));
    }

    #[test]
    fn only_the_url_changes() {
        let message = v1::ExecResponse { url: "old".into() }.encode_to_vec();
        // Unknown fields before and after it, one with a non-minimal varint.
        let before = [0x10, 0x81, 0x00];
        let behind = [0x1a, 0x02, b'h', b'i', 0x25, 1, 2, 3, 4];
        let all = [&before[..], &message, &behind].concat();
        let split = UrlMessage::split(&all).expect("a message");
        assert_eq!(split.url, "old");
        let new = v1::ExecResponse {
            url: "newer".into(),
        }
        .encode_to_vec();
        assert_eq!(split.with("newer"), [&before[..], &new, &behind].concat());
    }

    #[test]
    fn messages_without_exactly_one_url_are_left_alone() {
        let message = v1::ExecResponse { url: "old".into() }.encode_to_vec();
        let two = [&message[..], &message].concat();
        let no_text = [0x0a, 0x01, 0xff];
        let cases: [&[u8]; 7] = [
            &[],
            &two,
            &message[..3],
            &no_text,
            &[0x08, 0x01],
            &[0x0b, 0x0c],
            &[0x12, 0x00],
        ];
        for case in cases {
            assert!(UrlMessage::split(case).is_none(), "{case:?}");
        }
        let cut_behind = [&message[..], &[0x12, 0x05, 0x00]].concat();
        assert!(UrlMessage::split(&cut_behind).is_none());
    }
}
