//! Forwards received export requests to the collector, byte for byte, after the response to the runtime.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Code;

use super::EXPORT;
use super::metrics::Receiving;
use crate::grpc::{BoxError, frame};
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;
use crate::telemetry::otlp::Destination;

/// Most requests, and bytes of them, in the queue.
const REQUESTS: usize = 256;
const BYTES: usize = 8 << 20;

/// A received request.
struct QueuedRequest {
    headers: HeaderMap,
    body: Bytes,
    spans: usize,
    _room: OwnedSemaphorePermit,
}

/// The queue to the collector.
#[derive(Clone)]
pub(super) struct ForwardQueue {
    queue: Sender<QueuedRequest>,
    room: Arc<Semaphore>,
    drops: Arc<Drops>,
}

impl fmt::Debug for ForwardQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardQueue").finish_non_exhaustive()
    }
}

/// The receiving end of the queue.
pub(super) struct Forwarder {
    to: Destination,
    queue: Receiver<QueuedRequest>,
    connection: Option<SendRequest<Bytes>>,
    drops: Arc<Drops>,
    metrics: Arc<Receiving>,
}

pub(super) fn pass(
    to: Destination,
    drops: &Arc<Drops>,
    metrics: &Arc<Receiving>,
) -> (ForwardQueue, Forwarder) {
    let (sender, queue) = channel(REQUESTS);
    let pass = ForwardQueue {
        queue: sender,
        room: Arc::new(Semaphore::new(BYTES)),
        drops: Arc::clone(drops),
    };
    let passer = Forwarder {
        to,
        queue,
        connection: None,
        drops: Arc::clone(drops),
        metrics: Arc::clone(metrics),
    };
    (pass, passer)
}

impl ForwardQueue {
    /// Queues a request, or counts its spans as dropped if the queue is full.
    pub(super) fn on(&self, headers: HeaderMap, body: Bytes, spans: usize) {
        let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes).ok();
        let passed = room.and_then(|room| {
            let passing = QueuedRequest {
                headers,
                body,
                spans,
                _room: room,
            };
            self.queue.try_send(passing).ok()
        });
        if passed.is_none() {
            self.drops.add(DropReason::PassedQueueFull, spans);
        }
    }
}

impl Forwarder {
    /// Forwards until the queue is closed.
    pub(super) async fn run(mut self) {
        while let Some(passing) = self.queue.recv().await {
            let sent = tokio::time::timeout(self.to.timeout, self.send(&passing)).await;
            let error: BoxError = match sent {
                Ok(Ok(())) => {
                    self.metrics.passed_on(passing.spans);
                    continue;
                }
                Ok(Err(error)) => error,
                Err(late) => late.into(),
            };
            // The next request gets a new connection.
            self.connection = None;
            self.drops.add(DropReason::PassedFailed, passing.spans);
            tracing::warn!(
                target: "criscope::telemetry",
                event = "telemetry.dropped",
                signal = "passed_span",
                reason = "export_failed",
                dropped = passing.spans,
                error.message = %error,
                "spans of the runtime could not be forwarded"
            );
        }
    }

    async fn send(&mut self, passing: &QueuedRequest) -> Result<(), BoxError> {
        let uri: Uri = self.to.endpoint.parse()?;
        let host = uri.authority().ok_or("no host")?.clone();
        let request = self.request(&uri, passing)?;
        let known = self.connection.take();
        // The collector may have closed an idle connection.
        let ready = match known {
            Some(known) => known.ready().await.ok(),
            None => None,
        };
        let mut sender = match ready {
            Some(sender) => sender,
            None => {
                connect(host.host(), host.port_u16().unwrap_or(80))
                    .await?
                    .ready()
                    .await?
            }
        };
        let (response, mut stream) = sender.send_request(request, false)?;
        // The message is already in memory; h2 sends it as the collector's window allows.
        stream.send_data(passing.body.clone(), true)?;
        let (head, mut body) = response.await?.into_parts();
        while let Some(data) = body.data().await {
            body.flow_control().release_capacity(data?.len())?;
        }
        let trailers = poll_fn(|cx| body.poll_trailers(cx)).await?;
        let status = trailers.as_ref().and_then(frame::status);
        match status.or_else(|| frame::status(&head.headers)) {
            Some((Code::Ok, _)) => {
                self.connection = Some(sender);
                Ok(())
            }
            Some((code, _)) => Err(format!("the collector answered {code:?}").into()),
            None => Err(format!("the collector answered http status {}", head.status).into()),
        }
    }

    /// The received request, addressed to the collector and with its configured headers.
    fn request(&self, uri: &Uri, passing: &QueuedRequest) -> Result<http::Request<()>, BoxError> {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(EXPORT.parse()?);
        let mut request = http::Request::post(Uri::from_parts(parts)?).body(())?;
        *request.version_mut() = http::Version::HTTP_2;
        let headers = request.headers_mut();
        *headers = passing.headers.clone();
        // The runtime's timeout does not apply here.
        headers.remove("grpc-timeout");
        for (name, value) in &self.to.headers {
            let name: HeaderName = name.parse()?;
            if !headers.contains_key(&name) {
                headers.insert(name, HeaderValue::from_str(value)?);
            }
        }
        Ok(request)
    }
}

async fn connect(host: &str, port: u16) -> Result<SendRequest<Bytes>, BoxError> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = h2::client::Builder::new()
        .enable_push(false)
        .handshake(stream)
        .await?;
    tokio::spawn(async move {
        // Each request on it sees the error itself.
        let _ = connection.await;
    });
    Ok(sender)
}
