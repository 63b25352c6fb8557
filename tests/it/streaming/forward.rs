//! Port-forward to real listeners.

use cri_streaming::{SessionKind, SessionOutcome, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::client::open;
use super::http::{closed_port, parts, spdy_head, upgraded, websocket, websocket_head};
use super::server::Fixture;
use super::spdy::{Got, Spdy};
use super::websocket::tunnel;
use crate::prelude::*;

const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// A SPDY connection over TCP.
pub(super) async fn direct(url: &str) -> Spdy<TcpStream> {
    Spdy::new(upgraded(url, &spdy_head(parts(url).1, &["portforward.k8s.io"])).await)
}

/// A SPDY connection inside a WebSocket.
pub(super) async fn tunnelled(url: &str) -> Spdy<DuplexStream> {
    Spdy::new(tunnel(
        upgraded(url, &websocket_head(parts(url).1, TUNNEL)).await,
    ))
}

/// A listener that echoes its input until its end, then sends `bye`.
pub(super) async fn echo(address: &str) -> u16 {
    let listener = TcpListener::bind(address).await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tcp.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.write_all(b"bye").await;
            });
        }
    });
    port
}

async fn there_and_back<T>(spdy: &mut Spdy<T>, request: u32, port: u16)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
{
    let (error, data) = open(spdy, request, port).await;
    let text = format!("hello {request}");
    spdy.send(data, text.as_bytes(), false).await;
    let whole = |got: &Got| (got.data.len() >= text.len()).then(|| got.data.clone());
    assert_eq!(spdy.wait(data, whole).await, text.as_bytes());
    spdy.send(data, b"", true).await;
    let got = spdy.end(data).await;
    assert_eq!(got.data, format!("{text}bye").as_bytes());
    let error = spdy.end(error).await;
    assert!(error.fin && error.data.is_empty(), "{error:?}");
    // As clients do: it must be harmless.
    spdy.reset(data).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_come_and_go_over_one_session() {
    let fixture = Fixture::start().await;
    let (four, six) = (echo("127.0.0.1:0").await, echo("[::1]:0").await);
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    there_and_back(&mut spdy, 0, four).await;
    there_and_back(&mut spdy, 1, six).await;
    there_and_back(&mut spdy, 2, four).await;
    drop(spdy);
    let end = fixture.end().await;
    assert_eq!(
        (end.kind, end.outcome),
        (SessionKind::PortForward, SessionOutcome::Done)
    );
    assert_eq!((end.id.as_str(), end.connections), ("pod", 3));
    assert_eq!(end.bytes, (21, 30));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_inside_a_websocket_works_the_same() {
    let fixture = Fixture::start().await;
    let port = echo("127.0.0.1:0").await;
    let mut spdy = tunnelled(&fixture.forward("pod", &[])).await;
    for request in 0..3 {
        there_and_back(&mut spdy, request, port).await;
    }
    drop(spdy);
    let end = fixture.end().await;
    assert_eq!(
        (end.transport, end.protocol),
        (Transport::WebSocket, TUNNEL)
    );
    assert_eq!((end.outcome, end.connections), (SessionOutcome::Done, 3));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_do_not_mix() {
    let fixture = Fixture::start().await;
    let port = echo("127.0.0.1:0").await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let mut streams = Vec::new();
    for request in 0..50 {
        streams.push(open(&mut spdy, request, port).await.1);
    }
    for round in 0..20_u8 {
        for (i, data) in streams.iter().enumerate() {
            spdy.send(*data, &[round, i as u8].repeat(500), false).await;
        }
    }
    for (i, data) in streams.iter().enumerate() {
        spdy.send(*data, b"", true).await;
        let got = spdy.end(*data).await;
        let mut expected: Vec<u8> = (0..20_u8).flat_map(|r| [r, i as u8].repeat(500)).collect();
        expected.extend(b"bye");
        assert_eq!(got.data, expected, "connection {i}");
    }
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_listener_is_reported_and_affects_no_other() {
    let fixture = Fixture::start().await;
    let port = echo("127.0.0.1:0").await;
    let (_held, closed) = closed_port();
    let closed = closed.port();
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let (error, data) = open(&mut spdy, 0, closed).await;
    let message = String::from_utf8(spdy.end(error).await.data).expect("text");
    assert!(
        message.starts_with(&format!(
            "error forwarding port {closed} to pod pod, uid : "
        )),
        "{message}"
    );
    assert!(spdy.end(data).await.reset);
    there_and_back(&mut spdy, 1, port).await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_headers_reset_the_stream() {
    let fixture = Fixture::start().await;
    let port = echo("127.0.0.1:0").await;
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    for headers in [
        &[("streamtype", "data"), ("port", "0"), ("requestid", "1")][..],
        &[
            ("streamtype", "data"),
            ("port", "65536"),
            ("requestid", "1"),
        ],
        &[("streamtype", "data"), ("requestid", "1")],
        &[("streamtype", "stdin"), ("port", "80"), ("requestid", "1")],
        &[("port", "80"), ("requestid", "1")],
        &[],
    ] {
        let id = spdy.open(headers).await;
        assert!(spdy.end(id).await.reset, "{headers:?}");
    }
    // Very old clients send no id: the data stream follows the error stream.
    let port = port.to_string();
    let error = spdy.open(&[("streamtype", "error"), ("port", &port)]).await;
    let data = spdy.open(&[("streamtype", "data"), ("port", &port)]).await;
    spdy.send(error, b"", true).await;
    spdy.send(data, b"old", true).await;
    assert_eq!(spdy.end(data).await.data, b"oldbye");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_answer_after_a_half_close_arrives_whole() {
    const UPLOAD: usize = 3 << 20;
    const DOWNLOAD: usize = 10 << 20;
    let fixture = Fixture::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    // Reads everything before it responds.
    let pod = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepted");
        let mut upload = Vec::new();
        tcp.read_to_end(&mut upload).await.expect("read");
        for i in 0..DOWNLOAD / 65536 {
            tcp.write_all(&[i as u8; 65536]).await.expect("written");
        }
        upload.len()
    });
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let (error, data) = open(&mut spdy, 0, port).await;
    for _ in 0..UPLOAD / 32768 {
        spdy.send(data, &[b'u'; 32768], false).await;
    }
    spdy.send(data, b"", true).await;
    let got = spdy.end(data).await;
    assert!(got.fin);
    assert_eq!(got.data.len(), DOWNLOAD);
    assert!(
        (0..DOWNLOAD)
            .step_by(65536)
            .all(|i| got.data[i] == (i / 65536) as u8)
    );
    assert!(spdy.end(error).await.fin);
    assert_eq!(soon("the pod", pod).await.expect("no panic"), UPLOAD);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_may_end_its_side_first() {
    let fixture = Fixture::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let pod = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accepted");
        tcp.shutdown().await.expect("shut");
        let mut rest = Vec::new();
        tcp.read_to_end(&mut rest).await.expect("read");
        rest
    });
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let (error, data) = open(&mut spdy, 0, port).await;
    assert!(spdy.end(data).await.fin);
    spdy.send(data, b"still sending", false).await;
    spdy.send(data, b"", true).await;
    assert_eq!(
        soon("the pod", pod).await.expect("no panic"),
        b"still sending"
    );
    assert!(spdy.end(error).await.fin);
    fixture.stop().await;
}

/// A listener that reads a byte, sends part of a response, and resets the connection.
async fn breaks_off() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tcp.read_u8().await.expect("a byte");
            tcp.write_all(b"half of").await.expect("written");
            tcp.set_zero_linger().expect("set");
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_response_is_a_reset() {
    let fixture = Fixture::start().await;
    let (port, well) = (breaks_off().await, echo("127.0.0.1:0").await);
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let (error, data) = open(&mut spdy, 0, port).await;
    spdy.send(data, b"x", false).await;
    let got = spdy.end(data).await;
    assert!(got.reset && !got.fin, "{got:?}");
    assert_eq!(got.data, b"half of");
    // Kubernetes clients close all of their connections on any error here.
    let error = spdy.end(error).await;
    assert!(error.fin && error.data.is_empty(), "{error:?}");
    there_and_back(&mut spdy, 1, well).await;
    drop(spdy);
    let mut spdy = tunnelled(&fixture.forward("pod", &[])).await;
    let (_, data) = open(&mut spdy, 0, port).await;
    spdy.send(data, b"x", true).await;
    let got = spdy.end(data).await;
    assert!(got.reset && !got.fin, "{got:?}");
    drop(spdy);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_response_is_reported_on_a_channel() {
    let fixture = Fixture::start().await;
    let ports = [breaks_off().await, echo("127.0.0.1:0").await];
    let url = fixture.forward("pod", &ports);
    let mut socket = websocket(&url, "v4.channel.k8s.io").await;
    socket.send(0, b"x").await;
    let said = socket.channel(1, 3).await;
    let said = String::from_utf8_lossy(&said[2..]);
    assert!(
        said.starts_with(&format!("error forwarding port {} to pod pod", ports[0])),
        "{said}"
    );
    assert!(said.contains("reset"), "{said}");
    drop(socket);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_stream_is_reported() {
    let fixture = Fixture::start().await;
    let port = echo("127.0.0.1:0").await.to_string();
    let mut spdy = direct(&fixture.forward("pod", &[])).await;
    let headers = |kind| [("streamtype", kind), ("port", &*port), ("requestid", "7")];
    let first = spdy.open(&headers("error")).await;
    let second = spdy.open(&headers("error")).await;
    assert!(spdy.end(second).await.reset);
    let said = |got: &Got| (!got.data.is_empty()).then(|| got.data.clone());
    let said = String::from_utf8(spdy.wait(first, said).await).expect("text");
    assert_eq!(
        said,
        "error processing stream for request 7: error stream already assigned"
    );
    // The first one still works.
    let data = spdy.open(&headers("data")).await;
    spdy.send(data, b"hello", true).await;
    assert_eq!(spdy.end(data).await.data, b"hellobye");
    assert!(spdy.end(first).await.fin);
    // For a duplicate data stream there is no error stream yet to report it on.
    let first = spdy.open(&headers("data")).await;
    let second = spdy.open(&headers("data")).await;
    assert!(spdy.end(second).await.reset);
    spdy.open(&headers("error")).await;
    spdy.send(first, b"hello", true).await;
    assert_eq!(spdy.end(first).await.data, b"hellobye");
    drop(spdy);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_clients_have_two_channels_for_each_port() {
    let fixture = Fixture::start().await;
    let (port, other) = (echo("127.0.0.1:0").await, echo("[::1]:0").await);
    for (protocol, base64) in [
        ("", false),
        ("v4.channel.k8s.io", false),
        ("v4.base64.channel.k8s.io", true),
    ] {
        let url = fixture.forward("pod", &[port, other]);
        let mut socket = websocket(&url, protocol).await;
        for channel in [0, 2] {
            match base64 {
                true => socket.send_text(channel, b"hello").await,
                false => socket.send(channel, b"hello").await,
            }
        }
        for (channel, port) in [(0, port), (2, other)] {
            let expected = [&port.to_le_bytes()[..], b"hello"].concat();
            assert_eq!(socket.channel(channel, 7).await, expected);
            assert_eq!(socket.channel(channel + 1, 2).await, port.to_le_bytes());
        }
        socket.close().await;
        assert_eq!(socket.closed().await, 1000);
    }
    let ends = fixture.ends(3).await;
    assert!(
        ends.iter().all(|end| end.outcome == SessionOutcome::Done),
        "{ends:?}"
    );
    // A port without a listener, and a pod that does not exist.
    let url = fixture.forward("other", &[1]);
    let socket = websocket(&url, "v4.channel.k8s.io").await;
    assert_eq!(socket.closed().await, 1000);
    let error = socket.channel(1, 0).await;
    assert!(String::from_utf8_lossy(&error).contains("no such pod"));
    fixture.stop().await;
}
