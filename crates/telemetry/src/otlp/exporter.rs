//! Exports our own spans, in batches of the SDK.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::collector::Collector;
use super::delivery::{Delivery, encoded, report_rejected};

/// An exporter of spans to a collector.
#[derive(Debug)]
pub(super) struct Exporter {
    delivery: Arc<Mutex<Delivery>>,
    is_gzip: bool,
    resource: ResourceAttributesWithSchema,
    runtime: Handle,
}

impl Exporter {
    /// Creates an exporter whose connection lives on this runtime.
    pub(super) fn new(collector: Collector, runtime: Handle) -> Self {
        Self {
            is_gzip: collector.is_gzip,
            delivery: Arc::new(Mutex::new(Delivery::new(Arc::new(collector)))),
            resource: ResourceAttributesWithSchema::default(),
            runtime,
        }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        // This is the thread of the processor: encoding delays nothing else.
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let export = encoded(&request, self.is_gzip);
        let delivery = Arc::clone(&self.delivery);
        // Sockets and timers need the runtime, which this thread is not part of.
        let sending = self
            .runtime
            .spawn(async move { delivery.lock().await.send(&export).await });
        let failed = |why: String| OTelSdkError::InternalFailure(why);
        let answer = AbortOnDropHandle::new(sending).await;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
        let rejected = answer.partial_success.map_or(0, |it| it.rejected_spans);
        report_rejected("span", rejected);
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}
