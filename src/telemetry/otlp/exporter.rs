//! Exports our own spans: encodes, compresses, sends, and retries as OTLP specifies.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue};
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
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::client::{Client, Export, SendError};
use super::collector::Collector;

/// Most retries of one export.
const RETRIES: u32 = 3;

/// The pause before the first retry; it doubles with each. Up to as much is added at random.
const PAUSE: Duration = Duration::from_millis(100);

/// An exporter of spans to a collector.
#[derive(Debug)]
pub(super) struct Exporter {
    client: Arc<Mutex<Client>>,
    collector: Arc<Collector>,
    resource: ResourceAttributesWithSchema,
    runtime: Handle,
}

impl Exporter {
    /// Creates an exporter whose connection lives on this runtime.
    pub(super) fn new(collector: Collector, runtime: Handle) -> Self {
        let collector = Arc::new(collector);
        Self {
            client: Arc::new(Mutex::new(Client::new(Arc::clone(&collector)))),
            collector,
            resource: ResourceAttributesWithSchema::default(),
            runtime,
        }
    }

    /// Runs on the thread of the processor, and so delays nothing else.
    fn encode(&self, batch: Vec<SpanData>) -> Export {
        let request = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(batch, &self.resource),
        };
        let message = request.encode_to_vec();
        let packed = self.collector.is_gzip.then(|| gzip(&message)).flatten();
        Export {
            encoding: packed.is_some().then(|| HeaderValue::from_static("gzip")),
            message: Bytes::from(packed.unwrap_or(message)),
            headers: HeaderMap::new(),
        }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let export = self.encode(batch);
        let (client, timeout) = (Arc::clone(&self.client), self.collector.timeout);
        // Sockets and timers need the runtime, which this thread is not part of.
        let sending = self.runtime.spawn(async move {
            let mut client = client.lock().await;
            deliver(&mut client, &export, timeout).await
        });
        let failed = |why: String| OTelSdkError::InternalFailure(why);
        let answer = AbortOnDropHandle::new(sending).await;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        report_rejected(&answer);
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}

fn gzip(message: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // In memory it cannot fail.
    encoder.write_all(message).ok()?;
    encoder.finish().ok()
}

/// A collector may accept a request and reject some of its spans. Its reason may quote them, and is not logged.
fn report_rejected(answer: &[u8]) {
    let answer = ExportTraceServiceResponse::decode(answer).unwrap_or_default();
    let rejected = answer.partial_success.map_or(0, |it| it.rejected_spans);
    if rejected > 0 {
        tracing::warn!(
            target: "criscope::telemetry",
            event = "telemetry.rejected",
            signal = "span",
            rejected,
            "the collector rejected spans"
        );
    }
}

/// Sends until the collector accepts it, within `timeout`.
async fn deliver(
    client: &mut Client,
    export: &Export,
    timeout: Duration,
) -> Result<Bytes, SendError> {
    let deadline = Instant::now() + timeout;
    let mut tries = 0;
    loop {
        let error = match timeout_at(deadline, client.send(export)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_) => return Err(SendError::Late(timeout)),
        };
        let Some(least) = error.retry_after().filter(|_| tries < RETRIES) else {
            return Err(error);
        };
        let pause = PAUSE * 2_u32.pow(tries);
        let pause = least.max(pause + random_below(pause));
        if Instant::now() + pause >= deadline {
            return Err(error);
        }
        sleep(pause).await;
        tries += 1;
    }
}

/// So that the nodes of a cluster do not retry in step. The clock is random enough.
fn random_below(limit: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = now.map_or(0, |it| it.subsec_nanos() % 1_000_000);
    limit.mul_f64(f64::from(nanos) / 1e6)
}
