//! The sink of finished spans: a bounded queue in front of the SDK's batch processor. Queueing a span never waits and
//! never fails, and every span is counted exactly once as exported, failed or dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfig, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use tokio::runtime::Handle;

use super::delivery::report_lost;
use crate::drops::{DropReason, Drops};

/// Bounds of a [`SpanSink`].
#[derive(Debug)]
pub(super) struct SinkLimits {
    /// Upper bound of pending spans, including spans that are being sent.
    pub(super) pending: usize,
    /// Timeout of one batch, retries included.
    pub(super) export: Duration,
}

/// Accepts finished spans. Clones share one queue.
#[derive(Clone)]
pub struct SpanSink {
    processor: Arc<BatchSpanProcessor>,
    ledger: Arc<PendingSpans>,
}

impl fmt::Debug for SpanSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanSink")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl SpanSink {
    /// Starts the export thread. `batch` must have room for at least the spans of `limits`. `runtime` drives timeouts.
    pub(super) fn start<E: SpanExporter + 'static>(
        exporter: E,
        resource: &Resource,
        batch: BatchConfig,
        limits: &SinkLimits,
        runtime: Handle,
        drops: Arc<Drops>,
    ) -> Self {
        let ledger = Arc::new(PendingSpans {
            pending: AtomicUsize::new(0),
            limit: limits.pending,
            closed: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            drops,
        });
        let counting = CountingExporter {
            exporter,
            ledger: Arc::clone(&ledger),
            limit: limits.export,
            runtime,
        };
        let mut processor = BatchSpanProcessor::new(counting, batch);
        processor.set_resource(resource);
        Self {
            processor: Arc::new(processor),
            ledger,
        }
    }

    /// Queues a span. Returns false if the queue is full or the sink shut down, and counts the span as dropped.
    pub fn export(&self, span: SpanData) -> bool {
        if !self.ledger.admit() {
            return false;
        }
        self.processor.on_end(span);
        if self.ledger.finished.load(Ordering::SeqCst) {
            // Shutdown may have counted before this span was admitted.
            self.ledger.lose(1, DropReason::SpanShutdown);
        }
        true
    }

    /// Stops accepting spans and sends the pending ones, for at most `limit`. Spans that are not sent by then count as
    /// dropped. Blocks: not for a thread of an async runtime.
    pub(super) fn shutdown(&self, limit: Duration) {
        if self.ledger.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        // The drop counters have the result.
        let _ = self.processor.shutdown_with_timeout(limit);
        self.ledger.finished.store(true, Ordering::SeqCst);
        self.ledger.lose(usize::MAX, DropReason::SpanShutdown);
    }
}

/// Counts pending spans. [`PendingSpans::admit`] adds a span; its export, its failure or the shutdown removes it, whichever
/// comes first.
#[derive(Debug)]
struct PendingSpans {
    pending: AtomicUsize,
    limit: usize,
    closed: AtomicBool,
    finished: AtomicBool,
    drops: Arc<Drops>,
}

impl PendingSpans {
    fn admit(&self) -> bool {
        if self.closed.load(Ordering::SeqCst) {
            self.drops.add(DropReason::SpanShutdown, 1);
            return false;
        }
        let admitted = self
            .pending
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |pending| {
                (pending < self.limit).then(|| pending + 1)
            })
            .is_ok();
        if !admitted {
            self.drops.add(DropReason::SpanQueueFull, 1);
        }
        admitted
    }

    /// Removes at most `n` pending spans and returns how many were removed.
    fn settle(&self, n: usize) -> usize {
        let before = self
            .pending
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |pending| {
                Some(pending.saturating_sub(n))
            });
        before.unwrap_or(0).min(n)
    }

    fn lose(&self, n: usize, loss: DropReason) -> usize {
        let lost = self.settle(n);
        self.drops.add(loss, lost);
        lost
    }
}

/// An exporter with counters and a timeout.
struct CountingExporter<E> {
    exporter: E,
    ledger: Arc<PendingSpans>,
    limit: Duration,
    runtime: Handle,
}

impl<E: fmt::Debug> fmt::Debug for CountingExporter<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exporter.fmt(f)
    }
}

