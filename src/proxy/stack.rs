//! The request path, as one list. Read from top to bottom it is the way of a call in; the answer takes it back.

use std::sync::Arc;

use hyper::body::Incoming;
use tower::{Service, ServiceBuilder};

use crate::call::Peer;
use crate::grpc::{Body, BoxError};
use crate::proxy::inspect::InspectLayer;
use crate::proxy::instrument::InstrumentLayer;
use crate::proxy::instrument::body::InstrumentBody;
use crate::proxy::instrument::layer::Shared;
use crate::proxy::pod_index::Index;
use crate::proxy::rescue::RescueLayer;
use crate::proxy::router::Router;

/// What the path is made of, shared by all connections.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Signals, calls in flight, trace ids.
    pub shared: Shared,
    /// Who is behind an id.
    pub index: Arc<Index>,
    /// Largest request message that is read, in bytes.
    pub max_message_bytes: usize,
}

/// The path for one connection.
pub fn stack(
    parts: &Parts,
    peer: Arc<Peer>,
    router: Router,
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
        // The connection's body becomes that of all layers; no byte moves.
        .map_request(|request: http::Request<Incoming>| request.map(Body::Incoming))
        // Outermost, so that it sees every end: answers, errors, resets and drops.
        .layer(InstrumentLayer::new(parts.shared.clone(), peer))
        // Below instrument, so that what we answer ourselves is measured like any other answer.
        .layer(RescueLayer)
        // Above the router, which decides by what was read.
        .layer(InspectLayer::new(
            Arc::clone(&parts.index),
            parts.max_message_bytes,
        ))
        // The backend, chosen per call.
        .service(router)
}
