//! The signals of a call: metrics, log lines and spans, made from its record when it begins, when it is stuck, and at its
//! end. All of it runs on the request path and must not block.

mod log;
pub(crate) mod metrics;
mod span;

use std::sync::Arc;

use http::HeaderMap;
use opentelemetry::trace::TraceId;

use self::metrics::RpcMetrics;
pub use self::metrics::watch_in_flight;
use self::span::CallSpanBuilder;
use super::CallObserver;
use crate::call::trace::TraceIds;
use crate::call::{Call, Ending, Outcome};
use crate::cri::Method;
use crate::cri::method::Class;
use crate::cri::status::Code;
use crate::telemetry::family::{Counters, Histograms};
use crate::telemetry::otlp::SpanSink;
use crate::telemetry::propagation;
use crate::telemetry::registry::{Registry, RegistryError};
use crate::telemetry::sampling::{LiveSamplingRules, STUCK_PERCENT};
use crate::telemetry::settings::SamplingSettings;

/// A report of a stuck call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckCallReport {
    /// The share of its deadline that it has used, in percent.
    pub percent: u32,
    /// True for the first report of the call.
    pub is_first: bool,
    /// The runtime's activity for it.
    pub activity: Option<String>,
}

/// The parts of the configuration that signals need.
#[derive(Clone, Debug)]
pub struct SignalSettings {
    /// Which calls become spans.
    pub sampling: SamplingSettings,
    /// True if the runtime's own spans are received.
    pub receives_spans: bool,
    /// The path of the CRI socket.
    pub listen: Arc<str>,
    /// Names of the backends and the paths of their sockets. A backend without a socket runs in this process, so its spans
    /// name no peer.
    pub endpoints: Vec<(String, Arc<str>)>,
}

/// Turns calls into signals. Shared by all connections.
#[derive(Debug)]
pub struct CallSignals {
    metrics: RpcMetrics,
    spans: Option<CallSpanBuilder>,
    /// True if calls are part of traces: if spans are exported, or the runtime's own spans are received.
    traces: bool,
    sampling: LiveSamplingRules,
    observer: Arc<dyn CallObserver>,
}

impl CallSignals {
    /// Registers the metrics of calls. Without a sink there are no spans; without a receiver either, trace context is
    /// forwarded untouched.
    ///
    /// # Errors
    /// If the metrics are registered already.
    pub fn new(
        registry: &Registry,
        settings: &SignalSettings,
        sink: Option<SpanSink>,
        observer: Arc<dyn CallObserver>,
    ) -> Result<Self, RegistryError> {
        Ok(Self {
            traces: sink.is_some() || settings.receives_spans,
            metrics: RpcMetrics::new(registry)?,
            spans: sink.map(|sink| CallSpanBuilder::new(sink, settings)),
            sampling: LiveSamplingRules::new(&settings.sampling),
            observer,
        })
    }

    /// The durations of calls by method and outcome.
    pub fn durations(&self) -> Arc<Histograms<(Method, Ending)>> {
        Arc::clone(&self.metrics.duration)
    }

    /// Calls whose error is routine, by method and code.
    pub fn routine(&self) -> Arc<Counters<(Method, Code)>> {
        Arc::clone(&self.metrics.routine)
    }

    /// Applies new sampling settings.
    pub fn set_sampling(&self, sampling: &SamplingSettings) {
        self.sampling.set(sampling);
    }

    /// The sampling settings in force.
    pub fn sampling(&self) -> LiveSamplingRules {
        self.sampling.clone()
    }

    /// A call in flight has used up a reported share of its deadline, or of the allowance of its method.
    pub fn stuck(&self, call: &Call, stuck: &StuckCallReport) {
        if stuck.is_first {
            self.metrics.stuck(call);
        }
        log::stuck(call, stuck);
    }

    /// The trace of a call with these headers; `None` when traces are off.
    pub fn trace(&self, headers: &HeaderMap, method: Method) -> Option<TraceIds> {
        self.traces
            .then(|| propagation::begin(headers, method, &self.sampling.load()))
    }

    /// A call has begun.
    pub fn begin(&self, call: &Call) {
        self.metrics.begin(call);
    }

    /// A call has ended. Called exactly once for each `begin`.
    pub fn end(&self, call: &Call, outcome: &Outcome) {
        let slow = self.sampling.load().is_slow(call.method, outcome.elapsed);
        let sticks_out = slow || outcome.ending != Ending::Ok || call.share_used() >= STUCK_PERCENT;
        // First, since metrics and log line depend on whether spans are exported.
        let exported = self.export(call, outcome, sticks_out);
        self.metrics.end(call, outcome, exported);
        log::end(call, outcome, slow);
        let is_notable = sticks_out || call.method.class() == Class::Mutating;
        self.observer.ended(call, outcome, is_notable);
    }

    /// Exports the spans of a call that was sampled or that is notable. Returns their trace.
    fn export(&self, call: &Call, outcome: &Outcome, sticks_out: bool) -> Option<TraceId> {
        let (spans, placement) = (self.spans.as_ref()?, call.placement()?);
        let exported = (placement.sampled || sticks_out) && spans.export(call, outcome, &placement);
        exported.then(|| {
            call.keep();
            placement.trace_id
        })
    }
}

#[cfg(test)]
mod tests;
