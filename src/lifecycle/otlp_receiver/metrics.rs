//! Metrics of the OTLP receiver.

use crate::telemetry::family::Counters;
use crate::telemetry::metric::{Metric, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    RECEIVER_SPANS = Metric::counter("receiver_spans_total", &[fixed("result", &["attributed", "unknown", "dropped"])],
        "Spans of the runtime and the kubelet that were received: part of a call or of the kubelet's work on a pod, part of none that is known, or lost.");
    RECEIVER_PASSED_ON = Metric::counter("receiver_passed_on_total", &[],
        "Spans of the runtime and the kubelet that were passed on and that the collector took.");
}

/// What became of a span of the runtime that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Received {
    /// It is part of a call, or of the kubelet's work on a pod.
    Attributed,
    /// It is part of no call that is known.
    Unknown,
    /// There was no room for it, or it could not be read.
    Dropped,
}

/// For the receiver of the runtime's spans.
#[derive(Debug)]
pub struct Receiving {
    spans: Counters<1>,
    passed_on: Counters<0>,
}

impl Receiving {
    /// Registers the metrics. All of them are there from the start.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let receiving = Self {
            spans: registry.counters(&RECEIVER_SPANS)?,
            passed_on: registry.counters(&RECEIVER_PASSED_ON)?,
        };
        for result in [Received::Attributed, Received::Unknown, Received::Dropped] {
            receiving.received(result, 0);
        }
        receiving.passed_on(0);
        Ok(receiving)
    }

    /// So many spans were received.
    pub fn received(&self, result: Received, n: usize) {
        if let Some(spans) = self.spans.at([result as usize]) {
            spans.inc_by(n as u64);
        }
    }

    /// The collector took so many.
    pub fn passed_on(&self, n: usize) {
        if let Some(passed_on) = self.passed_on.at([]) {
            passed_on.inc_by(n as u64);
        }
    }
}
