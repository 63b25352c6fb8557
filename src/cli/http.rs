//! What a running criscope tells over HTTP, for the commands that ask it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the address of a unix socket begins with.
pub(super) const SOCKET: &str = "unix://";

/// The largest answer that is read, in bytes.
const ENOUGH: usize = 64 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The configuration turns the port off, and the socket is not there for us.
    #[error("admin.listen is \"off\" in {}, and its admin.socket cannot be used", .0.display())]
    Off(PathBuf),
    /// Nobody listens there, or not so that we may connect.
    #[error("cannot connect to {address}: {source}")]
    Connect {
        /// The address.
        address: String,
        /// What the kernel or the resolver said.
        source: io::Error,
    },
    /// It took too long.
    #[error("no answer from {address} within {} s", PATIENCE.as_secs())]
    Timeout {
        /// The address.
        address: String,
    },
    /// What listens there does not speak HTTP/1.1, or broke off.
    #[error("{address} gave no whole answer: {cause}")]
    Broken {
        /// The address.
        address: String,
        /// What was wrong with it.
        cause: String,
    },
    /// There is no such page.
    #[error("{address} has no {}", path.split('?').next().unwrap_or_default())]
    NoPage {
        /// The address.
        address: String,
        /// The page.
        path: String,
    },
    /// It answered with an error.
    #[error("{address} answered {path} with {status}")]
    Status {
        /// The address.
        address: String,
        /// The page.
        path: String,
        /// The HTTP status.
        status: StatusCode,
    },
    /// The answer is not what it should be.
    #[error("{address} answered {path} with something else: {source}")]
    Json {
        /// The address.
        address: String,
        /// The page.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl AskError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Off(_) => Some(
                "is criscope running? Run this as root, set admin.listen, or name another address with --admin",
            ),
            Self::Connect { .. } => Some(
                "is criscope running, and is admin.listen this address? Name another with --admin or CRISCOPE_ADMIN",
            ),
            Self::Timeout { .. } => Some("is it criscope that listens there? See /livez"),
            Self::Broken { .. } | Self::Json { .. } => {
                Some("is it criscope that listens there, and of the same version?")
            }
            Self::NoPage { .. } => Some(
                "admin.debug is false in its configuration, it is an older version, or no criscope",
            ),
            Self::Status { .. } => None,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

/// Asks for a page.
///
/// # Errors
/// If there is no whole answer; any status is one.
pub(super) async fn get(address: &str, path: &str) -> Result<Answer, AskError> {
    match timeout(PATIENCE, ask(address, path)).await {
        Ok(answer) => answer,
        Err(_) => Err(AskError::Timeout {
            address: address.to_owned(),
        }),
    }
}

async fn ask(address: &str, path: &str) -> Result<Answer, AskError> {
    let refused = |source| AskError::Connect {
        address: address.to_owned(),
        source,
    };
    match address.strip_prefix(SOCKET) {
        Some(socket) => {
            let stream = UnixStream::connect(socket).await.map_err(refused)?;
            exchange(stream, address, "localhost", path).await
        }
        None => {
            let stream = TcpStream::connect(address).await.map_err(refused)?;
            exchange(stream, address, address, path).await
        }
    }
}

/// Asks for a page and reads the answer. `address` is for errors.
async fn exchange<T>(stream: T, address: &str, host: &str, path: &str) -> Result<Answer, AskError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |cause: String| AskError::Broken {
        address: address.to_owned(),
        cause,
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(error.to_string()))?;
    let request = Request::get(path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, "criscope")
        .body(Empty::<Bytes>::new())
        .map_err(|error| broken(error.to_string()))?;
    let talk = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| broken(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ENOUGH).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => broken(format!("more than {} MiB", ENOUGH >> 20)),
            false => broken(error.to_string()),
        })?;
        Ok(Answer {
            status,
            body: body.to_bytes(),
        })
    };
    tokio::pin!(connection, talk);
    // The connection is driven here, so that it ends with the question.
    tokio::select! {
        answer = &mut talk => answer,
        result = &mut connection => {
            result.map_err(|error| broken(error.to_string()))?;
            // The rest may be in memory already.
            talk.await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// Answers one request with these bytes and closes.
    async fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        });
        address
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
        // Bound, so that nobody else gets the port, but nobody listens.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
        let address = socket.local_addr().expect("bound").to_string();
        let error = get(&address, "/").await.expect_err("nobody there");
        assert!(matches!(error, AskError::Connect { .. }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("running")));

        let short = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
        for nonsense in ["SSH-2.0-OpenSSH_9.2\r\n", "", short] {
            let error = get(&server(nonsense).await, "/").await.expect_err("broken");
            assert!(matches!(error, AskError::Broken { .. }), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound").to_string();
        let error = get(&address, "/").await.expect_err("silence");
        assert!(matches!(error, AskError::Timeout { .. }), "{error}");
    }
}
