//! From the URL of a session to a connection that speaks its protocol.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// No read and no write takes as long: a session that stalls ends the run.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Asks for SPDY.
///
/// # Errors
/// When the server refuses or does not answer.
pub(super) fn spdy(url: &str, protocol: &str) -> io::Result<TcpStream> {
    let headers = format!("Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n");
    upgrade(url, "POST", &headers)
}

/// Asks for WebSocket.
///
/// # Errors
/// When the server refuses or does not answer.
pub(super) fn websocket(url: &str, protocol: &str) -> io::Result<TcpStream> {
    let headers = format!(
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n"
    );
    upgrade(url, "GET", &headers)
}

fn upgrade(url: &str, method: &str, headers: &str) -> io::Result<TcpStream> {
    let rest = url.strip_prefix("http://");
    let Some((host, path)) = rest.and_then(|rest| rest.split_once('/')) else {
        return Err(io::Error::other(format!("the URL of a session: {url}")));
    };
    let mut tcp = TcpStream::connect(host)?;
    tcp.set_nodelay(true)?;
    tcp.set_read_timeout(Some(PATIENCE))?;
    tcp.set_write_timeout(Some(PATIENCE))?;
    let request = format!(
        "{method} /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n{headers}\r\n"
    );
    tcp.write_all(request.as_bytes())?;
    // Byte by byte, so that nothing behind the head is lost.
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        tcp.read_exact(&mut byte)?;
        head.extend(byte);
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(tcp);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    Err(io::Error::other(format!("no upgrade: {head}")))
}
