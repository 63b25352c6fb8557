//! HTTP client for the admin endpoint of a running criscope.

use std::path::Path;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;

use crate::client::admin::{self, AdminListener, AdminSendError, REQUEST_TIMEOUT};
use crate::pages::source::{PageError, PageReply};

/// Prefix of the address of a unix socket.
pub(super) const UNIX_SOCKET_PREFIX: &str = "unix://";

/// The largest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Gets a page.
///
/// # Errors
/// If there is no complete response; any HTTP status is one.
pub(super) async fn get(address: &str, path: &str) -> Result<PageReply, PageError> {
    send(address, Method::GET, path, Bytes::new()).await
}

/// Sends a request.
///
/// # Errors
/// If there is no complete response; any HTTP status is one.
pub(super) async fn send(
    address: &str,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<PageReply, PageError> {
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header(header::USER_AGENT, "criscope")
        .body(Full::new(body))
        .map_err(|error| PageError::broken(address, error))?;
    let listener = match address.strip_prefix(UNIX_SOCKET_PREFIX) {
        Some(socket) => AdminListener::Socket(Path::new(socket)),
        None => AdminListener::Port(address),
    };
    let sent = admin::send(listener, request, MAX_RESPONSE_BYTES).await;
    let response = sent.map_err(|error| {
        let address = address.to_owned();
        match error {
            AdminSendError::Connect(source) => PageError::Connect { address, source },
            AdminSendError::Timeout => PageError::Timeout {
                address,
                limit: REQUEST_TIMEOUT,
            },
            AdminSendError::Broken(cause) => PageError::Broken { address, cause },
        }
    })?;
    Ok(PageReply {
        status: response.status(),
        body: response.into_body(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// Answers one request with these bytes and closes.
    pub(crate) async fn serve_once(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        });
        address
    }

    async fn server(answer: &'static str) -> String {
        serve_once(answer).await.to_string()
    }

    #[tokio::test]
    async fn answers_are_read_whole_whatever_their_status() {
        let chunked =
            "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let answer = get(&server(chunked).await, "/x").await.expect("answer");
        assert_eq!(
            (answer.status.as_u16(), &answer.body[..]),
            (404, &b"abc"[..])
        );
        let closed = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it";
        let answer = get(&server(closed).await, "/").await.expect("answer");
        assert_eq!(&answer.body[..], b"all of it");
    }

    #[tokio::test]
    async fn what_is_wrong_is_told_apart() {
        // Bound, so that no other process gets the port, but not listening.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
        let address = socket.local_addr().expect("bound").to_string();
        let error = get(&address, "/").await.expect_err("no listener");
        assert!(matches!(error, PageError::Connect { .. }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("running")));

        let short = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
        for nonsense in ["SSH-2.0-OpenSSH_9.2\r\n", "", short] {
            let error = get(&server(nonsense).await, "/").await.expect_err("broken");
            assert!(matches!(error, PageError::Broken { .. }), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let error = get(&address, "/").await.expect_err("silence");
        assert!(matches!(error, PageError::Timeout { .. }), "{error}");
    }
}
