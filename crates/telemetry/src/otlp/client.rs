//! Sends spans to the collector, over gRPC or HTTP/1.1, with or without TLS, on one connection that is kept.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest as GrpcSender;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest as HttpSender};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;

use super::alert::TlsAlert;
use super::collector::Collector;
use crate::settings::OtlpProtocol;
use criscope_grpc::frame::{self, FrameHeader};
use criscope_grpc::uds::FilteredStream;

/// Largest response, in bytes: the number of rejected spans and a reason.
const MAX_RESPONSE_LEN: usize = 64 << 10;

type BoxError = Box<dyn StdError + Send + Sync>;

/// The reason why an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// The status of a gRPC response. Its message may quote a header.
    #[error("the collector answered {0:?}")]
    Grpc(Code),
    /// The status of an HTTP response.
    #[error("the collector answered http status {status}")]
    Http {
        /// The status.
        status: StatusCode,
        /// `Retry-After`.
        after: Option<Duration>,
    },
    /// The collector did not answer in time.
    #[error("no answer from the collector within {0:?}")]
    Late(Duration),
}

impl SendError {
    /// The shortest pause before a retry; `None` if the specification of OTLP forbids a retry ("Failures").
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Connection(_) => Some(Duration::ZERO),
            Self::Grpc(
                Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss,
            ) => Some(Duration::ZERO),
            Self::Http { status, after } if matches!(status.as_u16(), 429 | 502 | 503 | 504) => {
                Some(after.unwrap_or_default())
            }
            Self::Grpc(_) | Self::Http { .. } | Self::Late(_) => None,
        }
    }
}

/// An export of spans.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// An `ExportTraceServiceRequest`, possibly compressed.
    pub message: Bytes,
    /// The compression of the message.
    pub encoding: Option<HeaderValue>,
    /// Further headers. They take precedence over headers that are configured for the collector.
    pub headers: HeaderMap,
}

impl ExportRequest {
    /// The message of a gRPC request with these headers; `None` if it is not one whole message.
    pub fn from_grpc(mut headers: HeaderMap, mut body: Bytes) -> Option<Self> {
        let head = FrameHeader::read(&body)?;
        let message = body.split_off(frame::HEADER_LENGTH);
        if message.len() != head.len {
            return None;
        }
        let encoding = headers.remove("grpc-encoding");
        let encoding = encoding.filter(|_| head.compressed);
        // Headers of the transport and the caller's timeout do not apply to another connection.
        for name in [
            "grpc-timeout",
            "grpc-accept-encoding",
            "content-type",
            "content-length",
            "connection",
            "host",
            "te",
        ] {
            headers.remove(name);
        }
        Some(Self {
            message,
            encoding,
            headers,
        })
    }
}

/// A client of the collector.
pub struct CollectorClient {
    collector: Arc<Collector>,
    connection: Option<CollectorConnection>,
}

impl std::fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A connection, and the headers at the time of its creation.
struct CollectorConnection {
    sender: RequestSender,
    headers: HeaderMap,
}

enum RequestSender {
    Grpc(GrpcSender<Bytes>),
    Http(HttpSender<Full<Bytes>>),
}

impl CollectorClient {
    /// Creates a client. It connects with the first export.
    pub fn new(collector: Arc<Collector>) -> Self {
        Self {
            collector,
            connection: None,
        }
    }

    /// Sends an export once, and returns the response's message. Needs the runtime, and has no timeout. After an error,
    /// or if the future is dropped, the next export gets a new connection.
    ///
    /// # Errors
    /// If the collector does not accept it.
    pub async fn send(&mut self, export: &ExportRequest) -> Result<Bytes, SendError> {
        // The collector may have closed an idle connection.
        let ready = match self.connection.take() {
            Some(connection) => connection.ready().await.ok(),
            None => None,
        };
        let mut connection = match ready {
            Some(connection) => connection,
            None => connect(&self.collector).await.map_err(|error| {
                let to = self.collector.url.authority().map_or("", |a| a.as_str());
                SendError::Connection(format!("connection to {to}: {}", chain(&*error)))
            })?,
        };
        let answer = match &mut connection.sender {
            RequestSender::Grpc(sender) => {
                let request = grpc_request(&self.collector, &connection.headers, export);
                over_grpc(sender, request.map_err(broken)?, export).await
            }
            RequestSender::Http(sender) => {
                let request = http_request(&self.collector, &connection.headers, export);
                over_http(sender, request.map_err(broken)?).await
            }
        }
        .map_err(broken)?;
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer
    }
}

impl CollectorConnection {
    async fn ready(self) -> Result<Self, BoxError> {
        let sender = match self.sender {
            RequestSender::Grpc(sender) => RequestSender::Grpc(sender.ready().await?),
            RequestSender::Http(mut sender) => {
                sender.ready().await?;
                RequestSender::Http(sender)
            }
        };
        Ok(Self { sender, ..self })
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it is an argument of map_err"
)]
fn broken(error: BoxError) -> SendError {
    SendError::Connection(chain(&*error))
}

/// An error with its causes, unless they are part of its text.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            let _ = write!(text, ": {more}");
        }
        cause = error.source();
    }
    text
}

trait CollectorStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> CollectorStream for T {}

