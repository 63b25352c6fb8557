//! Random calls and responses. The same seed generates the same cases.

use std::sync::LazyLock;

use criscope::cri::Method;
use http::{HeaderMap, HeaderName, HeaderValue};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

use crate::prelude::*;

/// The header that identifies a case at the runtime.
pub(crate) const CASE: &str = "x-case";

/// A call and how it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) call: Call,
    pub(crate) answer: Vec<Step>,
}

pub(crate) fn case(rng: &mut StdRng, number: usize, largest: usize) -> Case {
    let id = number.to_string();
    let mut headers = metadata(rng);
    headers.insert(CASE, HeaderValue::from_str(&id).expect("number"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    common_headers(rng, &mut headers);
    let body = body(rng, largest);
    let mut call = Call {
        method: http::Method::POST,
        uri: format!("{}{}", authority(rng), path(rng)),
        headers,
        pieces: pieces(rng, body),
        trailers: None,
    };
    match rng.random_range(0..40) {
        0 => call.method = http::Method::PUT,
        1 => {
            call.method = http::Method::GET;
            call.pieces.clear();
        }
        2 => {
            let len = call.pieces.iter().map(Bytes::len).sum::<usize>();
            call.headers
                .insert("content-length", HeaderValue::from(len));
        }
        3 => call.trailers = Some(metadata(rng)),
        _ => {}
    }
    let answer = answer(rng, largest);
    Case { id, call, answer }
}

fn authority(rng: &mut StdRng) -> &'static str {
    const ALL: [&str; 4] = [
        "http://localhost",
        "http://localhost",
        "https://node-1.example:10250",
        "http://127.0.0.1",
    ];
    ALL.choose(rng).expect("some")
}

fn path(rng: &mut StdRng) -> String {
    const OTHERS: [&str; 12] = [
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/runtime.v1.RuntimeService/CheckpointPod",
        "/runtime.v1alpha2.RuntimeService/Nothing",
        "/runtime.v1.ImageService/RunPodSandbox",
        "/runtime.v2.RuntimeService/Version",
        "/runtime.v1.RuntimeService/",
        "/runtime.v1.RuntimeService",
        "/",
        "/containerd.services.tasks.v1.Tasks/Start",
        "/a/b?c=d&e=%20",
        "/%2Fodd/%E2%82%AC;x",
    ];
    if rng.random_bool(0.12) {
        return (*OTHERS.choose(rng).expect("some")).to_owned();
    }
    let known = &Method::ALL[..Method::COUNT - 1];
    let method = known.choose(rng).expect("some").full_name();
    match rng.random_bool(0.3) {
        true => format!("/{}", method.replacen("runtime.v1", "runtime.v1alpha2", 1)),
        false => format!("/{method}"),
    }
}

/// Random bytes: a slice of a pool, because generating them would take most of a case's time.
fn bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    static POOL: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut pool = vec![0; 1 << 20];
        StdRng::seed_from_u64(1).fill_bytes(&mut pool);
        pool
    });
    let at = rng.random_range(0..=POOL.len() - len);
    POOL[at..at + len].to_vec()
}

fn length(rng: &mut StdRng, largest: usize) -> usize {
    match rng.random_range(0..20) {
        0..4 => 0,
        4..14 => rng.random_range(0..400),
        14..18 => rng.random_range(0..10_000.min(largest)),
        _ => rng.random_range(0..largest),
    }
}

/// A valid message: fields of all wire types, including unknown ones, sometimes nested.
fn fields(rng: &mut StdRng, depth: usize) -> Vec<u8> {
    use prost::encoding::{encode_key, encode_varint};
    let mut out = Vec::new();
    for _ in 0..rng.random_range(0..6) {
        let tag = match rng.random_bool(0.7) {
            true => rng.random_range(1..12),
            false => rng.random_range(1..500_000),
        };
        match rng.random_range(0..8) {
            0 => {
                encode_key(tag, prost::encoding::WireType::Varint, &mut out);
                encode_varint(rng.random(), &mut out);
            }
            1 => {
                encode_key(tag, prost::encoding::WireType::SixtyFourBit, &mut out);
                out.extend(bytes(rng, 8));
            }
            2 => {
                encode_key(tag, prost::encoding::WireType::ThirtyTwoBit, &mut out);
                out.extend(bytes(rng, 4));
            }
            kind => {
                let inner = match kind {
                    3..6 if depth < 4 => fields(rng, depth + 1),
                    6 => text(rng).into_bytes(),
                    _ => {
                        let len = rng.random_range(0..70);
                        bytes(rng, len)
                    }
                };
                encode_key(tag, prost::encoding::WireType::LengthDelimited, &mut out);
                encode_varint(inner.len() as u64, &mut out);
                out.extend(inner);
            }
        }
    }
    out
}

