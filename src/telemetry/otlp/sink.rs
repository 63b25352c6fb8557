//! Where finished spans go: a bounded queue in front of the SDK's batch processor. Handing a span over never waits and
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

use crate::telemetry::drops::{DropReason, Drops};

/// Bounds of a [`SpanSink`].
#[derive(Debug)]
pub(super) struct Limits {
    /// Spans that may wait, those on their way to the collector included.
    pub(super) pending: usize,
    /// How long one batch may take, retries included.
    pub(super) export: Duration,
}

/// Takes finished spans. Clones share one queue.
#[derive(Clone)]
pub struct SpanSink {
    processor: Arc<BatchSpanProcessor>,
    ledger: Arc<Ledger>,
}

impl fmt::Debug for SpanSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanSink")
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl SpanSink {
    /// Starts the export thread. `batch` must not hold fewer spans than `limits`. `runtime` keeps the time of exports.
    pub(super) fn start<E: SpanExporter + 'static>(
        exporter: E,
        resource: &Resource,
        batch: BatchConfig,
        limits: &Limits,
        runtime: Handle,
        drops: Arc<Drops>,
    ) -> Self {
        let ledger = Arc::new(Ledger {
            pending: AtomicUsize::new(0),
            limit: limits.pending,
            closed: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            drops,
        });
        let counting = Counting {
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

    /// Hands a span over, or counts it as dropped if too many wait or the sink is shut; then it says false.
    pub fn export(&self, span: SpanData) -> bool {
        if !self.ledger.admit() {
            return false;
        }
        self.processor.on_end(span);
        if self.ledger.finished.load(Ordering::SeqCst) {
            // The last count may have been made before this span was admitted.
            self.ledger.lose(1, DropReason::SpanShutdown);
        }
        true
    }

    /// Takes no more spans, and sends those that wait, for at most `limit`. What could not be sent by then counts as
    /// dropped. Blocks: not for a thread of an async runtime.
    pub(super) fn shutdown(&self, limit: Duration) {
        if self.ledger.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        // The result is in the drops.
        let _ = self.processor.shutdown_with_timeout(limit);
        self.ledger.finished.store(true, Ordering::SeqCst);
        self.ledger.lose(usize::MAX, DropReason::SpanShutdown);
    }
}

/// Knows how many spans are under way. A span is put in by [`Ledger::admit`] and taken out by whoever learns first what
/// became of it.
#[derive(Debug)]
struct Ledger {
    pending: AtomicUsize,
    limit: usize,
    closed: AtomicBool,
    finished: AtomicBool,
    drops: Arc<Drops>,
}

impl Ledger {
    fn admit(&self) -> bool {
        if self.closed.load(Ordering::SeqCst) {
            self.drops.add(DropReason::SpanShutdown, 1);
            return false;
        }
        let room = |pending: usize| (pending < self.limit).then(|| pending + 1);
        let admitted = self
            .pending
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, room)
            .is_ok();
        if !admitted {
            self.drops.add(DropReason::SpanQueueFull, 1);
        }
        admitted
    }

    /// Takes out at most `n` spans and says how many were still in.
    fn settle(&self, n: usize) -> usize {
        let without = |pending: usize| Some(pending.saturating_sub(n));
        let before = self
            .pending
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, without);
        before.unwrap_or(0).min(n)
    }

    fn lose(&self, n: usize, loss: DropReason) -> usize {
        let lost = self.settle(n);
        self.drops.add(loss, lost);
        lost
    }
}

/// An exporter that counts and that has a time limit.
struct Counting<E> {
    exporter: E,
    ledger: Arc<Ledger>,
    limit: Duration,
    runtime: Handle,
}

impl<E: fmt::Debug> fmt::Debug for Counting<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exporter.fmt(f)
    }
}

impl<E: SpanExporter> SpanExporter for Counting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        // This runs on a thread outside the runtime; a timer has to be made inside, and can then be polled anywhere.
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
                tracing::warn!(
                    target: "criscope::telemetry",
                    event = "telemetry.dropped",
                    signal = "span",
                    reason = "export_failed",
                    dropped = lost,
                    error.message = %error,
                    "spans could not be exported"
                );
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

/// The sink as the processor of a tracer provider, for spans that the SDK makes. The sink outlives it.
#[derive(Debug)]
pub(super) struct ForProvider(pub(super) SpanSink);

impl SpanProcessor for ForProvider {
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

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Mutex;

    use super::*;

    /// Spans that were exported.
    pub(crate) type Exported = Arc<Mutex<Vec<SpanData>>>;

    /// What the exporter of a test does.
    #[derive(Clone, Debug)]
    pub(crate) enum Behaviour {
        Take(Exported),
        Refuse,
        Hang,
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

    /// A sink with room for `pending` spans, exporting in batches of 10 when told to or every 10 ms.
    pub(crate) fn sink(
        behaviour: Behaviour,
        pending: usize,
        export: Duration,
    ) -> (SpanSink, Arc<Drops>) {
        let drops = Arc::new(Drops::default());
        let batch = opentelemetry_sdk::trace::BatchConfigBuilder::default()
            .with_max_queue_size(pending)
            .with_max_export_batch_size(10)
            .with_scheduled_delay(Duration::from_millis(10))
            .build();
        let limits = Limits { pending, export };
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
        /// Sends all that waits.
        pub(crate) fn finish(&self) {
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
    use crate::testing::PATIENCE;

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
    async fn what_the_collector_takes_is_exported() {
        let taken = Exported::default();
        let (sink, drops) = sink(Behaviour::Take(taken.clone()), 1000, PATIENCE);
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
            "a span after the end is counted"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_the_collector_refuses_has_failed() {
        let (sink, drops) = sink(Behaviour::Refuse, 1000, PATIENCE);
        for _ in 0..57 {
            sink.export(span());
        }
        sink.finish();
        assert_eq!(counted(&drops), (0, [0, 57, 0]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_collector_that_never_answers_is_given_up_on() {
        let (sink, drops) = sink(Behaviour::Hang, 100, Duration::from_millis(20));
        for _ in 0..10 {
            sink.export(span());
        }
        sink.finish();
        assert_eq!(counted(&drops), (0, [0, 10, 0]));
    }

    /// The exporter's thread hangs and cannot even be timed out: handing over stays immediate, memory stays bounded,
    /// shutdown keeps its limit, and every span is accounted for.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_stuck_exporter_holds_nobody_up() {
        let (sink, drops) = sink(Behaviour::BlockThread(10 * PATIENCE), 64, PATIENCE);
        let before = Instant::now();
        for _ in 0..10_000 {
            sink.export(span());
        }
        assert!(
            before.elapsed() < PATIENCE,
            "10,000 spans took {:?}",
            before.elapsed()
        );
        let (exported, [full, failed, _]) = counted(&drops);
        assert_eq!((exported, full, failed), (0, 10_000 - 64, 0));
        sink.shutdown(Duration::from_millis(50));
        assert!(before.elapsed() < 2 * PATIENCE);
        assert_eq!(counted(&drops), (0, [10_000 - 64, 0, 64]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn spans_handed_over_during_shutdown_are_each_counted_once() {
        let (sink, drops) = sink(Behaviour::Take(Exported::default()), 100_000, PATIENCE);
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
