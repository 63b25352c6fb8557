//! The metrics of calls.

use std::sync::Arc;

use opentelemetry::trace::TraceId;

use crate::call::routine::is_routine;
use crate::call::{Call, Client, Ending, Outcome, RouteReason};
use crate::cri::Method;
use crate::cri::method::Class;
use crate::cri::status::Code;
use crate::proxy::instrument::in_flight::InFlightCalls;
use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::labels::{BackendLabel, BackendLabels};
use crate::telemetry::metric::{
    BACKEND, CALL_BUCKETS, CLIENT, Label, Metric, Unit, label, metrics,
};
use crate::telemetry::registry::{Registry, RegistryError};

const METHOD: Label = label::<Method>("method");
const OUTCOME: Label = label::<Ending>("outcome");
const CODE: Label = label::<Code>("code");
const REASON: Label = label::<RouteReason>("reason");

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

/// Exports the age of the oldest call of each method, and the number of stuck calls.
///
/// # Errors
/// If it is registered already.
pub fn watch_in_flight(
    registry: &Registry,
    in_flight: &Arc<InFlightCalls>,
) -> Result<(), RegistryError> {
    let calls = Arc::clone(in_flight);
    registry.computed(&RPC_STUCK_IN_FLIGHT, move |out| {
        for (method, n) in calls.stuck() {
            out.put(&[method.name()], n as f64);
        }
    })?;
    let calls = Arc::clone(in_flight);
    registry.computed(&RPC_OLDEST_IN_FLIGHT, move |out| {
        for (method, age) in calls.oldest() {
            out.put(&[method.name()], age.as_secs_f64());
        }
    })
}

/// Handles of every metric of a call.
#[derive(Debug)]
pub(super) struct RpcMetrics {
    /// Also read by pages.
    pub(super) duration: Arc<Histograms<(Method, Ending)>>,
    total: Counters<(Method, Code, Client)>,
    /// Also read by pages.
    pub(super) routine: Arc<Counters<(Method, Code)>>,
    in_flight: Gauges<Method>,
    stuck: Counters<Method>,
    response_bytes: Histograms<Method>,
    backend_duration: Histograms<(BackendLabel, Method, Ending)>,
    overhead: Histograms,
    decisions: Counters<(BackendLabel, RouteReason)>,
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
        self.in_flight.add(call.method, 1);
    }

    pub(super) fn stuck(&self, call: &Call) {
        self.stuck.inc(call.method);
    }

    /// `exported` is the trace of the call, if its spans are exported.
    pub(super) fn end(&self, call: &Call, outcome: &Outcome, exported: Option<TraceId>) {
        let (method, ending, code) = (call.method, outcome.ending, outcome.code);
        self.in_flight.add(method, -1);
        let seconds = outcome.elapsed.as_secs_f64();
        self.duration
            .observe_traced((method, ending), seconds, exported);
        self.total.inc((method, code, call.peer.client));
        if is_routine(method, code) {
            self.routine.inc((method, code));
        }
        if ending == Ending::Ok && lists(method) {
            self.response_bytes
                .observe(method, call.response_bytes() as f64);
        }
        self.end_of_backend(call, outcome, exported);
    }

    fn end_of_backend(&self, call: &Call, outcome: &Outcome, exported: Option<TraceId>) {
        let Some(route) = call.route.get() else {
            return;
        };
        let backend = self.backends.value(&route.backend);
        self.decisions.inc((backend, route.reason));
        let Some((_, took)) = call.backend_span(outcome.elapsed) else {
            return;
        };
        let labels = (backend, call.method, outcome.ending);
        self.backend_duration
            .observe_traced(labels, took.as_secs_f64(), exported);
        // A stream or a watch waits for its caller, and a failed call may not have waited for a backend.
        let plain = !call.method.is_server_streaming() && call.method.class() != Class::Watch;
        if plain && outcome.ending == Ending::Ok {
            let held = call.held(outcome.elapsed);
            let own = outcome.elapsed.saturating_sub(took + held);
            self.overhead.observe((), own.as_secs_f64());
        }
    }
}

/// Returns whether the size of the response grows with the node.
fn lists(method: Method) -> bool {
    method.name().starts_with("List") || method.name().starts_with("Stream")
}