async fn connect(collector: &Arc<Collector>) -> Result<CollectorConnection, BoxError> {
    let alpn: &[u8] = match collector.protocol {
        OtlpProtocol::Grpc => b"h2",
        OtlpProtocol::HttpProtobuf => b"http/1.1",
    };
    let files = Arc::clone(collector);
    let read = tokio::task::spawn_blocking(move || -> Result<_, BoxError> {
        let tls = files.tls.as_ref().map(|tls| tls.config(alpn));
        Ok((files.headers()?, tls.transpose()?))
    });
    let (headers, tls) = read.await??;

    let host = collector.url.host().ok_or("no host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let default = if tls.is_some() { 443 } else { 80 };
    let port = collector.url.port_u16().unwrap_or(default);
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let stream: Box<dyn CollectorStream> = match tls {
        None => Box::new(stream),
        Some(config) => {
            let name = ServerName::try_from(host.to_owned())?;
            let stream = TlsConnector::from(config).connect(name, stream).await?;
            Box::new(FilteredStream::new(stream, TlsAlert::default()))
        }
    };
    // Every request on a connection reports its errors too.
    let sender = match collector.protocol {
        OtlpProtocol::Grpc => {
            let mut builder = h2::client::Builder::new();
            let (sender, connection) = builder.enable_push(false).handshake(stream).await?;
            tokio::spawn(async move { drop(connection.await) });
            RequestSender::Grpc(sender.ready().await?)
        }
        OtlpProtocol::HttpProtobuf => {
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(async move { drop(connection.await) });
            sender.ready().await?;
            RequestSender::Http(sender)
        }
    };
    Ok(CollectorConnection { sender, headers })
}

const USER_AGENT: &str = concat!("criscope/", env!("CARGO_PKG_VERSION"));

/// The headers of the export, then the collector's headers that the export does not have.
fn merged(export: &ExportRequest, headers: &HeaderMap, encoding: &'static str) -> HeaderMap {
    let mut all = export.headers.clone();
    for name in headers.keys() {
        if !all.contains_key(name) {
            for value in headers.get_all(name) {
                all.append(name, value.clone());
            }
        }
    }
    let agent = all.entry(header::USER_AGENT);
    agent.or_insert(HeaderValue::from_static(USER_AGENT));
    if let Some(value) = &export.encoding {
        all.insert(encoding, value.clone());
    }
    all
}

fn grpc_request(
    collector: &Collector,
    headers: &HeaderMap,
    export: &ExportRequest,
) -> Result<Request<()>, BoxError> {
    let mut request = Request::post(collector.url.clone()).body(())?;
    *request.version_mut() = http::Version::HTTP_2;
    let mut headers = merged(export, headers, "grpc-encoding");
    let grpc = HeaderValue::from_static("application/grpc");
    headers.insert(header::CONTENT_TYPE, grpc);
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    *request.headers_mut() = headers;
    Ok(request)
}

async fn over_grpc(
    sender: &mut GrpcSender<Bytes>,
    request: Request<()>,
    export: &ExportRequest,
) -> Result<Result<Bytes, SendError>, BoxError> {
    let mut framed = BytesMut::with_capacity(frame::HEADER_LENGTH + export.message.len());
    framed.put_u8(u8::from(export.encoding.is_some()));
    framed.put_u32(u32::try_from(export.message.len())?);
    framed.put_slice(&export.message);
    let (response, mut stream) = sender.send_request(request, false)?;
    // The message is already in memory; h2 sends it as the collector's window allows.
    stream.send_data(framed.freeze(), true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut answer = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        if answer.len() + data.len() <= MAX_RESPONSE_LEN {
            answer.put_slice(&data);
        }
    }
    let trailers = poll_fn(|cx| body.poll_trailers(cx)).await?;
    let status = trailers.as_ref().and_then(frame::status);
    Ok(match status.or_else(|| frame::status(&head.headers)) {
        Some((Code::Ok, _)) => {
            let start = answer.len().min(frame::HEADER_LENGTH);
            Ok(answer.freeze().slice(start..))
        }
        Some((code, _)) => Err(SendError::Grpc(code)),
        None => Err(SendError::Http {
            status: head.status,
            after: None,
        }),
    })
}

fn http_request(
    collector: &Collector,
    headers: &HeaderMap,
    export: &ExportRequest,
) -> Result<Request<Full<Bytes>>, BoxError> {
    let host = collector.url.authority().ok_or("no host")?;
    let path = collector.url.path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    let mut request = Request::post(path).body(Full::new(export.message.clone()))?;
    let mut headers = merged(export, headers, "content-encoding");
    let protobuf = HeaderValue::from_static("application/x-protobuf");
    headers.insert(header::CONTENT_TYPE, protobuf);
    headers.insert(header::HOST, HeaderValue::from_str(host.as_str())?);
    *request.headers_mut() = headers;
    Ok(request)
}

async fn over_http(
    sender: &mut HttpSender<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Result<Bytes, SendError>, BoxError> {
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, MAX_RESPONSE_LEN)
        .collect()
        .await?
        .to_bytes();
    if head.status.is_success() {
        return Ok(Ok(body));
    }
    let after = head.headers.get(header::RETRY_AFTER);
    let after = after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    Ok(Err(SendError::Http {
        status: head.status,
        after: after.map(Duration::from_secs),
    }))
}
