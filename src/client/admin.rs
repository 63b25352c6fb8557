//! One HTTP request to the admin endpoint of a running criscope, for its commands and for criscope-agent.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Timeout of a request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the endpoint listens.
#[derive(Clone, Copy, Debug)]
pub enum AdminListener<'a> {
    /// A unix socket.
    Socket(&'a Path),
    /// HOST:PORT.
    Port(&'a str),
}

/// Why there is no response.
#[derive(Debug)]
pub enum AdminSendError {
    /// No listener, or no permission to connect.
    Connect(io::Error),
    /// No answer within [`REQUEST_TIMEOUT`].
    Timeout,
    /// The peer does not speak HTTP/1.1, closed the connection early, or sent too much.
    Broken(String),
}

fn broken(error: impl Display) -> AdminSendError {
    AdminSendError::Broken(error.to_string())
}

/// Sends a request and reads the response, of `limit` bytes at most.
///
/// # Errors
/// If there is no complete response; any HTTP status is one.
pub async fn send(
    to: AdminListener<'_>,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Response<Bytes>, AdminSendError> {
    let exchanged = async {
        match to {
            AdminListener::Socket(path) => {
                let stream = UnixStream::connect(path).await;
                let stream = stream.map_err(AdminSendError::Connect)?;
                exchange(stream, "localhost", request, limit).await
            }
            AdminListener::Port(address) => {
                let stream = TcpStream::connect(address).await;
                let stream = stream.map_err(AdminSendError::Connect)?;
                exchange(stream, address, request, limit).await
            }
        }
    };
    let exchanged = timeout(REQUEST_TIMEOUT, exchanged).await;
    exchanged.unwrap_or(Err(AdminSendError::Timeout))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
    mut request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Response<Bytes>, AdminSendError> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    let host = HeaderValue::from_str(host).map_err(broken)?;
    request.headers_mut().insert(header::HOST, host);
    let talk = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, limit).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                broken(format_args!("more than {} MiB", limit >> 20))
            } else {
                broken(error)
            }
        })?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    tokio::pin!(connection, talk);
    // The connection is driven here, so that it ends with the request.
    tokio::select! {
        answer = &mut talk => answer,
        ended = &mut connection => {
            ended.map_err(broken)?;
            // The rest of the body may be buffered already.
            talk.await
        }
    }
}
