//! The metrics of calls.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TraceId;

use crate::call::routine::is_routine;
use crate::call::{Call, Ending, Outcome, RouteReason};
use crate::cri::Method;
use crate::cri::method::Class;
use crate::cri::status::{CODES, code_name};
use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::metric::{
    BACKEND, CALL_BUCKETS, CLIENT, Label, Metric, Unit, fixed, metrics, names,
};
use crate::telemetry::registry::{BackendLabels, Registry, RegistryError};

static METHOD_NAMES: [&str; Method::COUNT] = names!(Method::ALL, Method::name);
static ENDING_NAMES: [&str; Ending::ALL.len()] = names!(Ending::ALL, Ending::name);
static REASON_NAMES: [&str; RouteReason::ALL.len()] = names!(RouteReason::ALL, RouteReason::name);
static CODE_NAMES: [&str; CODES.len()] = names!(CODES, code_name);

const METHOD: Label = fixed("method", &METHOD_NAMES);
const OUTCOME: Label = fixed("outcome", &ENDING_NAMES);
const CODE: Label = fixed("code", &CODE_NAMES);
const REASON: Label = fixed("reason", &REASON_NAMES);

/// Time in the backend: every second bound, since these series are the most numerous and the budget of a node is 2,000.
const BACKEND_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
];
/// Time of a call outside of the backend.
const OVERHEAD_BUCKETS: &[f64] = &[
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1,
];
/// Up to the kubelet's limit of a message, 16 MiB; finer below it, so that alerts can warn early.
const SIZE_BUCKETS: &[f64] = &[
    4096.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 8388608.0, 12582912.0, 16777216.0,
];

metrics! {
    RPC_DURATION = Metric::histogram("rpc_duration_seconds", Unit::Seconds, &[METHOD, OUTCOME], CALL_BUCKETS,
        "Time from the request headers to the one end of the call.").with_exemplars();
    RPC_TOTAL = Metric::counter("rpc_total", &[METHOD, CODE, CLIENT],
        "Calls that ended, by the status the caller saw and the kind of caller.");
    RPC_ROUTINE = Metric::counter("rpc_routine_total", &[METHOD, CODE],
        "Calls among those of criscope_rpc_total whose error is routine on a healthy node, such as NOT_FOUND of a status: no error for alerts and budgets.");
    RPC_IN_FLIGHT = Metric::gauge("rpc_in_flight", Unit::Count, &[METHOD],
        "Calls that have entered and not yet ended.");
    RPC_OLDEST_IN_FLIGHT = Metric::gauge("rpc_oldest_in_flight_seconds", Unit::Seconds, &[METHOD],
        "Age of the oldest call in flight; absent when there is none.");
    RPC_STUCK = Metric::counter("rpc_stuck_total", &[METHOD],
        "Calls that passed half of their deadline, or of what is allowed to a call without one: 10 seconds to polls, 2 minutes to ExecSync, 5 to PullImage, 1 to others.");
    RPC_STUCK_IN_FLIGHT = Metric::gauge("rpc_stuck_in_flight", Unit::Count, &[METHOD],
        "Calls in flight that passed half of their deadline, or of what is allowed to a call without one; absent when there is none.");
    RPC_RESPONSE_BYTES = Metric::histogram("rpc_response_bytes", Unit::Bytes, &[METHOD], SIZE_BUCKETS,
        "Size of complete answers to List and Stream calls, gRPC frame headers included; the kubelet refuses more than 16 MiB.");
    BACKEND_RPC_DURATION = Metric::histogram("backend_rpc_duration_seconds", Unit::Seconds, &[BACKEND, METHOD, OUTCOME], BACKEND_BUCKETS,
        "Time from handing the request to the backend to the end of its answer.").with_exemplars();
    PROXY_OVERHEAD = Metric::histogram("proxy_overhead_seconds", Unit::Seconds, &[], OVERHEAD_BUCKETS,
        "Time of a call not spent in the backend, nor held by an injected fault; unary calls that ended ok.");
    ROUTE_DECISIONS = Metric::counter("route_decisions_total", &[BACKEND, REASON],
        "Calls by backend and by the reason of the routing decision.");
}

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
    registry.computed(&RPC_STUCK_IN_FLIGHT, move |out| {
        stuck.for_each_stuck(&mut |method, n| out.put(&[method.name()], n as f64));
    })?;
    registry.computed(&RPC_OLDEST_IN_FLIGHT, move |out| {
        view.for_each_oldest(&mut |method, age| out.put(&[method.name()], age.as_secs_f64()));
    })
}

/// Handles of every metric of a call.
#[derive(Debug)]
pub(super) struct RpcMetrics {
    /// Also read by pages.
    pub(super) duration: Arc<Histograms<2>>,
    total: Counters<3>,
    /// Also read by pages.
    pub(super) routine: Arc<Counters<2>>,
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
            duration: Arc::new(registry.histograms(&RPC_DURATION)?),
            total: registry.counters(&RPC_TOTAL)?,
            routine: Arc::new(registry.counters(&RPC_ROUTINE)?),
            in_flight: registry.gauges(&RPC_IN_FLIGHT)?,
            stuck: registry.counters(&RPC_STUCK)?,
            response_bytes: registry.histograms(&RPC_RESPONSE_BYTES)?,
            backend_duration: registry.histograms(&BACKEND_RPC_DURATION)?,
            overhead: registry.histograms(&PROXY_OVERHEAD)?,
            decisions: registry.counters(&ROUTE_DECISIONS)?,
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
        if is_routine(call.method, outcome.code)
            && let Some(routine) = self.routine.at([method, outcome.code as usize])
        {
            routine.inc();
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
            let held = call.held(outcome.elapsed);
            let own = outcome.elapsed.saturating_sub(took + held);
            overhead.observe(own.as_secs_f64());
        }
    }
}

/// Returns whether the size of the response grows with the node.
fn lists(method: Method) -> bool {
    method.name().starts_with("List") || method.name().starts_with("Stream")
}
