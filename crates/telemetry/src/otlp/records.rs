//! Sends log lines to the collector as log records, in batches. Writing a line never waits for the export: the queue is bounded,
//! and a record that finds it full is dropped and counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use super::delivery::{ExportDelivery, encoded, report_lost, scope};
use crate::drops::{DropReason, Drops};

/// Bounds. The environment may set other values (`OTEL_BLRP_*`).
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    /// Upper bound of records that wait.
    pub(super) queue: usize,
    /// Upper bound of records in one export.
    pub(super) batch: usize,
    /// How long the first record of a batch waits for others.
    pub(super) delay: Duration,
}

/// A record, and the target of its line.
type TargetedRecord = (&'static str, LogRecord);

/// The queue of records. Clones share one queue.
#[derive(Clone, Debug)]
pub struct LogRecordQueue {
    queue: mpsc::Sender<TargetedRecord>,
    drops: Arc<Drops>,
}

impl LogRecordQueue {
    /// Adds the record of a line of `target`, or counts it as dropped.
    pub fn put(&self, target: &'static str, record: LogRecord) {
        if self.queue.try_send((target, record)).is_err() {
            self.drops.add(DropReason::LogExportQueueFull, 1);
        }
    }
}

/// Sends the records of the queue.
#[derive(Debug)]
pub(super) struct LogRecordExport {
    queue: mpsc::Receiver<TargetedRecord>,
    limits: BatchLimits,
    collector: Collector,
    resource: Resource,
    schema_url: String,
    drops: Arc<Drops>,
}

impl LogRecordExport {
    pub(super) fn new(
        limits: BatchLimits,
        collector: Collector,
        (resource, schema_url): (Resource, String),
        drops: Arc<Drops>,
    ) -> (LogRecordQueue, Self) {
        let (sender, queue) = mpsc::channel(limits.queue);
        let records = LogRecordQueue {
            queue: sender,
            drops: Arc::clone(&drops),
        };
        let export = Self {
            queue,
            limits,
            collector,
            resource,
            schema_url,
            drops,
        };
        (records, export)
    }

    /// Sends until `stop`, and then the records that are left.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut delivery = ExportDelivery::new("log", Arc::new(self.collector.clone()));
        let mut batch = Vec::new();
        loop {
            let first = tokio::select! {
                first = self.queue.recv() => first,
                () = stop.cancelled() => self.queue.try_recv().ok(),
            };
            let Some(first) = first else { return };
            batch.push(first);
            let _ = stop.run_until_cancelled(sleep(self.limits.delay)).await;
            while batch.len() < self.limits.batch
                && let Ok(line) = self.queue.try_recv()
            {
                batch.push(line);
            }
            self.send(&mut delivery, std::mem::take(&mut batch)).await;
        }
    }

    async fn send(&self, delivery: &mut ExportDelivery, batch: Vec<TargetedRecord>) {
        let records = batch.len();
        let request = self.request(batch);
        let export = encoded(&request, self.collector.is_gzip);
        if let Err(error) = delivery.send(&export).await {
            self.drops.add(DropReason::LogExportFailed, records);
            report_lost("log", (records, "log records"), &error);
        }
    }

    /// Records by the target of their line, which is the name of the scope.
    fn request(&self, batch: Vec<TargetedRecord>) -> ExportLogsServiceRequest {
        let mut scopes = BTreeMap::<_, Vec<_>>::new();
        for (target, record) in batch {
            scopes.entry(target).or_default().push(record);
        }
        let scopes = scopes.into_iter().map(|(target, log_records)| ScopeLogs {
            scope: Some(scope(target)),
            log_records,
            schema_url: self.schema_url.clone(),
        });
        ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs: scopes.collect(),
                schema_url: self.schema_url.clone(),
            }],
        }
    }
}

/// An attribute whose value is text.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// An attribute.
pub(crate) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// A time in nanoseconds since 1970.
pub(crate) fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
