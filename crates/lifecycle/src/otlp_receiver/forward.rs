//! Forwards received export requests to the collector, their messages byte for byte, after the response to the runtime.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::metrics::ReceiverMetrics;
use criscope_telemetry::Drops;
use criscope_telemetry::drops::DropReason;
use criscope_telemetry::otlp::{Collector, CollectorClient, ExportRequest, SendError};

/// Upper bound of requests in the queue.
const MAX_QUEUED_REQUESTS: usize = 256;

/// Upper bound of the bytes of all requests in the queue.
const MAX_QUEUED_LEN: usize = 8 << 20;

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
pub(super) struct SpanForwarder {
    collector: Arc<Collector>,
    queue: Receiver<QueuedRequest>,
    drops: Arc<Drops>,
    metrics: Arc<ReceiverMetrics>,
}

/// Both ends of the queue to the collector.
pub(super) fn forward_queue(
    collector: Collector,
    drops: &Arc<Drops>,
    metrics: &Arc<ReceiverMetrics>,
) -> (ForwardQueue, SpanForwarder) {
    let (sender, queue) = channel(MAX_QUEUED_REQUESTS);
    let forward = ForwardQueue {
        queue: sender,
        room: Arc::new(Semaphore::new(MAX_QUEUED_LEN)),
        drops: Arc::clone(drops),
    };
    let forwarder = SpanForwarder {
        collector: Arc::new(collector),
        queue,
        drops: Arc::clone(drops),
        metrics: Arc::clone(metrics),
    };
    (forward, forwarder)
}

impl ForwardQueue {
    /// Queues a request, or counts its spans as dropped if the queue is full.
    pub(super) fn enqueue(&self, headers: HeaderMap, body: Bytes, spans: usize) {
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

impl SpanForwarder {
    /// Forwards until the queue is closed.
    pub(super) async fn run(mut self) {
        let mut client = CollectorClient::new(Arc::clone(&self.collector));
        let limit = self.collector.timeout();
        while let Some(passing) = self.queue.recv().await {
            // The receiver has decoded the body, so it is a message.
            let Some(export) = ExportRequest::from_grpc(passing.headers, passing.body) else {
                self.drops.add(DropReason::PassedFailed, passing.spans);
                continue;
            };
            let error = match timeout(limit, client.send(&export)).await {
                Ok(Ok(_)) => {
                    self.metrics.passed_on(passing.spans);
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => SendError::Late(limit),
            };
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
}
