//! Upgrade requests and their responses, and waiting with a timeout.

use std::net::SocketAddr;
use std::time::Duration;

use cri_streaming::client::{ResponseHead, UpgradeRequest, exchange, split_url};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::PATIENCE;

/// The Host that clients send: the kubelet passes on the name of its node.
const HOST: &str = "node:10250";

/// Awaits a future with a timeout.
pub(super) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: timed out"),
    }
}

/// Waits until a condition holds.
pub(super) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    soon(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Splits a URL into authority and path.
pub(super) fn parts(url: &str) -> (&str, &str) {
    split_url(url).expect("a URL")
}

pub(super) async fn connect(url: &str) -> TcpStream {
    let tcp = TcpStream::connect(parts(url).0).await.expect("connected");
    tcp.set_nodelay(true).expect("set");
    tcp
}

/// A loopback address without a listener. It stays reserved while the bound socket is held.
pub(super) fn closed_port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(any).expect("bound");
    let address = socket.local_addr().expect("an address");
    (socket, address)
}

/// Sends a request head and reads the response head.
pub(super) async fn ask<T>(io: &mut T, head: &str) -> ResponseHead
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let answer = soon("an answer", exchange(io, head)).await;
    answer.expect("an answer")
}

/// The head of a SPDY upgrade request.
pub(super) fn spdy_head(path: &str, protocols: &[&str]) -> String {
    UpgradeRequest::spdy(HOST, path, protocols).head
}

/// The head of a WebSocket upgrade request; an empty protocol means none.
pub(super) fn websocket_head(path: &str, protocol: &str) -> String {
    let protocols = Some(protocol).filter(|protocol| !protocol.is_empty());
    let request = UpgradeRequest::websocket(HOST, path, protocols.as_slice());
    request.expect("a request").head
}
