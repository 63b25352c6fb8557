//! A client of exec and attach, the same for every protocol.

use tokio::time::timeout;

use super::http::{ask, connect, parts, spdy_head, websocket_head};
use super::spdy::Spdy;
use super::websocket::WebSocket;
use crate::prelude::*;

/// Every way to run a command: transport and protocol.
pub(super) const WAYS: &[(&str, &str)] = &[
    ("spdy", "channel.k8s.io"),
    ("spdy", "v2.channel.k8s.io"),
    ("spdy", "v3.channel.k8s.io"),
    ("spdy", "v4.channel.k8s.io"),
    ("spdy", "v5.channel.k8s.io"),
    ("websocket", ""),
    ("websocket", "channel.k8s.io"),
    ("websocket", "base64.channel.k8s.io"),
    ("websocket", "v4.channel.k8s.io"),
    ("websocket", "v4.base64.channel.k8s.io"),
    ("websocket", "v5.channel.k8s.io"),
];

/// The names of streams, in the order of the channels.
const STREAMS: [&str; 5] = ["stdin", "stdout", "stderr", "error", "resize"];
const LETTERS: [char; 5] = ['i', 'o', 'e', 'x', 't'];

/// Without progress for this long, a writer counts as blocked.
pub(super) const QUIET: Duration = Duration::from_millis(500);

#[expect(
    clippy::large_enum_variant,
    reason = "one per test, and not moved around"
)]
pub(super) enum Wire {
    /// The ids of the streams, by channel.
    Spdy(Spdy<TcpStream>, [Option<u32>; 5]),
    /// Whether it uses base64.
    WebSocket(WebSocket<TcpStream>, bool),
}

pub(crate) struct Client {
    pub(super) wire: Wire,
    protocol: String,
}

/// Connects to a port-forward URL.
pub(crate) async fn forwarding(url: &str) -> Spdy<TcpStream> {
    upgraded(connect(url).await, url, "portforward.k8s.io").await
}

/// Like `forwarding`, but the client does not read yet.
pub(crate) async fn forwarding_lazily(url: &str) -> Spdy<TcpStream> {
    let mut tcp = connect(url).await;
    let head = spdy_head(parts(url).1, &["portforward.k8s.io"]);
    let answer = ask(&mut tcp, &head).await;
    assert_eq!(answer.status, 101, "{answer:?}");
    Spdy::that_does_not_read(tcp)
}

/// Upgrades a connection to SPDY.
pub(crate) async fn upgraded<T>(mut io: T, url: &str, protocol: &str) -> Spdy<T>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let answer = ask(&mut io, &spdy_head(parts(url).1, &[protocol])).await;
    assert_eq!(answer.status, 101, "{answer:?}");
    Spdy::new(io)
}

/// Opens a connection to a port; returns its error and data streams.
pub(crate) async fn open<T>(spdy: &mut Spdy<T>, request: u32, port: u16) -> (u32, u32)
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + 'static,
{
    let (request, port) = (request.to_string(), port.to_string());
    let mut ids = Vec::new();
    for kind in ["error", "data"] {
        let headers = [
            ("streamtype", kind),
            ("port", &port),
            ("requestid", &request),
        ];
        ids.push(spdy.open(&headers).await);
    }
    // Clients only read the error stream.
    spdy.send(ids[0], b"", true).await;
    (ids[0], ids[1])
}

/// A client of a command with output only, which does not read yet.
pub(crate) async fn lazy(url: &str, way: (&str, &str)) -> Client {
    let mut tcp = connect(url).await;
    let (_, path) = parts(url);
    let wire = if way.0 == "spdy" {
        ask(&mut tcp, &spdy_head(path, &[way.1])).await;
        let mut spdy = Spdy::that_does_not_read(tcp);
        let error = spdy.open(&[("streamtype", "error")]).await;
        let out = spdy.open(&[("streamtype", "stdout")]).await;
        Wire::Spdy(spdy, [None, Some(out), None, Some(error), None])
    } else {
        ask(&mut tcp, &websocket_head(path, way.1)).await;
        Wire::WebSocket(WebSocket::that_does_not_read(tcp), false)
    };
    Client::from_wire(wire, way.1)
}

/// The output and result of a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) error: String,
}

impl Client {
    /// Connects to a URL; `streams` has the letters of the streams to open.
    pub(crate) async fn connect(url: &str, way: (&str, &str), streams: &str) -> Self {
        let mut tcp = connect(url).await;
        let (transport, protocol) = way;
        let (_, path) = parts(url);
        let wire = if transport == "spdy" {
            let answer = ask(&mut tcp, &spdy_head(path, &[protocol])).await;
            assert_eq!(answer.status, 101, "{answer:?}");
            assert_eq!(answer.header("x-stream-protocol-version"), [protocol]);
            let mut spdy = Spdy::new(tcp);
            let mut ids = [None; 5];
            // The error stream first, then the others in order, as clients do.
            for i in [3, 0, 1, 2, 4] {
                let wanted = i == 3 || streams.contains(LETTERS[i]);
                let resizes =
                    i != 4 || !["channel.k8s.io", "v2.channel.k8s.io"].contains(&protocol);
                if wanted && resizes {
                    let id = spdy.open(&[("streamtype", STREAMS[i])]).await;
                    spdy.wait(id, |got| got.replied.then_some(())).await;
                    ids[i] = Some(id);
                }
            }
            Wire::Spdy(spdy, ids)
        } else {
            let answer = ask(&mut tcp, &websocket_head(path, protocol)).await;
            assert_eq!(answer.status, 101, "{answer:?}");
            let chosen = answer.header("sec-websocket-protocol");
            assert_eq!(chosen.first().copied().unwrap_or(""), protocol);
            Wire::WebSocket(WebSocket::new(tcp), protocol.contains("base64"))
        };
        Self::from_wire(wire, protocol)
    }

