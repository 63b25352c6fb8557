//! The stages in which the process ends.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::handover::HandoverSteps;

/// Tokens of the parts of the process, in the order in which they end.
#[derive(Clone, Debug, Default)]
pub(super) struct ShutdownStages {
    /// Ends what one process has at a time: admin endpoint, receiver, subscription to events.
    pub(super) release: CancellationToken,
    /// No more connections are accepted; open connections are asked to close.
    pub(super) drain: CancellationToken,
    /// Calls that are left are cut.
    pub(super) cut_calls: CancellationToken,
    /// Set before calls are cut if only streams of events are left, which have no end.
    pub(super) only_event_streams: CancellationToken,
    /// The last call has ended. Sessions may go on.
    pub(super) calls_ended: CancellationToken,
    /// Sessions that are left are ended.
    pub(super) cut_sessions: CancellationToken,
    /// The steps of a handover, if there is one.
    pub(super) handover: HandoverSteps,
}

impl ShutdownStages {
    /// Ends the process: calls have this time to finish. Sessions have it too in a process that has handed over, else they end at once.
    pub(super) async fn stop(&self, drain: Duration) {
        self.release.cancel();
        self.drain.cancel();
        if !self.is_handed_over() {
            self.cut_sessions.cancel();
        }
        sleep(drain).await;
        self.cut_calls.cancel();
        self.cut_sessions.cancel();
    }

    /// Notes that the last call has ended.
    pub(super) fn end_calls(&self) {
        self.release.cancel();
        self.drain.cancel();
        self.calls_ended.cancel();
        if !self.is_handed_over() {
            self.cut_sessions.cancel();
        }
    }

    /// Returns whether the next process is to serve in place of this one.
    pub(super) fn is_handed_over(&self) -> bool {
        self.handover.begun.is_cancelled()
    }
}
