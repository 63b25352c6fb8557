//! What every session is given.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::session::{Activity, Meter};
use super::target::Target;

/// How long a client that has all it will get may take to hang up. It must have the time: a connection that is closed
/// while bytes of the client are on their way is reset, and what we sent last may be lost with it.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// What every session is given.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) target: Arc<dyn Target>,
    pub(super) meter: Arc<Meter>,
    pub(super) activity: Activity,
    /// How long a client may take to open its streams.
    pub(super) creation_timeout: Duration,
    /// Fires when the session is to end from our side.
    pub(super) stop: CancellationToken,
    /// Silence after which it is.
    pub(super) idle_timeout: Duration,
    /// A place among the sessions: held by whatever is at work for this one, also when the client is gone.
    pub(super) place: Arc<OwnedSemaphorePermit>,
}
