//! What every session is given.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch;

use super::observe::Outcome;
use super::runtime::StreamingRuntime;
use super::session::{Activity, Meter};

/// How long a client that has all it will get may take to hang up. It must have the time: a connection that is closed
/// while bytes of the client are on their way is reset, and what we sent last may be lost with it.
pub(super) const LINGER: Duration = Duration::from_secs(5);

/// When a session is to end from our side, and why.
#[derive(Clone)]
pub(super) struct StopSignal(watch::Receiver<Option<StopReason>>);

/// Why a session ends from our side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Nothing was sent either way for too long.
    Idle,
    /// This process stops.
    Shutdown,
}

impl StopSignal {
    pub(super) fn new() -> (watch::Sender<Option<StopReason>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// Returns when the session is to end.
    pub(super) async fn fired(&self) -> StopReason {
        let mut ending = self.0.clone();
        let ending = ending.wait_for(Option::is_some).await;
        // Whoever could say it has gone: nobody waits for this session any more.
        ending
            .ok()
            .and_then(|ending| *ending)
            .unwrap_or(StopReason::Shutdown)
    }
}

impl From<StopReason> for Outcome {
    fn from(ending: StopReason) -> Self {
        match ending {
            StopReason::Idle => Self::Idle,
            StopReason::Shutdown => Self::Shutdown,
        }
    }
}

/// What every session is given.
#[derive(Clone)]
pub(super) struct SessionContext {
    pub(super) runtime: Arc<dyn StreamingRuntime>,
    pub(super) meter: Arc<Meter>,
    pub(super) activity: Activity,
    /// How long a client may take to open its streams.
    pub(super) creation_timeout: Duration,
    /// When the session is to end from our side.
    pub(super) stop: StopSignal,
    /// Silence after which it is.
    pub(super) idle_timeout: Duration,
    /// A place among the sessions: held by whatever is at work for this one, also when the client is gone.
    pub(super) place: Arc<OwnedSemaphorePermit>,
}
