//! Clients that violate the protocols: only their own session is closed, and the parser survives any input.

use bytes::BytesMut;
use cri_streaming::SessionOutcome;
use cri_streaming::websocket::{WebSocketDecoder, WebSocketEvent};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::AsyncReadExt;

use super::client::{Client, WAYS};
use super::http::{ask, connect, parts, spdy_head, websocket_head};
use super::server::Fixture;
use super::websocket::{WebSocket, frame};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_frames_end_their_own_session_only() {
    let fixture = Fixture::start().await;
    let url = fixture.exec(&["cat"], "io");
    let mut good = Client::connect(&url, WAYS[10], "io").await;
    let wrong: &[(&str, Vec<u8>)] = &[
        ("v5.channel.k8s.io", vec![0x82, 0x01, 0x00]),
        ("v5.channel.k8s.io", frame(0xc2, b"\x00x")),
        ("v5.channel.k8s.io", frame(0x83, b"\x00x")),
        ("v5.channel.k8s.io", frame(0x80, b"\x00x")),
        ("v5.channel.k8s.io", frame(0x89, &[0; 126])),
        ("v5.channel.k8s.io", frame(0x82, b"\xff")),
        ("v5.channel.k8s.io", frame(0x82, b"\xff\x00\x00")),
        ("base64.channel.k8s.io", frame(0x81, b"0!!!")),
    ];
    for (i, (protocol, bytes)) in wrong.iter().enumerate() {
        let url = fixture.exec(&["wait"], "io");
        let mut tcp = connect(&url).await;
        let answer = ask(&mut tcp, &websocket_head(parts(&url).1, protocol)).await;
        assert_eq!(answer.status, 101);
        let mut socket = WebSocket::new(tcp);
        socket.raw(bytes).await;
        assert_eq!(socket.closed().await, 1002, "{bytes:?}");
        assert_eq!(
            fixture.ends(i + 1).await[i].outcome,
            SessionOutcome::Protocol,
            "{bytes:?}"
        );
    }
    let url = fixture.exec(&["wait"], "io");
    let mut tcp = connect(&url).await;
    ask(&mut tcp, &spdy_head(parts(&url).1, &["v4.channel.k8s.io"])).await;
    let junk = b"\x80\x07\x00\x01\x00\x00\x00\x04abcd";
    tokio::io::AsyncWriteExt::write_all(&mut tcp, junk)
        .await
        .expect("sent");
    let mut rest = Vec::new();
    soon("the end", tcp.read_to_end(&mut rest))
        .await
        .expect("read");
    drop(tcp);
    let last = fixture.ends(wrong.len() + 1).await[wrong.len()].clone();
    assert_eq!(last.outcome, SessionOutcome::Protocol);
    good.send(0, b"still here").await;
    assert_eq!(good.output(10).await, b"still here");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_behind_the_head_are_not_lost() {
    let fixture = Fixture::start().await;
    let url = fixture.exec(&["cat"], "io");
    let mut tcp = connect(&url).await;
    let head = websocket_head(parts(&url).1, "v5.channel.k8s.io").into_bytes();
    let all = [head, frame(0x82, b"\x00early"), frame(0x82, b"\xff\x00")].concat();
    tokio::io::AsyncWriteExt::write_all(&mut tcp, &all)
        .await
        .expect("sent");
    assert_eq!(ask(&mut tcp, "").await.status, 101);
    let socket = WebSocket::new(tcp);
    assert_eq!(socket.closed().await, 1000);
    let look = |state: &super::websocket::State| Some(state.channels[1].clone());
    assert_eq!(socket.wait("output", look).await, b"early");
    drop(socket);
    // Over SPDY nothing may be sent before the client's first frame: it would be lost.
    let url = fixture.exec(&["cat"], "io");
    let mut tcp = connect(&url).await;
    ask(&mut tcp, &spdy_head(parts(&url).1, &["v4.channel.k8s.io"])).await;
    let quiet = tokio::time::timeout(Duration::from_millis(300), tcp.read_u8()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    drop(tcp);
    fixture.stop().await;
}

/// Decodes the bytes, and joins the fragments of messages.
fn decode(bytes: &[u8], mut cut: impl FnMut() -> usize) -> (Vec<(u8, Vec<u8>)>, bool) {
    let (mut decoder, mut buffer) = (WebSocketDecoder::default(), BytesMut::new());
    let (mut events, mut rest) = (Vec::new(), bytes);
    let mut message = Vec::new();
    while !rest.is_empty() {
        let (part, after) = rest.split_at(cut().clamp(1, rest.len()));
        rest = after;
        buffer.extend_from_slice(part);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(WebSocketEvent::Data {
                    text, last, bytes, ..
                })) => {
                    message.extend_from_slice(&bytes);
                    if last {
                        events.push((u8::from(text), std::mem::take(&mut message)));
                    }
                }
                Ok(Some(WebSocketEvent::Ping(content))) => events.push((2, content.to_vec())),
                Ok(Some(WebSocketEvent::Pong)) => events.push((3, Vec::new())),
                Ok(Some(WebSocketEvent::Close)) => events.push((4, Vec::new())),
                Ok(None) => break,
                Err(_) => return (events, false),
            }
        }
        assert!(buffer.len() < 140, "{} bytes are buffered", buffer.len());
    }
    (events, true)
}

#[test]
fn the_decoder_is_independent_of_fragmentation_and_survives_any_input() {
    let mut random = StdRng::seed_from_u64(20_260_000);
    let mut right = 0;
    for round in 0..2_000 {
        // Mostly valid frames, then a few invalid bytes.
        let mut bytes = Vec::new();
        for _ in 0..random.random_range(1..6) {
            let first = *[
                0x82,
                0x81,
                0x02,
                0x80,
                0x89,
                0x8a,
                0x88,
                0x00,
                random.random(),
            ]
            .get(random.random_range(0..9_usize))
            .expect("nine");
            let length = match random.random_range(0..10) {
                0 => random.random_range(60_000..70_000),
                1 => random.random_range(120..130),
                _ => random.random_range(0..20),
            };
            let payload: Vec<u8> = (0..length).map(|i| (i % 256) as u8).collect();
            bytes.extend(frame(first, &payload));
        }
        for _ in 0..random.random_range(0..3_usize) {
            if round % 2 == 0 {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
        }
        let whole = decode(&bytes, || usize::MAX);
        let parts = decode(&bytes, || random.random_range(1..2000));
        assert_eq!(
            whole,
            parts,
            "round {round}: {:?}",
            &bytes[..bytes.len().min(100)]
        );
        right += usize::from(whole.1);
    }
    assert!((50..1_950).contains(&right), "{right} of 2000 were valid");
}

#[test]
fn the_corpus_of_the_fuzzer_is_decoded() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/websocket");
    let mut files = 0;
    for entry in fs::read_dir(corpus).expect("the corpus") {
        let bytes = fs::read(entry.expect("an entry").path()).expect("read");
        assert_eq!(decode(&bytes, || usize::MAX), decode(&bytes, || 1));
        files += 1;
    }
    assert!(files >= 8, "{files} files");
}
