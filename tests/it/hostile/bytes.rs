//! Callers that do not speak HTTP/2, or break its rules.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::Siege;
use crate::prelude::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame (RFC 9113, 4.1).
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).expect("small").to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The preface, empty SETTINGS, and these frames.
pub(super) fn session(frames: &[Vec<u8>]) -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, b""), &frames.concat()].concat()
}

/// Sends the bytes; the other end may close at any time.
pub(super) async fn send(path: &Path, bytes: &[u8]) -> UnixStream {
    let mut socket = UnixStream::connect(path).await.expect("connect");
    let _ = tokio::time::timeout(Duration::from_secs(5), socket.write_all(bytes)).await;
    socket
}

/// HPACK literal fields without indexing.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            block.push(text.len() as u8);
            block.extend(text.as_bytes());
        }
    }
    block
}

pub(super) fn request(path: &str) -> Vec<u8> {
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("te", "trailers"),
    ])
}

/// Sessions that each violate one rule.
fn broken_sessions() -> Vec<(&'static str, Vec<u8>)> {
    let good = request("/runtime.v1.RuntimeService/Version");
    let (end_stream, end_headers) = (1, 4);
    let headers = |stream, flags, block: &[u8]| frame(1, flags, stream, block);
    vec![
        ("DATA without a stream", session(&[frame(0, 0, 0, b"x")])),
        ("DATA on an idle stream", session(&[frame(0, 0, 1, b"x")])),
        (
            "HEADERS on an even stream",
            session(&[headers(2, end_headers, &good)]),
        ),
        (
            "HEADERS on no stream",
            session(&[headers(0, end_headers, &good)]),
        ),
        (
            "invalid HPACK",
            session(&[headers(1, end_headers, &[0xff; 40])]),
        ),
        (
            "a table that is too large",
            session(&[headers(1, end_headers, b"\x3f\xff\xff\xff\x0f")]),
        ),
        (
            "no pseudo headers",
            session(&[headers(1, end_headers, &block(&[("a", "b")]))]),
        ),
        (
            "no path",
            session(&[headers(
                1,
                5,
                &block(&[(":method", "POST"), (":scheme", "http")]),
            )]),
        ),
        (
            "upper case",
            session(&[headers(
                1,
                5,
                &[good.clone(), block(&[("Aa", "b")])].concat(),
            )]),
        ),
        (
            "SETTINGS of five bytes",
            session(&[frame(4, 0, 0, &[0; 5])]),
        ),
        ("a zero window update", session(&[frame(8, 0, 0, &[0; 4])])),
        (
            "a window that overflows",
            session(&[frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff])]),
        ),
        (
            "RST_STREAM of an idle stream",
            session(&[frame(3, 0, 9, &[0; 4])]),
        ),
        (
            "PUSH_PROMISE from a client",
            session(&[frame(5, 4, 1, &[0; 4])]),
        ),
        ("CONTINUATION of nothing", session(&[frame(9, 4, 1, b"")])),
        (
            "HEADERS within HEADERS",
            session(&[headers(1, 0, &good), headers(3, 4, &good)]),
        ),
        (
            "a frame that is too large",
            session(&[frame(0, 0, 1, &[0; 20_000])]),
        ),
        (
            "padding beyond the frame",
            session(&[headers(1, end_headers, &good), frame(0, 8, 1, &[200, 1])]),
        ),
        (
            "a stream opened twice",
            session(&[headers(1, 5, &good), headers(1, 5, &good)]),
        ),
        (
            "a closed stream",
            session(&[headers(9, 5, &good), headers(3, 5, &good)]),
        ),
        (
            "half a frame",
            session(&[headers(1, end_headers | end_stream, &good)[..12].to_vec()]),
        ),
        (
            "unknown frames",
            session(&[frame(0xbe, 0xff, 7, b"?"), frame(0xfe, 1, 0, b"")]),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_harms_no_other() {
    let siege = Siege::new().await;
    let path = siege.proxy.socket();
    let mut rng = StdRng::seed_from_u64(7);
    siege
        .during(async {
            let mut held = Vec::new();
            for n in 0..200 {
                let mut noise = vec![0; rng.random_range(1..5000)];
                rng.fill_bytes(&mut noise);
                let bytes = match n % 6 {
                    0 => noise,
                    1 => [PREFACE, &noise].concat(),
                    2 => session(&[noise]),
                    3 => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
                    4 => b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
                    _ => PREFACE[..rng.random_range(1..PREFACE.len())].to_vec(),
                };
                held.push(send(&path, &bytes).await);
            }
            held
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_frames_harm_no_other() {
    let siege = Siege::new().await;
    let path = siege.proxy.socket();
    for (what, bytes) in broken_sessions() {
        println!("{what}");
        siege.during(send(&path, &bytes)).await;
        // The same, byte by byte.
        siege
            .during(async {
                let mut socket = UnixStream::connect(&path).await.expect("connect");
                for byte in bytes.iter().take(200) {
                    if socket.write_all(&[*byte]).await.is_err() {
                        break;
                    }
                }
                socket
            })
            .await;
    }
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_harm_no_other() {
    let siege = Siege::new().await;
    let path = siege.proxy.socket();
    let good = request("/runtime.v1.RuntimeService/Version");
    let floods = [
        ("PING", frame(6, 0, 0, &[0; 8])),
        ("SETTINGS", frame(4, 0, 0, b"")),
        ("empty CONTINUATION", frame(9, 0, 1, b"")),
        ("CONTINUATION", frame(9, 0, 1, &[0x40; 1000])),
        ("empty DATA", frame(0, 0, 1, b"")),
        ("PRIORITY", frame(2, 0, 1, &[0, 0, 0, 3, 9])),
    ];
    for (what, flood) in floods {
        println!("{what}");
        let end_headers = if what.ends_with("CONTINUATION") { 0 } else { 4 };
        let mut bytes = session(&[frame(1, end_headers, 1, &good)]);
        bytes.extend(flood.repeat(20_000));
        // Responses are never read.
        siege.during(send(&path, &bytes)).await;
    }
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_headers_are_refused_and_large_ones_are_accepted() {
    let siege = Siege::new().await;
    let client = Client::connect(&siege.proxy.socket()).await;
    let with = |bytes: usize| {
        let mut call = Call::plain("Version");
        for n in 0..bytes / 1000 {
            call = call.with(&format!("x-{n}"), &"v".repeat(1000));
        }
        call
    };
    let got = client.call(with(100_000)).await;
    assert_eq!(got.code(), 0, "{:?}", got.broken);
    let got = client.call(with(3_000_000)).await;
    assert_ne!(got.code(), 0, "3 MB of headers");
    siege.others_are_served().await;
    drop(client);
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_harm_no_other() {
    let siege = Siege::new().await;
    let path = siege.proxy.socket();
    siege
        .during(async {
            let mut idle = Vec::new();
            for n in 0..1000 {
                // Silent from the start, or after the preface.
                let greeting = if n % 2 == 0 { Vec::new() } else { session(&[]) };
                idle.push(send(&path, &greeting).await);
            }
            siege
                .proxy
                .wait_scrape("all are accepted", |scrape| {
                    scrape.metric("criscope_connections_open").sum() >= 1001.0
                })
                .await;
            idle
        })
        .await;
    siege.over().await;
}

/// Kubelets and crictl up to 1.30 use the socket path as authority (kubernetes/kubernetes#123463). Runtimes accept it.
#[tokio::test]
async fn an_authority_that_is_a_path_is_served() {
    let siege = Siege::new().await;
    let versions = || {
        let seen = siege.fake.take(|seen| seen.uri.path().ends_with("Version"));
        seen.into_iter()
            .map(|seen| seen.uri.to_string())
            .collect::<Vec<_>>()
    };
    // "/run/x" Huffman-coded, and a plain literal; both are added to the dynamic table and referenced from there.
    for authority in [
        &b"\x41\x85\x62\xcb\x6a\x63\xcf"[..],
        b"\x41\x11%2Frun%2Fcri.sock",
    ] {
        let mut head = block(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/runtime.v1.RuntimeService/Version"),
        ]);
        let first = [&head[..], authority].concat();
        head.push(0x80 | 62);
        let call = |stream: u32, head: &[u8]| {
            [frame(1, 4, stream, head), frame(0, 1, stream, &[0; 5])].concat()
        };
        let socket = send(
            &siege.proxy.socket(),
            &session(&[call(1, &first), call(3, &head)]),
        )
        .await;
        let mut all = Vec::new();
        until("both calls", || {
            all.extend(versions());
            std::future::ready((all.len() == 2).then_some(()))
        })
        .await;
        for uri in all {
            let authority = uri.split('/').nth(2).expect("an authority");
            assert!(
                "localhost".starts_with(authority) && !authority.is_empty(),
                "{uri}"
            );
        }
        siege.others_are_served().await;
        drop(socket);
    }
    siege.over().await;
}