fn text(rng: &mut StdRng) -> String {
    let len = rng.random_range(0..40);
    (0..len).map(|_| rng.random::<char>()).collect()
}

fn body(rng: &mut StdRng, largest: usize) -> Vec<u8> {
    let len = length(rng, largest);
    match rng.random_range(0..20) {
        // Empty, or not a gRPC message.
        0 => Vec::new(),
        1 => bytes(rng, len),
        // A message with a wrong length prefix.
        2 => {
            let mut body = message_with(0, &bytes(rng, len)).to_vec();
            let promised = (len + 1 + rng.random_range(0..1000)) as u32;
            body[1..5].copy_from_slice(&promised.to_be_bytes());
            body
        }
        3 => {
            let mut body = message_with(0, &bytes(rng, len)).to_vec();
            body[1..5].copy_from_slice(&((len / 2) as u32).to_be_bytes());
            body
        }
        // Compressed, or with undefined flags.
        4..6 => message_with(1, &bytes(rng, len)).to_vec(),
        6 => message_with(rng.random(), &bytes(rng, len)).to_vec(),
        // Several messages.
        7 => (0..rng.random_range(2..6))
            .flat_map(|_| message_with(0, &fields(rng, 0)))
            .collect(),
        8..12 => message_with(0, &bytes(rng, len)).to_vec(),
        _ => message_with(0, &fields(rng, 0)).to_vec(),
    }
}

/// Splits at arbitrary offsets, even within the five-byte prefix.
fn pieces(rng: &mut StdRng, body: Vec<u8>) -> Vec<Bytes> {
    let mut rest = Bytes::from(body);
    let mut pieces = Vec::new();
    if rng.random_bool(0.3) {
        for _ in 0..rest.len().min(5) {
            let at = match rng.random_bool(0.5) {
                true => rng.random_range(0..=rest.len().min(7)),
                false => rng.random_range(0..=rest.len()),
            };
            // HTTP/2 peers accept few empty DATA frames before they treat them as a flood.
            if at > 0 || rng.random_bool(0.02) {
                pieces.push(rest.split_to(at));
            }
        }
    }
    pieces.push(rest);
    pieces
}

fn base64(rng: &mut StdRng, len: usize, padded: bool) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text: String = (0..len)
        .map(|_| char::from(*DIGITS.choose(rng).expect("some")))
        .collect();
    if padded {
        text.push_str("==");
    }
    text
}

/// Headers with all kinds of names, some repeated.
fn metadata(rng: &mut StdRng) -> HeaderMap {
    let mut map = HeaderMap::new();
    for _ in 0..rng.random_range(0..8) {
        let name: String = (0..rng.random_range(1..24))
            .map(|_| {
                char::from(
                    *b"abcdefghijklmnopqrstuvwxyz0123456789-_."
                        .choose(rng)
                        .expect("some"),
                )
            })
            .collect();
        let binary = rng.random_bool(0.3);
        let name = format!("m-{name}{}", if binary { "-bin" } else { "" });
        let name: HeaderName = name.parse().expect("a name");
        for _ in 0..rng.random_range(1..4) {
            map.append(name.clone(), value(rng, binary));
        }
    }
    map
}

fn value(rng: &mut StdRng, binary: bool) -> HeaderValue {
    let len = match rng.random_range(0..30) {
        0 => rng.random_range(0..8000),
        1..4 => 0,
        _ => rng.random_range(0..60),
    };
    if binary {
        let padded = rng.random();
        return base64(rng, len, padded).parse().expect("base64");
    }
    // Sometimes bytes above ASCII, which only HTTP allows.
    let top: u8 = if rng.random_bool(0.1) { 255 } else { 126 };
    let bytes: Vec<u8> = (0..len)
        .map(|_| rng.random_range(b' '..=top))
        .filter(|b| *b != 127)
        .collect();
    HeaderValue::from_bytes(&bytes).expect("visible")
}

