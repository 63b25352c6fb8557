//! Metrics of the OTLP receiver.

use criscope_telemetry::family::Counters;
use criscope_telemetry::metric::{Metric, label, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

metrics! {
    RECEIVER_SPANS = Metric::counter("receiver_spans_total", &[label::<ReceivedSpanResult>("result")],
        "Spans of the runtime and the kubelet that were received: part of a call or of the kubelet's work on a pod, part of none that is known, or lost.");
    RECEIVER_PASSED_ON = Metric::counter("receiver_passed_on_total", &[],
        "Spans of the runtime and the kubelet that were passed on and that the collector took.");
}

criscope_cri::named! {
    /// The result for a span that was received.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ReceivedSpanResult {
        /// Part of a call, or of the kubelet's work on a pod.
        Attributed = "attributed",
        /// Not part of a known call.
        Unknown = "unknown",
        /// Lost: there was no room, or the span could not be read.
        Dropped = "dropped",
    }
}

/// Metrics of the OTLP receiver.
#[derive(Debug)]
pub struct ReceiverMetrics {
    spans: Counters<ReceivedSpanResult>,
    passed_on: Counters,
}

impl ReceiverMetrics {
    /// Registers the metrics. All of them have a series from the start.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            spans: registry.counters(&RECEIVER_SPANS)?.with_all_series(),
            passed_on: registry.counters(&RECEIVER_PASSED_ON)?.with_all_series(),
        })
    }

    /// Counts `n` received spans with this result.
    pub fn received(&self, result: ReceivedSpanResult, n: usize) {
        self.spans.inc_by(result, n as u64);
    }

    /// Counts `n` spans that the collector took.
    pub fn passed_on(&self, n: usize) {
        self.passed_on.inc_by((), n as u64);
    }
}
