//! What is told about a call: when it begins, when it seems stuck, and at its one end. Metrics, the log line and spans
//! are all made here, from the record of the call and its outcome.

mod log;
mod metrics;
mod span;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::HeaderMap;

use self::metrics::RpcMetrics;
pub use self::metrics::{InFlightView, watch_in_flight};
use self::span::Spans;
use super::Observe;
use crate::config::{Config, Sampling};
use crate::cri::call::TraceIds;
use crate::cri::method::Class;
use crate::cri::outcome::Ending;
use crate::cri::{Call, Outcome};
use crate::story::Chronicle;
use crate::telemetry::otlp::SpanSink;
use crate::telemetry::propagation;
use crate::telemetry::registry::{Registry, RegistryError};

/// Turns calls into signals. Shared by all connections.
#[derive(Debug)]
pub struct Signals {
    metrics: RpcMetrics,
    spans: Option<Spans>,
    /// Whether calls are parts of traces: if spans are exported, or the runtime's own spans are received.
    traces: bool,
    sampling: ArcSwap<Sampling>,
    chronicle: Chronicle,
}

impl Signals {
    /// Registers the metrics of calls. Without a sink there are no spans; without a receiver either,
    /// trace context is passed on untouched.
    ///
    /// # Errors
    /// If the metrics are registered already.
    pub fn new(
        registry: &Registry,
        config: &Config,
        sink: Option<SpanSink>,
        chronicle: Chronicle,
    ) -> Result<Self, RegistryError> {
        Ok(Self {
            traces: sink.is_some() || config.receiver.is_some(),
            metrics: RpcMetrics::new(registry)?,
            spans: sink.map(|sink| Spans::new(sink, config)),
            sampling: ArcSwap::from_pointee(config.telemetry.sampling.clone()),
            chronicle,
        })
    }

    /// Takes over new sampling settings.
    pub fn set_sampling(&self, sampling: Sampling) {
        self.sampling.store(Arc::new(sampling));
    }

    /// A call in flight has used up this share of its deadline (or of the 60 seconds that stand for one); to be told
    /// at 50, and again whenever it is worth a line.
    pub fn stuck(&self, call: &Call, percent: u32) {
        if percent == 50 {
            self.metrics.stuck(call);
        }
        log::stuck(call, percent);
    }
}

impl Observe for Signals {
    fn trace(&self, headers: &HeaderMap, class: Class) -> Option<TraceIds> {
        self.traces
            .then(|| propagation::begin(headers, class, &self.sampling.load()))
    }

    fn begin(&self, call: &Call) {
        self.metrics.begin(call);
    }

    fn end(&self, call: &Call, outcome: &Outcome) {
        let slow = is_slow(call, outcome, &self.sampling.load());
        self.metrics.end(call, outcome);
        log::end(call, outcome, slow);
        if let (Some(spans), Some(trace)) = (&self.spans, &call.trace)
            && (trace.sampled || slow || outcome.ending != Ending::Ok)
        {
            spans.export(call, outcome, trace);
        }
        let matters =
            slow || outcome.ending != Ending::Ok || call.method.class() == Class::Mutating;
        self.chronicle.end(call, outcome, matters);
    }
}

/// Whether a call took longer than the settings call normal. A watch takes as long as its caller listens.
fn is_slow(call: &Call, outcome: &Outcome, sampling: &Sampling) -> bool {
    call.method.class() != Class::Watch && outcome.elapsed >= sampling.slow
}

#[cfg(test)]
mod tests;
