//! Metrics of the OTLP receiver.

use criscope_telemetry::family::Counters;
use criscope_telemetry::metric::{Metric, fixed, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

metrics! {
    RECEIVER_SPANS = Metric::counter("receiver_spans_total", &[fixed("result", &["attributed", "unknown", "dropped"])],
        "Spans of the runtime and the kubelet that were received: part of a call or of the kubelet's work on a pod, part of none that is known, or lost.");
    RECEIVER_PASSED_ON = Metric::counter("receiver_passed_on_total", &[],
        "Spans of the runtime and the kubelet that were passed on and that the collector took.");
}

/// The result for a span that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReceivedSpanResult {
    /// Part of a call, or of the kubelet's work on a pod.
    Attributed,
    /// Not part of a known call.
    Unknown,
    /// Lost: there was no room, or the span could not be read.
    Dropped,
}

/// Metrics of the OTLP receiver.
#[derive(Debug)]
pub struct ReceiverMetrics {
    spans: Counters<1>,
    passed_on: Counters<0>,
}

impl ReceiverMetrics {
    /// Registers the metrics. All of them have a series from the start.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let receiving = Self {
            spans: registry.counters(&RECEIVER_SPANS)?,
            passed_on: registry.counters(&RECEIVER_PASSED_ON)?,
        };
        for result in [
            ReceivedSpanResult::Attributed,
            ReceivedSpanResult::Unknown,
            ReceivedSpanResult::Dropped,
        ] {
            receiving.received(result, 0);
        }
        receiving.passed_on(0);
        Ok(receiving)
    }

    /// Counts `n` received spans with this result.
    pub fn received(&self, result: ReceivedSpanResult, n: usize) {
        if let Some(spans) = self.spans.at([result as usize]) {
            spans.inc_by(n as u64);
        }
    }

    /// Counts `n` spans that the collector took.
    pub fn passed_on(&self, n: usize) {
        if let Some(passed_on) = self.passed_on.at([]) {
            passed_on.inc_by(n as u64);
        }
    }
}
