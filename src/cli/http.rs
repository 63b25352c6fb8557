//! HTTP client for the admin endpoint of a running criscope.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;

use crate::client::admin::{self, AdminListener, AdminSendError, REQUEST_TIMEOUT};

/// Prefix of the address of a unix socket.
pub(super) const UNIX_SOCKET_PREFIX: &str = "unix://";

/// The largest response that is read, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminRequestError {
    /// The configuration turns the port off, and the socket is not accessible.
    #[error("admin.listen is \"off\" in {}, and its admin.socket cannot be used", .0.display())]
    Off(PathBuf),
    /// No listener, or no permission to connect.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// The error of the system call or the resolver.
        source: io::Error,
    },
    /// Timeout.
    #[error("no answer from {address} within {} s", REQUEST_TIMEOUT.as_secs())]
    Timeout {
        /// The address.
        address: String,
    },
    /// The peer does not speak HTTP/1.1, or closed the connection early.
    #[error("{address} sent an incomplete answer: {cause}")]
    Broken {
        /// The address.
        address: String,
        /// The error.
        cause: String,
    },
    /// HTTP status 404.
    #[error("{address} has no {}", path.split('?').next().unwrap_or_default())]
    NoPage {
        /// The address.
        address: String,
        /// The page.
        path: String,
    },
    /// Another HTTP error.
    #[error("{address} answered {path} with {status}")]
    Status {
        /// The address.
        address: String,
        /// The page.
        path: String,
        /// The HTTP status.
        status: StatusCode,
    },
    /// A change was refused.
    #[error("{address} refused: {text}")]
    Refused {
        /// The address.
        address: String,
        /// The reason.
        text: String,
    },
    /// The body has an unexpected form.
    #[error("{address} answered {path} in an unexpected form: {source}")]
    Json {
        /// The address.
        address: String,
        /// The page.
        path: String,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
}

impl AdminRequestError {
    pub(super) fn broken(address: &str, cause: impl std::fmt::Display) -> Self {
        Self::Broken {
            address: address.to_owned(),
            cause: cause.to_string(),
        }
    }

    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Off(_) => Some(
                "is criscope running? Run this as root, set admin.listen, or name another address with --admin",
            ),
            Self::Connect { .. } => Some(
                "is criscope running, and does admin.listen in its configuration name this address? Name another with --admin or CRISCOPE_ADMIN",
            ),
            Self::Timeout { .. } => Some("does criscope listen there? See /livez"),
            Self::Broken { .. } | Self::Json { .. } => {
                Some("does criscope listen there, in the same version?")
            }
            Self::NoPage { .. } => Some(
                "the configuration may have admin.debug = false, or the program there is an older criscope or something else",
            ),
            Self::Status { .. } | Self::Refused { .. } => None,
        }
    }
}

/// A response.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Gets a page.
///
/// # Errors
/// If there is no complete response; any HTTP status is one.
pub(super) async fn get(address: &str, path: &str) -> Result<HttpResponse, AdminRequestError> {
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
) -> Result<HttpResponse, AdminRequestError> {
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header(header::USER_AGENT, "criscope")
        .body(Full::new(body))
        .map_err(|error| AdminRequestError::broken(address, error))?;
    let listener = match address.strip_prefix(UNIX_SOCKET_PREFIX) {
        Some(socket) => AdminListener::Socket(Path::new(socket)),
        None => AdminListener::Port(address),
    };
    let sent = admin::send(listener, request, MAX_RESPONSE_BYTES).await;
    let response = sent.map_err(|error| {
        let address = address.to_owned();
        match error {
            AdminSendError::Connect(source) => AdminRequestError::Connect { address, source },
            AdminSendError::Timeout => AdminRequestError::Timeout { address },
            AdminSendError::Broken(cause) => AdminRequestError::Broken { address, cause },
        }
    })?;
    Ok(HttpResponse {
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
        assert!(
            matches!(error, AdminRequestError::Connect { .. }),
            "{error}"
        );
        assert!(error.hint().is_some_and(|hint| hint.contains("running")));

        let short = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
        for nonsense in ["SSH-2.0-OpenSSH_9.2\r\n", "", short] {
            let error = get(&server(nonsense).await, "/").await.expect_err("broken");
            assert!(matches!(error, AdminRequestError::Broken { .. }), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let error = get(&address, "/").await.expect_err("silence");
        assert!(
            matches!(error, AdminRequestError::Timeout { .. }),
            "{error}"
        );
    }
}
