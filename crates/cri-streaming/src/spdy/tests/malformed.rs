//! Malformed frames are rejected, with the reason.

use super::super::error::{CloseReason, MalformedFrame};
use super::super::{SpdyLimits, fuzz, headers};
use super::peer::{Frame, HeaderDeflater, control, data, plain_block, syn_stream};
use super::{HOUR, connect, end};

fn reason(bytes: &[u8]) -> MalformedFrame {
    match fuzz(bytes).reason {
        CloseReason::Malformed(malformed) => malformed,
        other => panic!("{other:?} for {bytes:?}"),
    }
}

#[test]
fn frames() {
    let cases: &[(Vec<u8>, MalformedFrame)] = &[
        (
            b"\x80\x02\0\x01\0\0\0\0".to_vec(),
            MalformedFrame::Version(2),
        ),
        (
            b"\xff\xff\0\x01\0\0\0\0".to_vec(),
            MalformedFrame::Version(0x7fff),
        ),
        (data(0, 0, b""), MalformedFrame::ZeroStream),
        (
            control(1, 0, &[0; 9]),
            MalformedFrame::Length { kind: 1, len: 9 },
        ),
        (
            control(2, 0, &[0; 3]),
            MalformedFrame::Length { kind: 2, len: 3 },
        ),
        (
            control(3, 0, &[1; 7]),
            MalformedFrame::Length { kind: 3, len: 7 },
        ),
        (
            control(3, 0, &[1; 9]),
            MalformedFrame::Length { kind: 3, len: 9 },
        ),
        (
            control(6, 0, &[1; 5]),
            MalformedFrame::Length { kind: 6, len: 5 },
        ),
        (
            control(7, 0, &[1; 4]),
            MalformedFrame::Length { kind: 7, len: 4 },
        ),
        (
            control(8, 0, &[1; 2]),
            MalformedFrame::Length { kind: 8, len: 2 },
        ),
        (
            control(9, 0, &[1; 4]),
            MalformedFrame::Length { kind: 9, len: 4 },
        ),
        (
            b"\x80\x03\0\x01\0\x01\0\x01".to_vec(),
            MalformedFrame::TooLong {
                kind: 1,
                len: 0x1_0001,
            },
        ),
        (control(1, 0, &[0; 10]), MalformedFrame::ZeroId(1)),
        (
            control(3, 0, b"\x80\0\0\0\0\0\0\x05"),
            MalformedFrame::ZeroId(3),
        ),
        (control(6, 0, &[0; 4]), MalformedFrame::ZeroId(6)),
        (control(8, 0, &[0; 4]), MalformedFrame::ZeroId(8)),
    ];
    for (bytes, wanted) in cases {
        assert_eq!(reason(bytes), *wanted, "{bytes:?}");
    }
}

#[test]
fn invalid_compression_is_rejected() {
    let other_dictionary = b"\x78\xf9\x01\x02\x03\x04\0\x04\0\xfb\xff\0\0\0\0\0\0\0\xff\xff";
    // The empty block, and the end of the zlib stream.
    let is_ended = b"\x78\xf9\xe3\xc6\xa7\xc2\x01\x04\0\xfb\xff\0\0\0\0\0\x04\0\x01";
    let cases: [&[u8]; 4] = [b"plain text", b"\x79\xf9", other_dictionary, is_ended];
    for block in cases {
        let bytes = syn_stream(1, 0, block);
        assert_eq!(reason(&bytes), MalformedFrame::Compression, "{block:?}");
    }
    // No bytes at all, and a truncated block.
    for block in [&b""[..], b"\x78\xf9\xe3"] {
        assert_eq!(
            reason(&syn_stream(1, 0, block)),
            MalformedFrame::HeaderLengths
        );
    }
}

