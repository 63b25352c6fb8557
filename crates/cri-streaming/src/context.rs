//! The context of every session.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::watch;

use super::observe::SessionOutcome;
use super::runtime::StreamingRuntime;
use super::session::{ConnectionActivity, SessionMeter};

/// How long a client that has received everything may take to close the connection. It needs this time: closing a
/// connection while bytes of the client are in flight resets it, which may discard the last bytes that the server sent.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// The signal that ends a session from the server's side, with the reason.
#[derive(Clone)]
pub(super) struct StopSignal(watch::Receiver<Option<StopReason>>);

/// Why the server ends a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// No traffic in either direction for the idle timeout.
    Idle,
    /// The process shuts down.
    Shutdown,
}

impl StopSignal {
    pub(super) fn new() -> (watch::Sender<Option<StopReason>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// Waits until the session must end, and returns the reason.
    pub(super) async fn fired(&self) -> StopReason {
        let mut ending = self.0.clone();
        let ending = ending.wait_for(Option::is_some).await;
        // The sender is gone: nothing waits for this session any more.
        ending
            .ok()
            .and_then(|ending| *ending)
            .unwrap_or(StopReason::Shutdown)
    }
}

impl From<StopReason> for SessionOutcome {
    fn from(ending: StopReason) -> Self {
        match ending {
            StopReason::Idle => Self::Idle,
            StopReason::Shutdown => Self::Shutdown,
        }
    }
}

/// The context of every session.
#[derive(Clone)]
pub(super) struct SessionContext {
    pub(super) runtime: Arc<dyn StreamingRuntime>,
    pub(super) meter: Arc<SessionMeter>,
    pub(super) activity: ConnectionActivity,
    /// How long a client may take to open its streams.
    pub(super) creation_timeout: Duration,
    /// Fires when the server ends the session.
    pub(super) stop: StopSignal,
    /// The idle timeout.
    pub(super) idle_timeout: Duration,
    /// The permit of the session, held by all of its tasks, which may outlive the client.
    pub(super) permit: Arc<OwnedSemaphorePermit>,
}
