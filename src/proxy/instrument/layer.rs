//! What the layer needs, once per connection.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tower::Layer;

use super::service::Instrument;
use super::{InFlight, Observe};
use crate::call::Peer;

/// Shared by all connections.
#[derive(Clone)]
pub struct Shared {
    /// Gets every call's begin and end.
    pub observer: Arc<dyn Observe>,
    /// Holds the calls in flight.
    pub in_flight: Arc<InFlight>,
    /// Numbers the calls.
    pub seq: Arc<AtomicU64>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Wraps the services of one connection.
#[derive(Clone, Debug)]
pub struct InstrumentLayer {
    shared: Shared,
    peer: Arc<Peer>,
}

impl InstrumentLayer {
    /// A layer for the connection of `peer`.
    pub fn new(shared: Shared, peer: Arc<Peer>) -> Self {
        Self { shared, peer }
    }
}

impl<S> Layer<S> for InstrumentLayer {
    type Service = Instrument<S>;

    fn layer(&self, inner: S) -> Instrument<S> {
        Instrument::new(inner, self.shared.clone(), Arc::clone(&self.peer))
    }
}
