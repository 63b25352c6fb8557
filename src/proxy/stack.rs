//! The request path, as one list: a call passes it from top to bottom, its response from bottom to top.

use std::sync::Arc;

use hyper::body::Incoming;
use tower::{Layer as _, Service, ServiceBuilder};

use crate::call::Peer;
use crate::grpc::{Body, BoxError, CriService};
use crate::proxy::backend::Backend;
use crate::proxy::faults::{ActiveFaults, FaultInjectionLayer};
use crate::proxy::inspect::InspectLayer;
use crate::proxy::instrument::body::InstrumentBody;
use crate::proxy::instrument::{InstrumentLayer, InstrumentState};
use crate::proxy::pod_index::PodIndex;
use crate::proxy::rescue::rescue;
use crate::proxy::router::{CallRouter, RoutingTable};
use crate::proxy::sessions::SessionProxy;

/// The parts of the path that all connections share.
#[derive(Clone, Debug)]
pub struct StackParts {
    /// Signals, calls in flight, sequence numbers.
    pub shared: InstrumentState,
    /// Pods and containers by their ids.
    pub index: Arc<PodIndex>,
    /// Largest request message that is read, in bytes.
    pub max_message_bytes: usize,
    /// The faults to inject; `None` unless they are enabled.
    pub faults: Option<Arc<ActiveFaults>>,
    /// The routing of calls.
    pub table: Arc<RoutingTable>,
    /// The backends, in the order of the table.
    pub backends: Vec<Arc<Backend>>,
    /// The session proxy, for remote backends.
    pub sessions: Option<SessionProxy>,
}

/// The path for one connection.
pub fn stack(
    parts: &StackParts,
    peer: Arc<Peer>,
) -> impl Service<
    http::Request<Incoming>,
    Response = http::Response<InstrumentBody>,
    Error = BoxError,
    Future: Send,
>
+ Clone
+ Send
+ 'static
+ use<> {
    ServiceBuilder::new()
        // hyper's body is wrapped as the body type of all layers, without a copy.
        .map_request(|request: http::Request<Incoming>| request.map(Body::Incoming))
        // Outermost, so that it sees every end: responses, errors, resets and drops.
        .layer(InstrumentLayer::new(parts.shared.clone(), peer))
        // Turns errors into gRPC statuses. Below instrument, so that these responses are measured like any other.
        .map_result(rescue)
        // Reads the request message. Above the router, which decides by its content.
        .layer(InspectLayer::new(
            Arc::clone(&parts.index),
            Arc::clone(&parts.shared.secrets),
            parts.max_message_bytes,
        ))
        // Injects faults, if that is enabled. Below inspect, which knows the pod; before any backend is asked.
        .option_layer(parts.faults.clone().map(FaultInjectionLayer::new))
        // Chooses the backend of each call.
        .service(CallRouter::new(Arc::clone(&parts.table), backends(parts)))
}

/// The backends, below the router.
fn backends(parts: &StackParts) -> Vec<CriService> {
    let backends = parts.backends.iter();
    let services = backends.map(|backend| match &parts.sessions {
        // Rewrites the URLs in the responses to Exec, Attach and PortForward, so that sessions pass through criscope. The
        // local runtime serves its sessions itself.
        Some(sessions) if !backend.is_local() => sessions.layer(backend.service()),
        _ => backend.service(),
    });
    services.collect()
}