    pub(super) fn from_wire(wire: Wire, protocol: &str) -> Self {
        Self {
            wire,
            protocol: protocol.to_owned(),
        }
    }

    pub(super) fn has_status(&self) -> bool {
        self.protocol.starts_with("v4") || self.protocol.starts_with("v5")
    }

    /// Whether the client can close its input.
    pub(super) fn can_end_input(&self) -> bool {
        matches!(self.wire, Wire::Spdy(..)) || self.protocol.starts_with("v5")
    }

    pub(crate) async fn send(&mut self, channel: u8, data: &[u8]) {
        match &mut self.wire {
            Wire::Spdy(spdy, ids) => {
                let id = ids[usize::from(channel)].expect("open");
                spdy.send(id, data, false).await;
            }
            Wire::WebSocket(socket, true) => socket.send_text(channel, data).await,
            Wire::WebSocket(socket, false) => socket.send(channel, data).await,
        }
    }

    /// Sends input until it blocks, which is in the middle of a message.
    pub(crate) async fn fill(&mut self) {
        let mut piece = [b'x'; 30_000];
        // Lines: a terminal discards input beyond 4,095 bytes of a line (termios(3)), and would never block.
        for line in piece.chunks_mut(1_000) {
            line[999] = b'\n';
        }
        let mut sent = 0;
        while timeout(QUIET, self.send(0, &piece)).await.is_ok() {
            sent += piece.len();
            assert!(sent < 64 << 20, "{sent} bytes did not block");
        }
    }

    pub(crate) async fn end_input(&mut self) {
        match &mut self.wire {
            Wire::Spdy(spdy, ids) => spdy.send(ids[0].expect("open"), b"", true).await,
            Wire::WebSocket(socket, _) => socket.send(255, &[0]).await,
        }
    }

    /// Makes a [`lazy`] client read from now on.
    pub(crate) fn begin_to_read(&mut self) {
        match &mut self.wire {
            Wire::Spdy(spdy, _) => spdy.begin_to_read(),
            Wire::WebSocket(socket, _) => socket.begin_to_read(),
        }
    }

    /// Waits until the output has this length; returns it.
    pub(crate) async fn output(&self, length: usize) -> Vec<u8> {
        match &self.wire {
            Wire::Spdy(spdy, ids) => {
                let look =
                    |got: &super::spdy::Got| (got.data.len() >= length).then(|| got.data.clone());
                spdy.wait(ids[1].expect("open"), look).await
            }
            Wire::WebSocket(socket, _) => socket.channel(1, length).await,
        }
    }

    /// The result of a session that the server has closed.
    pub(crate) async fn cut(self) -> String {
        let result = match self.wire {
            Wire::Spdy(spdy, ids) => {
                let got = spdy.end(ids[3].expect("open")).await;
                assert!(got.fin, "the error stream was not closed");
                spdy.goodbye().await;
                got.data
            }
            Wire::WebSocket(socket, is_base64) => {
                assert_eq!(socket.closed().await, 1001);
                let result = socket.channel(3, 0).await;
                assert!(!is_base64, "it is not decoded");
                result
            }
        };
        String::from_utf8(result).expect("text")
    }

    /// Waits until the output contains this text; returns the output.
    pub(crate) async fn shows(&self, text: &str) -> String {
        let look = |data: &[u8]| {
            let all = String::from_utf8_lossy(data);
            all.contains(text).then(|| all.into_owned())
        };
        match &self.wire {
            Wire::Spdy(spdy, ids) => {
                let look = |got: &super::spdy::Got| look(&got.data);
                spdy.wait(ids[1].expect("open"), look).await
            }
            Wire::WebSocket(socket, _) => {
                let look = |state: &super::websocket::State| look(&state.channels[1]);
                socket.wait("output", look).await
            }
        }
    }

    /// Sends a terminal size.
    pub(crate) async fn resize(&mut self, width: u16, height: u16) {
        let size = format!(r#"{{"Width":{width},"Height":{height}}}"#);
        self.send(4, size.as_bytes()).await;
    }

    /// Reads everything until the proper end of the session.
    pub(crate) async fn finish(self) -> Said {
        match self.wire {
            Wire::Spdy(spdy, ids) => {
                let mut data = [const { Vec::new() }; 5];
                for i in 0..4 {
                    let Some(id) = ids[i] else { continue };
                    let got = spdy.end(id).await;
                    assert!(got.fin, "{} was not closed", STREAMS[i]);
                    data[i] = got.data;
                }
                spdy.goodbye().await;
                let [_, out, err, error, _] = data;
                let error = String::from_utf8(error).expect("text");
                Said { out, err, error }
            }
            Wire::WebSocket(socket, _) => {
                assert_eq!(socket.closed().await, 1000);
                let look = |state: &super::websocket::State| {
                    let [_, out, err, error, ..] = state.channels.clone();
                    let error = String::from_utf8(error).expect("text");
                    Some(Said { out, err, error })
                };
                socket.wait("everything", look).await
            }
        }
    }
}
