//! Exports our own spans, in batches of the SDK.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::collector::Collector;
use super::delivery::{ExportDelivery, encoded};

/// An exporter of spans to a collector.
#[derive(Debug)]
pub(super) struct SpanBatchExporter {
    delivery: Arc<Mutex<ExportDelivery>>,
    is_gzip: bool,
    resource: ResourceAttributesWithSchema,
    runtime: Handle,
}

impl SpanBatchExporter {
    /// Creates an exporter whose connection lives on this runtime.
    pub(super) fn new(collector: Collector, runtime: Handle) -> Self {
        Self {
            is_gzip: collector.is_gzip,
            delivery: Arc::new(Mutex::new(ExportDelivery::new("span", Arc::new(collector)))),
            resource: ResourceAttributesWithSchema::default(),
            runtime,
        }
    }
}

impl SpanExporter for SpanBatchExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        // The thread of the processor does nothing else, so encoding delays nothing.
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let export = encoded(&request, self.is_gzip);
        let delivery = Arc::clone(&self.delivery);
        // Sockets and timers need the runtime, which this thread is not part of.
        let sending = self
            .runtime
            .spawn(async move { delivery.lock().await.send(&export).await });
        let answer = AbortOnDropHandle::new(sending).await;
        let answer = answer.map_err(|error| OTelSdkError::InternalFailure(error.to_string()))?;
        answer.map_err(|error| OTelSdkError::InternalFailure(error.to_string()))
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}
