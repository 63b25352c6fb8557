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
use crate::telemetry::family::Histograms;
use crate::telemetry::otlp::SpanSink;
use crate::telemetry::propagation;
use crate::telemetry::registry::{Registry, RegistryError};

/// A report of a call that takes long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The share of its deadline that it has used, in percent.
    pub percent: u32,
    /// Whether it is the first report of this call.
    pub is_first: bool,
    /// What the runtime is doing for it.
    pub doing: Option<String>,
}

/// Turns calls into signals. Shared by all connections.
#[derive(Debug)]
pub struct Signals {
    metrics: RpcMetrics,
    spans: Option<Spans>,
    sampling: ArcSwap<Sampling>,
    chronicle: Chronicle,
}

impl Signals {
    /// Registers the metrics of calls. Without a sink there are no spans, and trace context is passed on untouched.
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
            metrics: RpcMetrics::new(registry)?,
            spans: sink.map(|sink| Spans::new(sink, config)),
            sampling: ArcSwap::from_pointee(config.telemetry.sampling.clone()),
            chronicle,
        })
    }

    /// The durations of calls by method and outcome, for those who read them.
    pub fn durations(&self) -> Arc<Histograms<2>> {
        Arc::clone(&self.metrics.duration)
    }

    /// Takes over new sampling settings.
    pub fn set_sampling(&self, sampling: Sampling) {
        self.sampling.store(Arc::new(sampling));
    }

    /// A call in flight has used up a share of its deadline, or of what stands for one, that is worth a line.
    pub fn stuck(&self, call: &Call, stuck: &Stuck) {
        if stuck.is_first {
            self.metrics.stuck(call);
        }
        log::stuck(call, stuck);
    }
}

impl Observe for Signals {
    fn trace(&self, headers: &HeaderMap, class: Class) -> Option<TraceIds> {
        self.spans.as_ref()?;
        Some(propagation::begin(headers, class, &self.sampling.load()))
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
