//! Delivers messages of one signal to the collector: encodes, compresses, sends, and retries as OTLP specifies.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue};
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
    client: CollectorClient,
    timeout: Duration,
}

impl ExportDelivery {
    /// A delivery that connects with the first message.
    pub(super) fn new(collector: Arc<Collector>) -> Self {
        Self {
            timeout: collector.timeout,
            client: CollectorClient::new(collector),
        }
    }

    /// Sends until the collector accepts it, within its timeout. Returns the response.
    pub(super) async fn send(&mut self, export: &ExportRequest) -> Result<Bytes, SendError> {
        let deadline = Instant::now() + self.timeout;
        let mut tries = 0;
        loop {
            let error = match timeout_at(deadline, self.client.send(export)).await {
                Ok(Ok(answer)) => return Ok(answer),
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
pub(super) fn report_rejected(signal: &'static str, rejected: i64) {
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

/// A random time, so that the nodes of a cluster do not retry in step. The clock is random enough.
fn random_below(limit: Duration) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.subsec_nanos() % 1_000_000);
    limit.mul_f64(f64::from(nanos) / 1e6)
}
