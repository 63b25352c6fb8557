//! Our server, told things that h2 would never say.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::{serve, soon};
use crate::http2::frame::{self, Head};
use crate::http2::{Reason, STREAM_WINDOW};

const PATH: &[u8] = b"\x83\x86\x04\x02/x\x01\x01h";

fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::head(&mut out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
    out
}

fn session(frames: &[Vec<u8>]) -> Vec<u8> {
    [
        frame::PREFACE,
        &bytes(frame::SETTINGS, 0, 0, b""),
        &frames.concat(),
    ]
    .concat()
}

fn call(stream: u32, flags: u8) -> Vec<u8> {
    bytes(frame::HEADERS, flags | frame::END_HEADERS, stream, PATH)
}

/// The next frame; `None` at the end.
async fn next(io: &mut (impl AsyncRead + Unpin)) -> Option<(Head, Vec<u8>)> {
    let mut head = [0; frame::HEAD];
    io.read_exact(&mut head).await.ok()?;
    let head = Head::read(&head);
    let mut payload = vec![0; head.len];
    io.read_exact(&mut payload).await.ok()?;
    Some((head, payload))
}

/// The first frame of this kind that comes back; `None` if there is none until the end.
async fn answer(sent: Vec<u8>, kind: u8) -> Option<(Head, Vec<u8>)> {
    let (near, far) = tokio::io::duplex(1 << 20);
    let served = serve(far, CancellationToken::new());
    let (mut reader, mut writer) = tokio::io::split(near);
    let sending = tokio::spawn(async move {
        let _ = writer.write_all(&sent).await;
        std::future::pending::<()>().await;
    });
    let found = soon("an answer", async {
        loop {
            let (head, payload) = next(&mut reader).await?;
            if head.kind == kind {
                return Some((head, payload));
            }
        }
    });
    let found = found.await;
    sending.abort();
    served.abort();
    found
}