#[test]
fn header_blocks() {
    let many = headers_of(1001);
    let cases: &[(&[u8], MalformedFrame)] = &[
        (b"\0\0\0", MalformedFrame::HeaderLengths),
        (b"\0\0\0\x01", MalformedFrame::HeaderLengths),
        (b"\0\0\0\x01\0\0\0\x02n", MalformedFrame::HeaderLengths),
        (
            b"\0\0\0\x01\xff\xff\xff\xffn",
            MalformedFrame::HeaderLengths,
        ),
        (b"\0\0\0\0more", MalformedFrame::HeaderLengths),
        (&many, MalformedFrame::TooManyHeaders(1001)),
        (&plain_block(&[("", "x")]), MalformedFrame::HeaderName),
        (&plain_block(&[("Port", "80")]), MalformedFrame::HeaderName),
        (&plain_block(&[("a b", "80")]), MalformedFrame::HeaderName),
        (
            b"\0\0\0\x01\0\0\0\x01\xff\0\0\0\x01v",
            MalformedFrame::HeaderName,
        ),
        (
            b"\0\0\0\x01\0\0\0\x01n\0\0\0\x01\xff",
            MalformedFrame::HeaderValue,
        ),
        (
            &plain_block(&[("n", "a"), ("n", "b")]),
            MalformedFrame::DuplicateHeader,
        ),
    ];
    for (plain, wanted) in cases {
        let bytes = syn_stream(1, 0, &HeaderDeflater::new().bytes(plain));
        assert_eq!(reason(&bytes), *wanted, "{plain:?}");
    }
    let wanted = MalformedFrame::HeadersTooLarge(headers::MAX_INFLATED_LEN);
    for size in [headers::MAX_INFLATED_LEN + 1, 1 << 20] {
        let bomb = HeaderDeflater::new().bytes(&vec![0; size]);
        assert_eq!(reason(&syn_stream(1, 0, &bomb)), wanted, "{size}");
    }
    // The length is within the limit, but the content is invalid.
    let most = HeaderDeflater::new().bytes(&vec![0; headers::MAX_INFLATED_LEN]);
    assert_eq!(
        reason(&syn_stream(1, 0, &most)),
        MalformedFrame::HeaderLengths
    );
}

fn headers_of(count: u32) -> Vec<u8> {
    let mut plain = count.to_be_bytes().to_vec();
    for i in 0..count {
        plain.extend(*b"\0\0\0\x04");
        plain.extend(format!("{i:04}").as_bytes());
        plain.extend([0; 4]);
    }
    plain
}

#[test]
fn the_maximum_number_of_headers_is_parsed() {
    let mut deflater = HeaderDeflater::new();
    let many = syn_stream(1, 0, &deflater.bytes(&headers_of(1000)));
    let long = "x".repeat(5000);
    let long = syn_stream(3, 0, &deflater.block(&[("port", &long)]));
    let few = syn_stream(5, 0, &deflater.block(&[("port", "80")]));
    // They can be parsed, but are too large to be kept; the next stream is not affected.
    let end = fuzz(&[many, long, few].concat());
    assert!(matches!(end.reason, CloseReason::ClientGone), "{end:?}");
    assert_eq!((end.counters.streams_refused, end.counters.streams), (2, 1));
}

#[tokio::test]
async fn the_peer_is_notified_and_earlier_data_is_kept() {
    let (mut peer, mut streams, driver) = connect(SpdyLimits::session(HOUR));
    let id = peer.open("stdin").await;
    let (mut reader, _writer) = streams.next().await.expect("a stream").split();
    peer.data(id, b"hello").await;
    peer.send(b"\x80\x05\0\x01\0\0\0\0").await;
    // Input after it is ignored.
    peer.send(&[0xff; 100]).await;
    assert_eq!(peer.frame().await, Frame::Reset(id, 5));
    assert_eq!(peer.frame().await, Frame::GoAway(id, 1));
    assert_eq!(peer.try_frame().await, None);
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut reader, &mut text)
        .await
        .expect("earlier data");
    assert_eq!(text, "hello");
    assert!(streams.next().await.is_none());
    drop(peer);
    let end = end(driver).await;
    let is_version = matches!(
        end.reason,
        CloseReason::Malformed(MalformedFrame::Version(5))
    );
    assert!(is_version, "{end:?}");
    assert!(end.is_flushed);
}
