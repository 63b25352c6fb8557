//! The request path, as one list: a call passes it from top to bottom, its response from bottom to top.

use std::sync::Arc;

use hyper::body::Incoming;
use tower::layer::layer_fn;
use tower::{Service, ServiceBuilder};

use crate::call::Peer;
use crate::grpc::{Body, BoxError, CriService};
use crate::proxy::backend::Backend;
use crate::proxy::faults::{ActiveFaults, FaultInjection};
use crate::proxy::inspect::{InspectService, Inspector};
use crate::proxy::instrument::body::InstrumentBody;
use crate::proxy::instrument::{InstrumentService, InstrumentState};
use crate::proxy::rescue::rescue;
use crate::proxy::router::{CallRouter, RoutingTable};
use crate::proxy::sessions::SessionProxy;

/// The parts of the path that all connections share.
#[derive(Clone, Debug)]
pub struct StackParts {
    /// Signals, calls in flight, sequence numbers.
    pub shared: InstrumentState,
    /// What messages are read with, and what is learned from them.
    pub inspector: Arc<Inspector>,
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
    let shared = parts.shared.clone();
    let inspector = Arc::clone(&parts.inspector);
    let faults = parts.faults.clone();
    ServiceBuilder::new()
        // hyper's body is wrapped as the body type of all layers, without a copy.
        .map_request(|request: http::Request<Incoming>| request.map(Body::Incoming))
        // Outermost, so that it sees every end: responses, errors, resets and drops.
        .layer(layer_fn(move |inner| {
            InstrumentService::new(inner, shared.clone(), Arc::clone(&peer))
        }))
        // Turns errors into gRPC statuses. Below instrument, so that these responses are measured like any other.
        .map_result(rescue)
        // Reads the request message. Above the router, which decides by its content.
        .layer(layer_fn(move |inner| {
            InspectService::new(inner, Arc::clone(&inspector))
        }))
        // Injects faults, if that is enabled. Below inspect, which knows the pod; before any backend is asked.
        .option_layer(
            faults.map(|faults| {
                layer_fn(move |inner| FaultInjection::new(inner, Arc::clone(&faults)))
            }),
        )
        // Chooses the backend of each call.
        .service(CallRouter::new(Arc::clone(&parts.table), backends(parts)))
}

/// The backends, below the router.
fn backends(parts: &StackParts) -> Vec<CriService> {
    let backends = parts.backends.iter();
    let services = backends.map(|backend| match &parts.sessions {
        // Rewrites the URLs in the responses to Exec, Attach and PortForward, so that sessions pass through criscope. The
        // local runtime serves its sessions itself.
        Some(sessions) if !backend.is_local() => sessions.wrap(backend.service()),
        _ => backend.service(),
    });
    services.collect()
}
