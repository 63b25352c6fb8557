//! The results.

use serde::Serialize;

use crate::compare::{Latency, ListRow, Throughput};
use crate::facts::Facts;
use crate::memory::Memory;

/// The results of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Facts,
    pub(crate) latency: Vec<Latency>,
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) long_list: Vec<ListRow>,
    /// Memory of criscope.
    pub(crate) memory: Option<Memory>,
    pub(crate) telemetry: Option<Telemetry>,
}

/// Evidence that criscope's telemetry was on.
#[derive(Debug, Serialize)]
pub(crate) struct Telemetry {
    pub(crate) spans: usize,
    pub(crate) series: usize,
}
