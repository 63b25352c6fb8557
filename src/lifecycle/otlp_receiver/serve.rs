//! One export request: limits and response.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use flate2::read::GzDecoder;
use futures_util::stream;
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyExt, Limited, StreamBody};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;
use tonic::Code;

use super::EXPORT;
use super::admission::NotAdmitted;
use super::forward::ForwardQueue;
use super::metrics::{Received, Receiving};
use super::span_tree::SpanTree;
use super::spans::{self, Exported, Reported};
use crate::grpc::frame::FrameHeader;
use crate::grpc::status::Status;
use crate::grpc::{Body, BoxError, Response, frame};
use crate::lifecycle::Event;
use crate::lifecycle::call_sink::MOST_SPANS;
use crate::lifecycle::kubelet::syncs::KubeletSpan;
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;

/// Largest request, and largest message after decompression, in bytes.
const MOST_BYTES: usize = 4 << 20;
const MOST_UNPACKED: usize = 16 << 20;

/// Requests read concurrently; more wait.
const AT_ONCE: usize = 4;

/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// What all requests share.
#[derive(Debug)]
pub(super) struct Shared {
    room: Semaphore,
    span_tree: Arc<Mutex<SpanTree>>,
    feed: Sender<Event>,
    pass: Option<ForwardQueue>,
    drops: Arc<Drops>,
    metrics: Arc<Receiving>,
}

impl Shared {
    pub(super) fn new(
        span_tree: SpanTree,
        feed: Sender<Event>,
        pass: Option<ForwardQueue>,
        drops: Arc<Drops>,
        metrics: Arc<Receiving>,
    ) -> Self {
        Self {
            room: Semaphore::new(AT_ONCE),
            span_tree: Arc::new(Mutex::new(span_tree)),
            feed,
            pass,
            drops,
            metrics,
        }
    }

    /// Answers a request.
    pub(super) async fn answer<B>(&self, request: http::Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
    {
        if request.uri().path() != EXPORT {
            let text = "only traces are received here";
            return Status::new(Code::Unimplemented, text).into_response();
        }
        match self.take(request).await {
            Ok(()) => done(),
            Err(status) => status.into_response(),
        }
    }

    /// Answers a request of a user who may not send spans. Its message is not read, so it counts as one span.
    pub(super) fn refuse(&self, refusal: NotAdmitted) -> Response {
        self.metrics.received(Received::Dropped, 1);
        self.drops.add(DropReason::PassedNotAllowed, 1);
        Status::new(Code::PermissionDenied, refusal.to_string()).into_response()
    }

    async fn take<B>(&self, request: http::Request<B>) -> Result<(), Status>
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
    {
        let (head, body) = request.into_parts();
        let read = async {
            // The semaphore is never closed.
            let room = self.room.acquire().await;
            let body = Limited::new(body, MOST_BYTES + frame::HEADER_LENGTH)
                .collect()
                .await;
            (room, body)
        };
        let late = |_| Status::unavailable("the request took too long to arrive");
        let (_room, body) = timeout(PATIENCE, read).await.map_err(late)?;
        let body = body
            .map_err(|error| Status::new(Code::ResourceExhausted, error.to_string()))?
            .to_bytes();
        let encoding = head
            .headers
            .get("grpc-encoding")
            .map(|e| e.as_bytes().to_vec());
        let unread = body.clone();
        // Decompression would block this thread for too long.
        let read = tokio::task::spawn_blocking(move || spans_of(&unread, encoding.as_deref()));
        let read = read
            .await
            .map_err(|_| Status::new(Code::Internal, "cannot be read"))?;
        let read = read.inspect_err(|_| self.metrics.received(Received::Dropped, 1))?;
        let lost = read.count - read.spans.len() - read.syncs.len();
        self.metrics.received(Received::Dropped, lost);
        self.report(read.spans);
        self.report_syncs(read.syncs);
        let count = read.count;
        if let Some(pass) = &self.pass {
            pass.on(head.headers, body, count);
        }
        Ok(())
    }

    /// Sends the kubelet's spans to the aggregator.
    fn report_syncs(&self, syncs: Vec<KubeletSpan>) {
        let count = syncs.len();
        self.metrics.received(Received::Attributed, count);
        if count > 0 && self.feed.try_send(Event::Syncs(syncs)).is_err() {
            self.drops.add(DropReason::StoryQueueFull, count);
        }
    }

    /// Assigns spans to calls, counts them and sends them to the aggregator.
    fn report(&self, spans: Vec<Reported>) {
        let sorted = {
            let mut span_tree = self
                .span_tree
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            span_tree.sort(spans, Instant::now())
        };
        self.metrics
            .received(Received::Attributed, sorted.attributed.len());
        self.metrics.received(Received::Unknown, sorted.unknown);
        self.metrics.received(Received::Dropped, sorted.dropped);
        for spans in sorted.attributed.chunks(MOST_SPANS) {
            if self.feed.try_send(Event::Spans(spans.to_vec())).is_err() {
                self.drops.add(DropReason::StoryQueueFull, spans.len());
            }
        }
    }
}

/// The spans of a request.
struct Decoded {
    spans: Vec<Reported>,
    /// Those of the kubelet's work on pods.
    syncs: Vec<KubeletSpan>,
    /// The number of all, including invalid ones.
    count: usize,
}

/// The spans of a framed message.
fn spans_of(framed: &[u8], encoding: Option<&[u8]>) -> Result<Decoded, Status> {
    let invalid = |text: &str| Status::new(Code::InvalidArgument, text);
    let head = FrameHeader::read(framed).ok_or_else(|| invalid("no message"))?;
    let message = framed.get(frame::HEADER_LENGTH..).unwrap_or_default();
    if message.len() != head.len {
        return Err(invalid("not one whole message"));
    }
    let mut unpacked = Vec::new();
    let message = match (head.compressed, encoding) {
        (false, _) => message,
        (true, Some(b"gzip")) => {
            let most = MOST_UNPACKED as u64 + 1;
            let read = GzDecoder::new(message)
                .take(most)
                .read_to_end(&mut unpacked);
            read.map_err(|_| invalid("not gzip"))?;
            if unpacked.len() > MOST_UNPACKED {
                return Err(Status::new(
                    Code::ResourceExhausted,
                    "the message is too large",
                ));
            }
            &unpacked
        }
        (true, _) => {
            let text = "gzip is the only supported compression";
            return Err(Status::new(Code::Unimplemented, text));
        }
    };
    let (mut spans, mut syncs) = (Vec::new(), Vec::new());
    let count = spans::read(message, |span| match span {
        // The rest is only counted. No exporter sends so many at once.
        Exported::Span(span) if spans.len() < MOST_SPANS * 16 => spans.push(span),
        Exported::Kubelet(sync) if syncs.len() < MOST_SPANS => syncs.push(*sync),
        Exported::Span(_) | Exported::Kubelet(_) => {}
    });
    let count = count.map_err(|error| invalid(&error.to_string()))?;
    Ok(Decoded {
        spans,
        syncs,
        count,
    })
}

/// An empty message, and status OK.
fn done() -> Response {
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from(Code::Ok as i32));
    let message = Frame::data(Bytes::from_static(&[0; frame::HEADER_LENGTH]));
    let frames = [message, Frame::trailers(trailers)].map(Ok);
    let mut response = Response::new(Body::boxed(StreamBody::new(stream::iter(frames))));
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/grpc"),
    );
    response
}
