//! An HTTP/2 client: sends arbitrary requests and returns complete responses.

use std::path::Path;

use bytes::Bytes;
use h2::Reason;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Method, Request, StatusCode};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use crate::{headers, message, soon};

/// A request.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    /// With scheme and authority.
    pub uri: String,
    pub headers: HeaderMap,
    /// At least one DATA frame each; the last ends the stream.
    pub pieces: Vec<Bytes>,
    /// Sent at the end, in place of END_STREAM on the last piece.
    pub trailers: Option<HeaderMap>,
}

impl Call {
    /// As a gRPC client sends it; `path` is `/service/method`.
    pub fn new(path: &str, body: Bytes) -> Self {
        Self {
            method: Method::POST,
            uri: format!("http://localhost{path}"),
            headers: headers(&[
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("user-agent", "grpc-go/1.72.0"),
            ]),
            pieces: vec![body],
            trailers: None,
        }
    }

    /// A call of the runtime service with this framed message.
    pub fn runtime(method: &str, body: Bytes) -> Self {
        Self::new(&format!("/runtime.v1.RuntimeService/{method}"), body)
    }

    /// A call of the image service with this framed message.
    pub fn image(method: &str, body: Bytes) -> Self {
        Self::new(&format!("/runtime.v1.ImageService/{method}"), body)
    }

    /// A call of the runtime service with an empty message.
    pub fn plain(method: &str) -> Self {
        Self::runtime(method, message(b""))
    }

    /// Adds a header.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.extend(headers(&[(name, value)]));
        self
    }
}

/// Why a response is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The stream was reset.
    Reset(Reason),
    /// The connection was ended with GOAWAY.
    GoAway(Reason),
    /// The connection broke.
    Connection(String),
}

impl From<h2::Error> for Broken {
    fn from(error: h2::Error) -> Self {
        match error.reason() {
            Some(reason) if error.is_reset() => Self::Reset(reason),
            Some(reason) if error.is_go_away() => Self::GoAway(reason),
            _ => Self::Connection(error.to_string()),
        }
    }
}

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Got {
    pub http: Option<StatusCode>,
    pub headers: HeaderMap,
    /// Whether the HEADERS frame ended the stream.
    pub head_only: bool,
    pub data: Vec<u8>,
    pub trailers: Option<HeaderMap>,
    pub broken: Option<Broken>,
}

impl Got {
    /// `grpc-status` of the trailers, or of the head without trailers; -1 if absent.
    pub fn code(&self) -> i32 {
        self.field("grpc-status")
            .and_then(|v| v.parse().ok())
            .unwrap_or(-1)
    }

    /// `grpc-message` as sent, not decoded.
    pub fn text(&self) -> String {
        self.field("grpc-message").unwrap_or_default()
    }

    fn field(&self, name: &str) -> Option<String> {
        let map = self.trailers.as_ref().unwrap_or(&self.headers);
        Some(map.get(name)?.to_str().ok()?.to_owned())
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    sender: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    /// Connects with the largest windows.
    pub async fn connect(path: &Path) -> Self {
        Self::with_window(path, 1 << 30).await
    }

    /// Connects with windows of this many bytes for each stream.
    pub async fn with_window(path: &Path, window: u32) -> Self {
        crate::kubelet::play_kubelet();
        let socket = UnixStream::connect(path).await.expect("connect");
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(window)
            .initial_connection_window_size(1 << 30)
            .max_header_list_size(8 << 20)
            .enable_push(false);
        let (sender, connection) = builder.handshake(socket).await.expect("handshake");
        Self {
            sender,
            connection: tokio::spawn(connection),
        }
    }

    /// Sends a call and all of its body without waiting for the response.
    pub async fn start(&self, call: Call) -> Open {
        let mut open = self.begin(&call).await;
        open.send_body(call).await;
        open
    }

    /// Sends only the request headers.
    pub async fn begin(&self, call: &Call) -> Open {
        let mut request = Request::builder().method(&call.method).uri(&call.uri);
        *request.headers_mut().expect("valid uri") = call.headers.clone();
        let request = request.body(()).expect("request");
        let end = call.pieces.is_empty() && call.trailers.is_none();
        let sender = self.sender.clone();
        let sent = match soon("room for a stream", sender.ready()).await {
            Ok(mut sender) => sender.send_request(request, end),
            Err(error) => Err(error),
        };
        match sent {
            Ok((response, stream)) => Open {
                response: Some(response),
                stream: Some(stream),
                failed: None,
            },
            Err(error) => Open {
                response: None,
                stream: None,
                failed: Some(error.into()),
            },
        }
    }

    /// Sends a call and waits for the whole response.
    pub async fn call(&self, call: Call) -> Got {
        let what = call.uri.clone();
        let open = self.start(call).await;
        soon(&what, open.finish()).await
    }
}

/// A call in flight.
#[derive(Debug)]
pub struct Open {
    response: Option<ResponseFuture>,
    stream: Option<h2::SendStream<Bytes>>,
    failed: Option<Broken>,
}

impl Open {
    async fn send_body(&mut self, call: Call) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let count = call.pieces.len();
        for (i, piece) in call.pieces.into_iter().enumerate() {
            let end = i + 1 == count && call.trailers.is_none();
            // Reading the response reports the error.
            let _ = stream.send_data(piece, end);
        }
        if let Some(trailers) = call.trailers {
            let _ = stream.send_trailers(trailers);
        }
    }

    /// Sends more of the body.
    pub fn send(&mut self, data: Bytes, end: bool) {
        let stream = self.stream.as_mut().expect("a stream");
        let _ = stream.send_data(data, end);
    }

    /// Resets the stream.
    pub fn reset(mut self, reason: Reason) {
        if let Some(stream) = &mut self.stream {
            stream.send_reset(reason);
        }
    }

    /// Reads the whole response.
    pub async fn finish(mut self) -> Got {
        let (mut got, body) = self.head().await;
        if let Some(body) = body {
            read(&mut got, body).await;
        }
        got
    }

    /// Waits for the response headers; returns the unread body, if any.
    pub async fn head(&mut self) -> (Got, Option<h2::RecvStream>) {
        let mut got = Got::default();
        let Some(response) = self.response.take() else {
            got.broken = self.failed.take();
            return (got, None);
        };
        let response = match soon("head of an answer", response).await {
            Ok(response) => response,
            Err(error) => {
                got.broken = Some(error.into());
                return (got, None);
            }
        };
        let (head, body) = response.into_parts();
        got.http = Some(head.status);
        got.headers = head.headers;
        got.head_only = body.is_end_stream();
        (got, Some(body))
    }
}

/// Reads the rest of a response.
pub async fn read(got: &mut Got, mut body: h2::RecvStream) {
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len());
                got.data.extend_from_slice(&data);
            }
            Err(error) => {
                got.broken = Some(error.into());
                return;
            }
        }
    }
    match body.trailers().await {
        Ok(trailers) => got.trailers = trailers,
        Err(error) => got.broken = Some(error.into()),
    }
}

/// Reads until `n` bytes of data have arrived in total.
pub async fn read_some(got: &mut Got, body: &mut h2::RecvStream, n: usize) {
    while got.data.len() < n {
        let next = soon("more data", body.data()).await;
        let data = next.expect("more data").expect("data");
        let _ = body.flow_control().release_capacity(data.len());
        got.data.extend_from_slice(&data);
    }
}
