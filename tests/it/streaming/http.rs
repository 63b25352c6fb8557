//! Upgrade requests and their responses.

use std::net::SocketAddr;

use cri_streaming::client::{ResponseHead, UpgradeRequest, exchange, split_url};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpSocket;

use super::websocket::WebSocket;
use crate::prelude::*;

/// The Host that clients send: the kubelet passes on the name of its node.
const HOST: &str = "node:10250";

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

/// Connects and upgrades, which must succeed.
pub(super) async fn upgraded(url: &str, head: &str) -> TcpStream {
    let mut tcp = connect(url).await;
    let answer = ask(&mut tcp, head).await;
    assert_eq!(answer.status, 101, "{answer:?}");
    tcp
}

/// A WebSocket with this protocol.
pub(super) async fn websocket(url: &str, protocol: &str) -> WebSocket<TcpStream> {
    WebSocket::new(upgraded(url, &websocket_head(parts(url).1, protocol)).await)
}
