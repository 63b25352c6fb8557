//! Tables of calls: the JSON of `/debug/rpcz` and `/debug/tracez`, read back by `criscope calls`.
//!
//! Times of day are microseconds since 1970-01-01 UTC; durations are milliseconds, with fractions, if their name does not say
//! microseconds.

use criscope_cri::units::times::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::view::CallView;

/// `/debug/rpcz?format=json`: rates of every method that was called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpcTable {
    /// The time of this response.
    pub now_unix_us: UnixMicros,
    /// When counting began.
    pub since_unix_us: UnixMicros,
    /// The methods, in the order of the protocol.
    pub methods: Vec<RpcMethodRow>,
}

/// A method's row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpcMethodRow {
    /// Short name; `_OTHER` for calls that are not of the CRI.
    pub method: String,
    /// Calls in flight.
    pub in_flight: u64,
    /// Calls in flight that were reported as stuck.
    pub stuck: u64,
    /// Age of the oldest call in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<f64>,
    /// The last minute.
    pub minute: RateWindow,
    /// The last hour.
    pub hour: RateWindow,
    /// Since the start of the process.
    pub all: RateWindow,
}

/// Calls that ended within a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateWindow {
    /// Length of the window: up to 5 seconds more than the minute and one minute more than the hour, less while the process
    /// is young.
    pub seconds: f64,
    /// Calls that ended.
    pub calls: u64,
    /// Calls that ended with an error or at their deadline, without routine errors.
    pub errors: u64,
    /// Calls with an error that is routine on a healthy node, such as `NOT_FOUND` of a status.
    #[serde(default)]
    pub routine: u64,
    /// Calls that the caller cancelled.
    pub cancelled: u64,
    /// Median duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

impl RateWindow {
    /// Calls per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.calls as f64 / self.seconds
        } else {
            0.0
        }
    }
}

/// Lower bounds of the latency buckets of [`CallSamples`].
pub const BUCKETS_US: [u64; 9] = [
    0,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// `/debug/tracez?format=json`: samples of the calls in the flight recorder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallSamples {
    /// The time of this response.
    pub now_unix_us: UnixMicros,
    /// The methods, in the order of the protocol.
    pub methods: Vec<MethodSamples>,
}

/// Samples of one method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MethodSamples {
    /// Short name; `_OTHER` for calls that are not of the CRI.
    pub method: String,
    /// Calls in flight.
    pub in_flight: u64,
    /// Successful calls by duration, one bucket for each of [`BUCKETS_US`].
    pub buckets: Vec<LatencyBucket>,
    /// Calls that failed.
    pub errors: LatencyBucket,
}

/// Calls of one latency range, or the failed ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// Lower bound of the duration; 0 for errors.
    pub from_us: u64,
    /// Recorded calls of this bucket.
    pub count: u64,
    /// The last of them, the newest first.
    pub samples: Vec<CallView>,
}
