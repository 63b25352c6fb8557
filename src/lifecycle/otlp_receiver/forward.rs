//! Forwards received export requests to the collector, their messages byte for byte, after the response to the runtime.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::metrics::Receiving;
use crate::telemetry::Drops;
use crate::telemetry::drops::DropReason;
use crate::telemetry::otlp::{Client, Collector, Export, SendError};

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
    collector: Arc<Collector>,
    queue: Receiver<QueuedRequest>,
    drops: Arc<Drops>,
    metrics: Arc<Receiving>,
}

pub(super) fn pass(
    collector: Collector,
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
        collector: Arc::new(collector),
        queue,
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
        let mut client = Client::new(Arc::clone(&self.collector));
        let limit = self.collector.timeout();
        while let Some(passing) = self.queue.recv().await {
            // The receiver has read it, so it is a message.
            let Some(export) = Export::from_grpc(passing.headers, passing.body) else {
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