/// Headers that common gRPC clients send.
fn common_headers(rng: &mut StdRng, headers: &mut HeaderMap) {
    const CHOICES: [(&str, &[&str]); 8] = [
        (
            "content-type",
            &["application/grpc", "application/grpc+proto", "text/plain"],
        ),
        ("user-agent", &["grpc-go/1.72.0", "kubelet/v1.36", ""]),
        (
            "grpc-timeout",
            &[
                "119999m",
                "1H",
                "60S",
                "99999999S",
                "soon",
                "100000000n",
                "",
            ],
        ),
        ("grpc-encoding", &["identity", "gzip", "snappy"]),
        ("grpc-accept-encoding", &["gzip", "identity,deflate,gzip"]),
        (
            "traceparent",
            &[
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "junk",
            ],
        ),
        ("tracestate", &["a=b,c=d"]),
        ("cookie", &["a=b", "a=b; c=d"]),
    ];
    for (name, values) in CHOICES {
        if rng.random_bool(0.6) {
            let value = values.choose(rng).expect("some");
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    if headers
        .get("grpc-timeout")
        .is_some_and(|v| v == "100000000n")
    {
        // Shorter timeouts could expire.
        headers.insert("grpc-timeout", HeaderValue::from_static("99999999m"));
    }
}

fn status(rng: &mut StdRng) -> HeaderMap {
    const STRANGE: [&str; 8] = ["17", "99", "-1", "abc", "00", "", "4294967296", " 0"];
    let code = match rng.random_range(0..20) {
        0 => (*STRANGE.choose(rng).expect("some")).to_owned(),
        1..9 => "0".to_owned(),
        _ => rng.random_range(0..17).to_string(),
    };
    let mut map = metadata(rng);
    map.insert("grpc-status", code.parse().expect("visible"));
    match rng.random_range(0..6) {
        0 => {}
        1 => drop(map.insert(
            "grpc-message",
            HeaderValue::from_static("100% not %zz encoded %"),
        )),
        2 => drop(map.insert("grpc-message", value(rng, false))),
        _ => {
            let message: String = text(rng).bytes().map(|b| format!("%{b:02X}")).collect();
            map.insert("grpc-message", message.parse().expect("encoded"));
        }
    }
    if rng.random_bool(0.3) {
        let len = match rng.random_bool(0.05) {
            true => 20_000,
            false => rng.random_range(0..400),
        };
        let padded = rng.random();
        let details = base64(rng, len, padded);
        map.insert("grpc-status-details-bin", details.parse().expect("base64"));
    }
    map
}

fn answer(rng: &mut StdRng, largest: usize) -> Vec<Step> {
    let mut head = metadata(rng);
    let content = ["application/grpc", "application/grpc+proto", "text/html"];
    let content = content.choose(rng).expect("some");
    head.insert("content-type", HeaderValue::from_static(content));
    if rng.random_bool(0.2) {
        head.insert("grpc-encoding", HeaderValue::from_static("gzip"));
    }
    let http = match rng.random_range(0..40) {
        0 => *[204, 302, 400, 403, 404, 429, 500, 503]
            .choose(rng)
            .expect("some"),
        _ => 200,
    };
    let mut steps = vec![Step::Read];
    if rng.random_bool(0.25) {
        head.extend(status(rng));
        steps.push(Step::HeadOnly(http, head));
        return steps;
    }
    steps.push(Step::Head(http, head));
    for _ in 0..rng.random_range(0..4) {
        let body = body(rng, largest);
        let pieces = pieces(rng, body).into_iter().filter(|p| !p.is_empty());
        steps.extend(pieces.map(Step::Data));
    }
    match rng.random_range(0..40) {
        0 => {
            let len = rng.random_range(0..10);
            steps.push(Step::Data(bytes(rng, len).into()));
            steps.push(Step::End);
        }
        1 => steps.push(Step::Trailers(metadata(rng))),
        2 => {
            use h2::Reason;
            let reasons = [
                Reason::CANCEL,
                Reason::REFUSED_STREAM,
                Reason::INTERNAL_ERROR,
                Reason::ENHANCE_YOUR_CALM,
                Reason::PROTOCOL_ERROR,
            ];
            // Before any data, so that the result does not depend on what a reset overtakes.
            steps.truncate(1);
            steps.push(Step::Reset(*reasons.choose(rng).expect("some")));
        }
        _ => steps.push(Step::Trailers(status(rng))),
    }
    steps
}
