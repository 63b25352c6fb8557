//! The metrics of calls.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TraceId;

use crate::call::{Call, Ending, Outcome};
use crate::cri::Method;
use crate::cri::method::Class;
use crate::telemetry::catalogue;
use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::registry::{BackendLabels, Registry, RegistryError};

/// The calls in flight, for scrapes.
pub trait InFlightView: Send + Sync {
    /// Calls `f` once for each method with a call in flight, with the age of the oldest.
    fn for_each_oldest(&self, f: &mut dyn FnMut(Method, Duration));

    /// Calls `f` once for each method with calls in flight that were reported as stuck, with their number.
    fn for_each_stuck(&self, f: &mut dyn FnMut(Method, usize));
}

/// Exports the age of the oldest call of each method, and the number of stuck calls.
///
/// # Errors
/// If it is registered already.
pub fn watch_in_flight(
    registry: &Registry,
    view: Arc<dyn InFlightView>,
) -> Result<(), RegistryError> {
    let stuck = Arc::clone(&view);
    registry.computed(&catalogue::RPC_STUCK_IN_FLIGHT, move |out| {
        stuck.for_each_stuck(&mut |method, n| out.put(&[method.name()], n as f64));
    })?;
    registry.computed(&catalogue::RPC_OLDEST_IN_FLIGHT, move |out| {
        view.for_each_oldest(&mut |method, age| out.put(&[method.name()], age.as_secs_f64()));
    })
}

/// Handles of every metric of a call.
#[derive(Debug)]
pub(super) struct RpcMetrics {
    /// Also read by pages.
    pub(super) duration: Arc<Histograms<2>>,
    total: Counters<3>,
    in_flight: Gauges<1>,
    stuck: Counters<1>,
    response_bytes: Histograms<1>,
    backend_duration: Histograms<3>,
    overhead: Histograms<0>,
    decisions: Counters<2>,
    backends: BackendLabels,
}

impl RpcMetrics {
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            duration: Arc::new(registry.histograms(&catalogue::RPC_DURATION)?),
            total: registry.counters(&catalogue::RPC_TOTAL)?,
            in_flight: registry.gauges(&catalogue::RPC_IN_FLIGHT)?,
            stuck: registry.counters(&catalogue::RPC_STUCK)?,
            response_bytes: registry.histograms(&catalogue::RPC_RESPONSE_BYTES)?,
            backend_duration: registry.histograms(&catalogue::BACKEND_RPC_DURATION)?,
            overhead: registry.histograms(&catalogue::PROXY_OVERHEAD)?,
            decisions: registry.counters(&catalogue::ROUTE_DECISIONS)?,
            backends: registry.backends().clone(),
        })
    }

    pub(super) fn begin(&self, call: &Call) {
        if let Some(in_flight) = self.in_flight.at([call.method.index()]) {
            in_flight.inc();
        }
    }

    pub(super) fn stuck(&self, call: &Call) {
        if let Some(stuck) = self.stuck.at([call.method.index()]) {
            stuck.inc();
        }
    }

    /// `exported` is the trace of the call, if its spans are exported.
    pub(super) fn end(&self, call: &Call, outcome: &Outcome, exported: Option<TraceId>) {
        let method = call.method.index();
        let ending = outcome.ending as usize;
        if let Some(in_flight) = self.in_flight.at([method]) {
            in_flight.dec();
        }
        let seconds = outcome.elapsed.as_secs_f64();
        self.duration.observe([method, ending], seconds, exported);
        if let Some(total) =
            self.total
                .at([method, outcome.code as usize, call.peer.client as usize])
        {
            total.inc();
        }
        if outcome.ending == Ending::Ok
            && lists(call.method)
            && let Some(bytes) = self.response_bytes.at([method])
        {
            bytes.observe(call.response_bytes() as f64);
        }
        self.end_of_backend(call, outcome, exported);
    }

    fn end_of_backend(&self, call: &Call, outcome: &Outcome, exported: Option<TraceId>) {
        let Some(route) = call.route.get() else {
            return;
        };
        let backend = self.backends.index(&route.backend);
        if let Some(decisions) = self.decisions.at([backend, route.reason as usize]) {
            decisions.inc();
        }
        let Some((_, took)) = call.backend_span(outcome.elapsed) else {
            return;
        };
        let labels = [backend, call.method.index(), outcome.ending as usize];
        self.backend_duration
            .observe(labels, took.as_secs_f64(), exported);
        // A stream or a watch waits for its caller, and a failed call may not have waited for a backend.
        let plain = !call.method.is_server_streaming() && call.method.class() != Class::Watch;
        if plain
            && outcome.ending == Ending::Ok
            && let Some(overhead) = self.overhead.at([])
        {
            overhead.observe(outcome.elapsed.saturating_sub(took).as_secs_f64());
        }
    }
}

/// Returns whether the size of the response grows with the node.
fn lists(method: Method) -> bool {
    method.name().starts_with("List") || method.name().starts_with("Stream")
}
