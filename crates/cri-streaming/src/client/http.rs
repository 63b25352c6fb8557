//! The upgrade of an HTTP/1.1 connection (RFC 9110 section 7.8).

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::websocket::accept_key;

/// Maximum size of a response head, in bytes.
const MAX_HEAD_LEN: usize = 64 << 10;

/// Why a connection was not upgraded.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The connection failed.
    #[error("upgrade: {0}")]
    Io(#[from] io::Error),
    /// The URL has no scheme or no path.
    #[error("not the URL of a session: {0}")]
    Url(String),
    /// The server answered with a status other than 101.
    #[error("the server refused the upgrade with status {}", .0.status)]
    Refused(ResponseHead),
    /// The server did not complete the WebSocket handshake correctly.
    #[error("wrong Sec-WebSocket-Accept in the answer to the upgrade")]
    Accept,
}

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status code.
    pub status: u16,
    /// The whole head as text.
    pub head: String,
}

impl ResponseHead {
    /// The values of a header.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect()
    }
}

/// Splits a URL into authority and path.
///
/// # Errors
/// If either is missing.
pub fn split_url(url: &str) -> Result<(&str, &str), UpgradeError> {
    let rest = url.split_once("://").map(|(_, rest)| rest);
    let split = rest.and_then(|rest| Some(rest.split_at(rest.find('/')?)));
    split.ok_or_else(|| UpgradeError::Url(url.to_owned()))
}

/// A request to upgrade a connection.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    /// The bytes of the request.
    pub head: String,
    /// The `Sec-WebSocket-Accept` that the server must respond with.
    accept: Option<String>,
}

impl UpgradeRequest {
    /// Creates a request for SPDY/3.1, with these protocols in order of preference.
    pub fn spdy(host: &str, path: &str, protocols: &[&str]) -> Self {
        let protocols: String = protocols
            .iter()
            .map(|protocol| format!("X-Stream-Protocol-Version: {protocol}\r\n"))
            .collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n{protocols}\r\n"
        );
        Self { head, accept: None }
    }

    /// Creates a request for WebSocket (RFC 6455 section 4.1), with these protocols in order of preference.
    ///
    /// # Errors
    /// If the system provides no random numbers.
    pub fn websocket(host: &str, path: &str, protocols: &[&str]) -> io::Result<Self> {
        let mut key = [0; 16];
        SystemRandom::new()
            .fill(&mut key)
            .map_err(|_| io::Error::other("no random number for Sec-WebSocket-Key"))?;
        let key = STANDARD.encode(key);
        let protocols = match protocols {
            [] => String::new(),
            all => format!("Sec-WebSocket-Protocol: {}\r\n", all.join(", ")),
        };
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{protocols}\r\n"
        );
        let accept = accept_key(&key);
        Ok(Self { head, accept })
    }

    /// Sends the request; on success, the new protocol starts with the next byte of the connection.
    ///
    /// # Errors
    /// If the connection fails or the server refuses.
    pub async fn send<T>(&self, io: &mut T) -> Result<ResponseHead, UpgradeError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let response = exchange(io, &self.head).await?;
        if response.status != 101 {
            return Err(UpgradeError::Refused(response));
        }
        let accept = response.header("sec-websocket-accept");
        if self.accept.is_some() && accept.first().copied() != self.accept.as_deref() {
            return Err(UpgradeError::Accept);
        }
        Ok(response)
    }
}

/// Sends the head of any request and reads the head of the response byte by byte, because what follows belongs to the
/// upgraded protocol.
///
/// # Errors
/// If the connection fails, or the response is not HTTP.
pub async fn exchange<T>(io: &mut T, head: &str) -> io::Result<ResponseHead>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    io.write_all(head.as_bytes()).await?;
    io.flush().await?;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() >= MAX_HEAD_LEN {
            return Err(invalid("the head of the response is too large"));
        }
        bytes.push(io.read_u8().await?);
    }
    let head = String::from_utf8(bytes).map_err(|_| invalid("the head is not text"))?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| invalid("the response has no status"))?;
    Ok(ResponseHead { status, head })
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
