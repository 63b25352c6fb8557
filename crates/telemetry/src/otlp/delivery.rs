//! Delivers messages of one signal to the collector: encodes, compresses, sends, and retries as OTLP specifies.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue};
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};

use super::client::{CollectorClient, ExportRequest, SendError};
use super::collector::Collector;

/// Upper bound of retries of one export.
const MAX_RETRIES: u32 = 3;

/// The pause before the first retry. It doubles with each retry, and a random time up to the pause is added.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection to the collector for one signal.
#[derive(Debug)]
pub(super) struct ExportDelivery {
    signal: &'static str,
    client: CollectorClient,
    timeout: Duration,
}

impl ExportDelivery {
    /// A delivery that connects with the first message.
    pub(super) fn new(signal: &'static str, collector: Arc<Collector>) -> Self {
        Self {
            signal,
            timeout: collector.timeout,
            client: CollectorClient::new(collector),
        }
    }

    /// Sends until the collector accepts it, within its timeout. A part that it rejects is logged.
    pub(super) async fn send(&mut self, export: &ExportRequest) -> Result<(), SendError> {
        let deadline = Instant::now() + self.timeout;
        let mut tries = 0;
        loop {
            let error = match timeout_at(deadline, self.client.send(export)).await {
                Ok(Ok(answer)) => {
                    let answer = ExportResponse::decode(answer).unwrap_or_default();
                    let partial = answer.partial_success.unwrap_or_default();
                    report_rejected(self.signal, partial.rejected);
                    return Ok(());
                }
                Ok(Err(error)) => error,
                Err(_) => return Err(SendError::Late(self.timeout)),
            };
            let Some(least) = error.retry_after().filter(|_| tries < MAX_RETRIES) else {
                return Err(error);
            };
            let pause = FIRST_RETRY_PAUSE * 2_u32.pow(tries);
            let pause = least.max(pause + random_below(pause));
            if Instant::now() + pause >= deadline {
                return Err(error);
            }
            sleep(pause).await;
            tries += 1;
        }
    }
}

/// The response to an export. Its fields have the same numbers for every signal.
#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
}

/// The export of a message.
pub(super) fn encoded(message: &impl Message, is_gzip: bool) -> ExportRequest {
    let message = message.encode_to_vec();
    let packed = is_gzip.then(|| gzip(&message)).flatten();
    ExportRequest {
        encoding: packed.is_some().then(|| HeaderValue::from_static("gzip")),
        message: Bytes::from(packed.unwrap_or(message)),
        headers: HeaderMap::new(),
    }
}

fn gzip(message: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    encoder.write_all(message).ok()?;
    encoder.finish().ok()
}

/// Logs that a collector accepted a request and rejected a part of it. Its reason may quote the rejected data, and is not logged.
fn report_rejected(signal: &'static str, rejected: i64) {
    if rejected > 0 {
        tracing::warn!(
            target: "criscope::telemetry",
            event = "telemetry.rejected",
            signal,
            rejected,
            "the collector rejected a part of an export"
        );
    }
}

/// Logs that so many parts of a signal were lost.
pub(super) fn report_lost(
    signal: &'static str,
    (lost, parts): (usize, &str),
    error: &dyn std::fmt::Display,
) {
    tracing::warn!(
        target: "criscope::telemetry",
        event = "telemetry.dropped",
        signal,
        reason = "export_failed",
        dropped = lost,
        error.message = %error,
        "{parts} could not be exported"
    );
}

/// The scope with this name of what criscope exports.
pub(super) fn scope(name: &str) -> InstrumentationScope {
    InstrumentationScope {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

/// A random time, so that the nodes of a cluster do not retry in step. The clock is random enough.
fn random_below(limit: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.subsec_nanos() % 1_000_000);
    limit.mul_f64(f64::from(nanos) / 1e6)
}
