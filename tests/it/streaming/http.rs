//! The head of a request, by hand: what a client sends to be upgraded, and what it gets.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// Waits for something that must come.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not in time"),
    }
}

/// Waits until something holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Host and port, and path, of a URL.
pub(super) fn parts(url: &str) -> (&str, &str) {
    let (_, rest) = url.split_once("://").expect("a scheme");
    rest.split_at(rest.find('/').expect("a path"))
}

pub(super) async fn connect(url: &str) -> TcpStream {
    let tcp = TcpStream::connect(parts(url).0).await.expect("connected");
    tcp.set_nodelay(true).expect("set");
    tcp
}

/// An address on loopback where nobody listens, nor will while the socket is held: it is bound, and that is all.
pub(super) fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(any).expect("bound");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
}

impl Answer {
    /// The values of a header.
    pub(super) fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }
}

/// Sends a head and reads that of the answer, byte by byte so that nothing behind it is lost.
pub(super) async fn ask<T>(io: &mut T, head: &str) -> Answer
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    io.write_all(head.as_bytes()).await.expect("sent");
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let byte = soon("an answer", io.read_u8()).await;
        bytes.push(byte.unwrap_or_else(|e| {
            panic!("{e} after {:?}", String::from_utf8_lossy(&bytes));
        }));
    }
    let head = String::from_utf8(bytes).expect("text");
    let status = head.split(' ').nth(1).expect("a status");
    Answer {
        status: status.parse().expect("a number"),
        head,
    }
}

/// The head of a request for SPDY.
pub(super) fn spdy_head(path: &str, protocols: &[&str]) -> String {
    let protocols: String = protocols
        .iter()
        .map(|p| format!("X-Stream-Protocol-Version: {p}\r\n"))
        .collect();
    format!(
        "POST {path} HTTP/1.1\r\nHost: node:10250\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n{protocols}\r\n"
    )
}

/// The head of a request for WebSocket; an empty protocol is none.
pub(super) fn websocket_head(path: &str, protocol: &str) -> String {
    let protocol = match protocol {
        "" => String::new(),
        protocol => format!("Sec-WebSocket-Protocol: {protocol}\r\n"),
    };
    format!(
        "GET {path} HTTP/1.1\r\nHost: node:10250\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
    )
}