#[tokio::test]
async fn a_connection_that_breaks_the_rules_hears_why() {
    let settings = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (
            "no SETTINGS",
            [frame::PREFACE, &call(1, 0)].concat(),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "DATA of no stream",
            session(&[bytes(0, 0, 0, b"x")]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "DATA when idle",
            session(&[bytes(0, 0, 1, b"x")]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "an even stream",
            session(&[call(2, 0)]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a stream of the past",
            session(&[call(9, 1), call(3, 1)]),
            Reason::STREAM_CLOSED,
        ),
        (
            "HPACK",
            session(&[bytes(1, 4, 1, &[0xff; 40])]),
            Reason::COMPRESSION_ERROR,
        ),
        (
            "SETTINGS of five",
            session(&[bytes(4, 0, 0, &[0; 5])]),
            Reason::FRAME_SIZE_ERROR,
        ),
        (
            "an ACK with more",
            session(&[bytes(4, 1, 0, &[0; 6])]),
            Reason::FRAME_SIZE_ERROR,
        ),
        (
            "a push flag of 2",
            session(&[bytes(4, 0, 0, &settings(2, 2))]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a small frame size",
            session(&[bytes(4, 0, 0, &settings(5, 9))]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a large window",
            session(&[bytes(4, 0, 0, &settings(4, 1 << 31))]),
            Reason::FLOW_CONTROL_ERROR,
        ),
        (
            "PING of seven",
            session(&[bytes(6, 0, 0, &[0; 7])]),
            Reason::FRAME_SIZE_ERROR,
        ),
        (
            "a window of 0",
            session(&[bytes(8, 0, 0, &[0; 4])]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a window that overflows",
            session(&[bytes(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff])]),
            Reason::FLOW_CONTROL_ERROR,
        ),
        (
            "RST_STREAM when idle",
            session(&[bytes(3, 0, 9, &[0; 4])]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "PUSH_PROMISE",
            session(&[bytes(5, 4, 1, &[0; 4])]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "CONTINUATION",
            session(&[bytes(9, 4, 1, b"")]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a block broken off",
            session(&[bytes(1, 0, 1, PATH), call(3, 0)]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "endless CONTINUATION",
            session(&[bytes(1, 0, 1, PATH), bytes(9, 0, 1, b"").repeat(300)]),
            Reason::ENHANCE_YOUR_CALM,
        ),
        (
            "a large frame",
            session(&[bytes(0, 0, 1, &[0; 20_000])]),
            Reason::FRAME_SIZE_ERROR,
        ),
        (
            "padding",
            session(&[call(1, 0), bytes(0, 8, 1, &[200, 1])]),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "rapid resets",
            session(
                &(0..1100u32)
                    .map(|n| [call(2 * n + 1, 1), bytes(3, 0, 2 * n + 1, &[0; 4])].concat())
                    .collect::<Vec<_>>(),
            ),
            Reason::ENHANCE_YOUR_CALM,
        ),
        (
            "streams at fault",
            session(
                &(0..1100u32)
                    .map(|n| bytes(1, 5, 2 * n + 1, b"\x00\x01A\x01b"))
                    .collect::<Vec<_>>(),
            ),
            Reason::ENHANCE_YOUR_CALM,
        ),
    ];
    for (what, sent, reason) in cases {
        println!("{what}");
        let (_, payload) = answer(sent, frame::GOAWAY).await.expect(what);
        assert_eq!(payload[4..8], reason.0.to_be_bytes(), "{what}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_the_rules_hears_why() {
    let header = |fields: &[u8]| bytes(1, 5, 1, &[PATH, fields].concat());
    let hanging = bytes(1, 4, 1, b"\x83\x86\x04\x06/hangs\x01\x01h");
    let room = vec![0; 16_384];
    let too_much = [
        &hanging[..],
        &bytes(0, 0, 1, &room).repeat(STREAM_WINDOW as usize / 16_384 + 1),
    ];
    let cases: Vec<(&str, Vec<u8>, Reason)> = vec![
        (
            "no path",
            bytes(1, 5, 1, b"\x83\x86"),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "upper case",
            header(b"\x00\x01A\x01b"),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a pseudo header behind",
            header(b"\x00\x01a\x01b\x84"),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a pseudo header twice",
            header(b"\x83"),
            Reason::PROTOCOL_ERROR,
        ),
        ("a status", header(b"\x88"), Reason::PROTOCOL_ERROR),
        (
            "connection",
            header(b"\x00\x0aconnection\x01x"),
            Reason::PROTOCOL_ERROR,
        ),
        ("te", header(b"\x00\x02te\x01x"), Reason::PROTOCOL_ERROR),
        (
            "a length without a body",
            header(b"\x00\x0econtent-length\x011"),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a body beyond its length",
            [
                bytes(1, 4, 1, &[PATH, b"\x00\x0econtent-length\x011"].concat()),
                bytes(0, 1, 1, b"ab"),
            ]
            .concat(),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "DATA behind the end",
            [call(1, 1), bytes(0, 0, 1, b"x")].concat(),
            Reason::STREAM_CLOSED,
        ),
        (
            "trailers without an end",
            [&hanging[..], &bytes(1, 4, 1, b"")].concat(),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "a window of 0",
            [&hanging[..], &bytes(8, 0, 1, &[0; 4])].concat(),
            Reason::PROTOCOL_ERROR,
        ),
        (
            "more than there is room for",
            too_much.concat(),
            Reason::FLOW_CONTROL_ERROR,
        ),
        (
            "PRIORITY of four",
            [&hanging[..], &bytes(2, 0, 1, &[0; 4])].concat(),
            Reason::FRAME_SIZE_ERROR,
        ),
    ];
    for (what, sent, reason) in cases {
        let (head, payload) = answer(session(&[sent]), frame::RST_STREAM)
            .await
            .expect(what);
        assert_eq!(
            (head.stream, &payload[..]),
            (1, &reason.0.to_be_bytes()[..]),
            "{what}"
        );
    }
}

#[tokio::test]
async fn what_is_allowed_is_answered() {
    let padded = [&b"\x03"[..], &[0, 0, 0, 0, 7], PATH, b"\0\0\0"].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("plain", call(1, 1)),
        ("padding and priority", bytes(1, 0x2d, 1, &padded)),
        (
            "in parts",
            [
                bytes(1, 1, 1, &PATH[..3]),
                bytes(9, 0, 1, b""),
                bytes(9, 4, 1, &PATH[3..]),
            ]
            .concat(),
        ),
        (
            "empty DATA",
            [
                call(1, 0),
                bytes(0, 0, 1, b"").repeat(5000),
                bytes(0, 9, 1, b"\x00"),
            ]
            .concat(),
        ),
        (
            "frames that nobody knows",
            [bytes(0xbe, 0xff, 7, b"?"), call(1, 1)].concat(),
        ),
        (
            "PRIORITY",
            [bytes(2, 0, 5, &[0, 0, 0, 3, 9]), call(1, 1)].concat(),
        ),
    ];
    for (what, sent) in cases {
        let (head, _) = answer(session(&[sent]), frame::HEADERS).await.expect(what);
        assert_eq!(head.stream, 1, "{what}");
    }
}

#[tokio::test]
async fn a_caller_that_asks_and_never_reads_is_sent_away() {
    let (mut near, far) = tokio::io::duplex(4096);
    let served = serve(far, CancellationToken::new());
    let flood = session(&[bytes(6, 0, 0, &[0; 8]).repeat(40_000)]);
    assert!(soon("a close", near.write_all(&flood)).await.is_err());
    assert!(soon("the end", served).await.expect("joined").is_err());
}

#[tokio::test]
async fn noise_is_never_fatal() {
    let mut rng = StdRng::seed_from_u64(5);
    let good = session(&[
        call(1, 0),
        bytes(0, 1, 1, b"abc"),
        bytes(6, 0, 0, &[1; 8]),
        call(3, 1),
    ]);
    for _ in 0..300 {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let served = serve(far, CancellationToken::new());
        let mut sent = good.clone();
        for _ in 0..rng.random_range(0..5) {
            let at = rng.random_range(frame::PREFACE.len()..sent.len());
            sent[at] = rng.random();
        }
        let mut noise = vec![0; rng.random_range(0..300)];
        rng.fill_bytes(&mut noise);
        sent.extend(noise);
        for piece in sent.chunks(rng.random_range(1..100)) {
            if near.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(near);
        let _ = soon("the end", served).await.expect("no panic");
    }
}
