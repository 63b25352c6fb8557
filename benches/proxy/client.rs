//! The caller: hyper's HTTP/2 client on a unix socket, with prepared requests, so that its overhead is small and the same
//! on every path.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

use crate::error::{Error, Result};
use crate::message::{Once, PREFIX, frame};

/// A prepared call. Its headers are those of the kubelet.
#[derive(Clone)]
pub(crate) struct Prepared {
    head: http::request::Parts,
    body: Bytes,
}

impl Prepared {
    /// A call of `runtime.v1.RuntimeService`.
    ///
    /// # Errors
    /// If `method` cannot be part of a URI.
    pub(crate) fn runtime(method: &str, message: &impl Message) -> Result<Self> {
        let (head, ()) = Request::builder()
            .method(Method::POST)
            .uri(format!(
                "http://localhost/runtime.v1.RuntimeService/{method}"
            ))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::USER_AGENT, "grpc-go/1.72.2")
            .header(header::TE, "trailers")
            .header("grpc-timeout", "120S")
            .body(())
            .map_err(|error| Error::Call {
                method: method.to_owned(),
                cause: error.to_string(),
            })?
            .into_parts();
        Ok(Self {
            head,
            body: frame(message),
        })
    }

    fn failed(&self, cause: impl fmt::Display) -> Error {
        let path = self.head.uri.path();
        Error::Call {
            method: path.rsplit('/').next().unwrap_or(path).to_owned(),
            cause: cause.to_string(),
        }
    }
}

/// How far a connection may receive ahead of its reader, and the speed of the reader.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// Flow-control window of a stream, bytes; the connection gets twice that.
    window: u32,
    /// Pause after each [`MOUTHFUL`].
    pause: Option<Duration>,
}

/// Bytes that a slow reader reads between two pauses. Not one chunk, because chunks get very small when hyper's client
/// reads slowly: h2 returns each byte of the window as soon as it was read.
const MOUTHFUL: usize = 1 << 14;

impl Reading {
    /// The approximate window estimate of gRPC-Go on a local socket.
    pub(crate) const FAST: Self = Self {
        window: 1 << 20,
        pause: None,
    };
    /// A reader that causes back pressure: the smallest usual window, and about 10 MB/s.
    pub(crate) const SLOW: Self = Self {
        window: (1 << 16) - 1,
        pause: Some(Duration::from_millis(1)),
    };
}

/// One connection. Clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    sender: SendRequest<Once>,
    reading: Reading,
}

impl Client {
    /// Connects, and spawns the task of the connection.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub(crate) async fn connect(socket: &Path, reading: Reading) -> Result<Self> {
        let failed = |cause: String| Error::Connect {
            socket: socket.to_owned(),
            cause,
        };
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(reading.window)
            .initial_connection_window_size(reading.window * 2)
            .max_frame_size(1 << 14)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        tokio::spawn(connection);
        Ok(Self { sender, reading })
    }

    /// Sends the call and reads the whole reply. Returns the number of body bytes.
    ///
    /// # Errors
    /// [`Error::Call`] if the transport fails, the gRPC status is not 0 or the reply has no message.
    pub(crate) async fn call(&mut self, call: &Prepared) -> Result<usize> {
        self.call_and_look(call, |_| ()).await
    }

    /// Makes a call of `runtime.v1.RuntimeService` and decodes the reply.
    ///
    /// # Errors
    /// As [`Client::call`], and if the reply cannot be decoded.
    pub(crate) async fn ask<R: Message + Default>(
        &mut self,
        method: &str,
        request: &impl Message,
    ) -> Result<R> {
        let call = Prepared::runtime(method, request)?;
        let mut reply = Vec::new();
        self.call_and_look(&call, |chunk| reply.extend_from_slice(chunk))
            .await?;
        R::decode(reply.get(PREFIX..).unwrap_or_default()).map_err(|error| call.failed(error))
    }

    /// Sends the call, reads the reply, and passes each chunk of the body to `look`.
    async fn call_and_look(
        &mut self,
        call: &Prepared,
        mut look: impl FnMut(&Bytes),
    ) -> Result<usize> {
        let request = Request::from_parts(call.head.clone(), Once::request(call.body.clone()));
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|error| call.failed(error))?;
        let mut status = grpc_status(response.headers());
        if !response.status().is_success() {
            return Err(call.failed(response.status()));
        }
        let mut body = response.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| call.failed(error))?;
            if let Some(data) = frame.data_ref() {
                let before = length;
                length += data.len();
                look(data);
                if let Some(pause) = self.reading.pause
                    && length / MOUTHFUL > before / MOUTHFUL
                {
                    tokio::time::sleep(pause).await;
                }
            } else if let Some(trailers) = frame.trailers_ref() {
                status = grpc_status(trailers);
            }
        }
        match status {
            Some(status) if status == "0" && length < PREFIX => Err(call.failed("no message")),
            Some(status) if status == "0" => Ok(length),
            Some(status) => Err(call.failed(format!(
                "grpc-status {}",
                String::from_utf8_lossy(status.as_bytes())
            ))),
            None => Err(call.failed("no grpc-status")),
        }
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get("grpc-status").cloned()
}
