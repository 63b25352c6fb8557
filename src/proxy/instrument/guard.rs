//! Ends a call exactly once, also when it is dropped.

use std::sync::Arc;

use super::classify::{self, CallOutcome};
use super::in_flight::InFlightGuard;
use super::service::InstrumentState;
use super::signals::CallSignals;
use crate::call::{Call, Outcome, Sealed, Source};
use crate::cri::redact;
use crate::cri::secrets::Secrets;
use crate::grpc::BoxError;

/// Held by the future of a call and then by its response body. Dropping it unfinished means that the caller cancelled.
pub struct CancellationGuard {
    call: Arc<Call>,
    signals: Arc<CallSignals>,
    secrets: Arc<Secrets>,
    seat: Option<InFlightGuard>,
}

impl std::fmt::Debug for CancellationGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("seq", &self.call.seq)
            .finish()
    }
}

impl CancellationGuard {
    /// Opens a call.
    pub fn new(call: Arc<Call>, shared: &InstrumentState) -> Self {
        let seat = shared.in_flight.enter(Arc::clone(&call));
        shared.signals.begin(&call);
        Self {
            call,
            signals: Arc::clone(&shared.signals),
            secrets: Arc::clone(&shared.secrets),
            seat: Some(seat),
        }
    }

    /// The record of the call.
    pub fn call(&self) -> &Arc<Call> {
        &self.call
    }

    /// Ends the call.
    pub fn finish(mut self, end: CallOutcome) {
        self.end(end);
    }

    /// Ends the call: its stream was reset, or the answer broke off.
    pub fn broken(self, error: &BoxError) {
        let end = classify::broken(error, self.call.age(), self.call.deadline);
        self.finish(end);
    }

    fn end(&mut self, end: CallOutcome) {
        let Some(seat) = self.seat.take() else { return };
        drop(seat);
        if let Some(steps) = self.call.steps.get() {
            steps.redact_remarks(|text| self.scrub(text));
        }
        let outcome = Outcome {
            ending: end.ending,
            code: end.code,
            source: end.source,
            message: end.message.map(|text| match end.source {
                Source::Proxy => redact::own_text(&text).into(),
                _ => self.scrub(&text).into(),
            }),
            elapsed: self.call.age(),
        };
        self.signals.end(&self.call, &outcome);
    }

    fn scrub(&self, text: &str) -> Box<str> {
        let call = &self.call;
        let request = (call.method, call.message.get().map(Sealed::bytes));
        let backend = call.route.get().map(|r| &*r.backend);
        redact::text_of_call(text, request, call.subject.get(), backend, &self.secrets)
    }
}

impl Drop for CancellationGuard {
    fn drop(&mut self) {
        if self.seat.is_some() {
            self.end(classify::dropped(self.call.age(), self.call.deadline));
        }
    }
}