impl<E: SpanExporter> SpanExporter for CountingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        // This thread is outside of the runtime. A timer must be created inside, and can then be polled anywhere.
        let timer = {
            let _inside = self.runtime.enter();
            tokio::time::sleep(self.limit)
        };
        let result = tokio::select! {
            result = self.exporter.export(batch) => result,
            () = timer => Err(OTelSdkError::Timeout(self.limit)),
        };
        match &result {
            Ok(()) => {
                let exported = self.ledger.settle(spans);
                self.ledger.drops.spans_exported(exported);
            }
            Err(error) => {
                let lost = self.ledger.lose(spans, DropReason::SpanExportFailed);
                report_lost("span", (lost, "spans"), error);
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// The sink as a span processor, for spans created by the SDK. The sink outlives the provider.
#[derive(Debug)]
pub(super) struct SinkProcessor(pub(super) SpanSink);

impl SpanProcessor for SinkProcessor {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.export(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Exporters for tests.
#[cfg(any(test, feature = "test-util"))]
pub mod testing {
    use std::sync::Mutex;

    use super::*;

    /// Spans that were exported.
    pub type Exported = Arc<Mutex<Vec<SpanData>>>;

    /// Behaviour of a test exporter.
    #[derive(Clone, Debug)]
    pub enum Behaviour {
        /// Keeps the spans.
        Take(Exported),
        /// Fails each export.
        Refuse,
        /// Never answers.
        Hang,
        /// Blocks its thread.
        BlockThread(Duration),
    }

    impl SpanExporter for Behaviour {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            match self {
                Self::Take(taken) => {
                    taken.lock().expect("lock").extend(batch);
                    Ok(())
                }
                Self::Refuse => Err(OTelSdkError::InternalFailure("refused".to_owned())),
                Self::Hang => std::future::pending().await,
                Self::BlockThread(time) => {
                    std::thread::sleep(*time);
                    Ok(())
                }
            }
        }
    }

    /// A sink for `pending` spans that exports in batches of 10 on flush or every 10 ms.
    ///
    /// # Panics
    /// Outside of an async runtime.
    pub fn sink(behaviour: Behaviour, pending: usize, export: Duration) -> (SpanSink, Arc<Drops>) {
        let drops = Arc::new(Drops::default());
        let batch = opentelemetry_sdk::trace::BatchConfigBuilder::default()
            .with_max_queue_size(pending)
            .with_max_export_batch_size(10)
            .with_scheduled_delay(Duration::from_millis(10))
            .build();
        let limits = SinkLimits { pending, export };
        let resource = Resource::builder_empty().build();
        let sink = SpanSink::start(
            behaviour,
            &resource,
            batch,
            &limits,
            Handle::current(),
            Arc::clone(&drops),
        );
        (sink, drops)
    }

    impl SpanSink {
        /// Sends all pending spans.
        pub fn finish(&self) {
            self.shutdown(Duration::from_secs(120));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};

    use super::testing::{Behaviour, Exported, sink};
    use super::*;
    use crate::TEST_TIMEOUT;

    fn span() -> SpanData {
        SpanData {
            span_context: SpanContext::NONE,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Server,
            name: "x".into(),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    fn counted(drops: &Drops) -> (u64, [u64; 3]) {
        let losses = [
            DropReason::SpanQueueFull,
            DropReason::SpanExportFailed,
            DropReason::SpanShutdown,
        ];
        (drops.exported(), losses.map(|l| drops.count(l)))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn accepted_spans_count_as_exported() {
        let taken = Exported::default();
        let (sink, drops) = sink(Behaviour::Take(taken.clone()), 1000, TEST_TIMEOUT);
        for _ in 0..123 {
            sink.export(span());
        }
        sink.finish();
        assert_eq!(taken.lock().expect("lock").len(), 123);
        assert_eq!(counted(&drops), (123, [0, 0, 0]));
        sink.export(span());
        assert_eq!(
            counted(&drops),
            (123, [0, 0, 1]),
            "a span after shutdown is counted"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn refused_spans_count_as_failed() {
        let (sink, drops) = sink(Behaviour::Refuse, 1000, TEST_TIMEOUT);
        for _ in 0..57 {
            sink.export(span());
        }
        sink.finish();
        assert_eq!(counted(&drops), (0, [0, 57, 0]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_unresponsive_collector_times_out() {
        let (sink, drops) = sink(Behaviour::Hang, 100, Duration::from_millis(20));
        for _ in 0..10 {
            sink.export(span());
        }
        sink.finish();
        assert_eq!(counted(&drops), (0, [0, 10, 0]));
    }

    /// Even if the exporter's thread hangs beyond its timeout, queueing stays immediate, memory bounded, shutdown
    /// within its limit, and every span is counted.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_stuck_exporter_delays_no_caller() {
        let (sink, drops) = sink(Behaviour::BlockThread(10 * TEST_TIMEOUT), 64, TEST_TIMEOUT);
        let before = Instant::now();
        for _ in 0..10_000 {
            sink.export(span());
        }
        assert!(
            before.elapsed() < TEST_TIMEOUT,
            "10,000 spans took {:?}",
            before.elapsed()
        );
        let (exported, [full, failed, _]) = counted(&drops);
        assert_eq!((exported, full, failed), (0, 10_000 - 64, 0));
        sink.shutdown(Duration::from_millis(50));
        assert!(before.elapsed() < 2 * TEST_TIMEOUT);
        assert_eq!(counted(&drops), (0, [10_000 - 64, 0, 64]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn spans_exported_during_shutdown_are_counted_once() {
        let (sink, drops) = sink(Behaviour::Take(Exported::default()), 100_000, TEST_TIMEOUT);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sink = sink.clone();
                std::thread::spawn(move || {
                    (0..5000).for_each(|_| {
                        sink.export(span());
                    })
                })
            })
            .collect();
        sink.finish();
        for thread in threads {
            thread.join().expect("thread");
        }
        let (exported, losses) = counted(&drops);
        assert_eq!(exported + losses.iter().sum::<u64>(), 20_000);
    }
}
