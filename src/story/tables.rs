//! Tables of calls as they are shown: the JSON of `/debug/rpcz`, read back by `criscope calls`.
//!
//! Times of day are microseconds since 1970-01-01 UTC; durations are milliseconds, with fractions.

use serde::{Deserialize, Serialize};

/// `/debug/rpcz?format=json`: rates of every method that was called.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpcTable {
    /// The time of this answer.
    pub now_unix_us: u64,
    /// When counting began.
    pub since_unix_us: u64,
    /// The methods, in the order of the protocol.
    pub methods: Vec<RpcRow>,
}

/// One method.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RpcRow {
    /// Short name; `_OTHER` for calls that are not of the CRI.
    pub method: String,
    /// Calls in flight.
    pub in_flight: u64,
    /// Of these, those that were reported as stuck.
    pub stuck: u64,
    /// Age of the oldest call in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<f64>,
    /// The last minute.
    pub minute: Window,
    /// The last hour.
    pub hour: Window,
    /// Since the start of the process.
    pub all: Window,
}

/// Calls that ended within some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// How long that is; up to 5 seconds more than the minute and one minute more than the hour, less while the process
    /// is young.
    pub seconds: f64,
    /// Calls that ended.
    pub calls: u64,
    /// Of these, those that ended with an error or at their deadline.
    pub errors: u64,
    /// Of these, those whose caller left.
    pub cancelled: u64,
    /// Half of the calls took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    /// 95 % of the calls took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<f64>,
    /// 99 % of the calls took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
}

impl Window {
    /// Calls a second.
    #[allow(clippy::cast_precision_loss)]
    pub fn rate(&self) -> f64 {
        match self.seconds > 0.0 {
            true => self.calls as f64 / self.seconds,
            false => 0.0,
        }
    }
}
