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

use super::EXPORT_METHOD;
use super::admission::RefusedClient;
use super::forward::ForwardQueue;
use super::metrics::{ReceivedSpanResult, ReceiverMetrics};
use super::span_tree::SpanTree;
use super::spans::{self, ExportedSpan, ReportedSpan};
use crate::AggregatorEvent;
use crate::call_sink::MAX_EVENT_SPANS;
use crate::kubelet::syncs::KubeletSpan;
use criscope_grpc::frame::FrameHeader;
use criscope_grpc::status::Status;
use criscope_grpc::{Body, BoxError, Response, frame};
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;

/// Largest request, in bytes.
const MAX_REQUEST_LEN: usize = 4 << 20;

/// Largest message after decompression, in bytes.
const MAX_UNPACKED_LEN: usize = 16 << 20;

/// Upper bound of requests that are read concurrently; more wait.
const MAX_CONCURRENT_REQUESTS: usize = 4;

/// How long a request may take to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves export requests.
#[derive(Debug)]
pub(super) struct ExportService {
    room: Semaphore,
    span_tree: Arc<Mutex<SpanTree>>,
    feed: Sender<AggregatorEvent>,
    forward: Option<ForwardQueue>,
    drops: Arc<Drops>,
    metrics: Arc<ReceiverMetrics>,
}

impl ExportService {
    pub(super) fn new(
        span_tree: SpanTree,
        feed: Sender<AggregatorEvent>,
        forward: Option<ForwardQueue>,
        drops: Arc<Drops>,
        metrics: Arc<ReceiverMetrics>,
    ) -> Self {
        Self {
            room: Semaphore::new(MAX_CONCURRENT_REQUESTS),
            span_tree: Arc::new(Mutex::new(span_tree)),
            feed,
            forward,
            drops,
            metrics,
        }
    }

    /// Answers a request.
    pub(super) async fn answer<B>(&self, request: http::Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes, Error: Into<BoxError>>,
    {
        if request.uri().path() != EXPORT_METHOD {
            let text = "only traces are received here";
            return Status::new(Code::Unimplemented, text).into_response();
        }
        match self.take(request).await {
            Ok(()) => empty_response(),
            Err(status) => status.into_response(),
        }
    }

    /// Answers a request of a user who may not send spans. Its message is not read, so it counts as one span.
    pub(super) fn refuse(&self, refusal: RefusedClient) -> Response {
        self.metrics.received(ReceivedSpanResult::Dropped, 1);
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
            let body = Limited::new(body, MAX_REQUEST_LEN + frame::HEADER_LENGTH)
                .collect()
                .await;
            (room, body)
        };
        let (_room, body) = timeout(ARRIVAL_TIMEOUT, read)
            .await
            .map_err(|_| Status::unavailable("the request took too long to arrive"))?;
        let body = body
            .map_err(|error| Status::new(Code::ResourceExhausted, error.to_string()))?
            .to_bytes();
        let encoding = head
            .headers
            .get("grpc-encoding")
            .map(|e| e.as_bytes().to_vec());
        let unread = body.clone();
        // Decompression would block this thread for too long.
        let read = tokio::task::spawn_blocking(move || decode(&unread, encoding.as_deref()));
        let read = read
            .await
            .map_err(|_| Status::new(Code::Internal, "cannot be read"))?;
        let read = read.inspect_err(|_| self.metrics.received(ReceivedSpanResult::Dropped, 1))?;
        let lost = read.count - read.spans.len() - read.syncs.len();
        self.metrics.received(ReceivedSpanResult::Dropped, lost);
        self.report(read.spans);
        self.report_syncs(read.syncs);
        let count = read.count;
        if let Some(forward) = &self.forward {
            forward.enqueue(head.headers, body, count);
        }
        Ok(())
    }

    /// Sends the kubelet's spans to the aggregator.
    fn report_syncs(&self, syncs: Vec<KubeletSpan>) {
        let count = syncs.len();
        self.metrics.received(ReceivedSpanResult::Attributed, count);
        if count > 0 && self.feed.try_send(AggregatorEvent::Syncs(syncs)).is_err() {
            self.drops.add(DropReason::StoryQueueFull, count);
        }
    }

    /// Assigns spans to calls, counts them and sends them to the aggregator.
    fn report(&self, spans: Vec<ReportedSpan>) {
        let sorted = {
            let mut span_tree = self
                .span_tree
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            span_tree.assign(spans, Instant::now())
        };
        self.metrics
            .received(ReceivedSpanResult::Attributed, sorted.attributed.len());
        self.metrics
            .received(ReceivedSpanResult::Unknown, sorted.unknown);
        self.metrics
            .received(ReceivedSpanResult::Dropped, sorted.dropped);
        for spans in sorted.attributed.chunks(MAX_EVENT_SPANS) {
            if self
                .feed
                .try_send(AggregatorEvent::Spans(spans.to_vec()))
                .is_err()
            {
                self.drops.add(DropReason::StoryQueueFull, spans.len());
            }
        }
    }
}

/// The spans of a request.
struct DecodedRequest {
    spans: Vec<ReportedSpan>,
    /// Spans of the kubelet's work on pods.
    syncs: Vec<KubeletSpan>,
    /// The number of all spans, including invalid ones.
    count: usize,
}

/// Decodes the spans of a framed message.
fn decode(framed: &[u8], encoding: Option<&[u8]>) -> Result<DecodedRequest, Status> {
    let head = FrameHeader::read(framed).ok_or_else(|| invalid("no message"))?;
    let message = framed.get(frame::HEADER_LENGTH..).unwrap_or_default();
    if message.len() != head.len {
        return Err(invalid("not one whole message"));
    }
    let mut unpacked = Vec::new();
    let message = match (head.compressed, encoding) {
        (false, _) => message,
        (true, Some(b"gzip")) => {
            let most = MAX_UNPACKED_LEN as u64 + 1;
            let read = GzDecoder::new(message)
                .take(most)
                .read_to_end(&mut unpacked);
            read.map_err(|_| invalid("not gzip"))?;
            if unpacked.len() > MAX_UNPACKED_LEN {
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
        // Spans above these limits are only counted. No exporter sends so many at once.
        ExportedSpan::Span(span) if spans.len() < MAX_EVENT_SPANS * 16 => spans.push(span),
        ExportedSpan::Kubelet(sync) if syncs.len() < MAX_EVENT_SPANS => syncs.push(*sync),
        ExportedSpan::Span(_) | ExportedSpan::Kubelet(_) => {}
    });
    let count = count.map_err(|error| invalid(&error.to_string()))?;
    Ok(DecodedRequest {
        spans,
        syncs,
        count,
    })
}

fn invalid(text: &str) -> Status {
    Status::new(Code::InvalidArgument, text)
}

/// An empty message, and status OK.
fn empty_response() -> Response {
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
