//! Observers for tests.

use std::sync::Arc;

use crate::call::{Call, Outcome};
use crate::lifecycle::CallSink;
use crate::lifecycle::recorder::FlightRecorder;
use crate::proxy::instrument::CallObserver;

/// Records calls; has no runtime to observe.
#[derive(Debug)]
struct Recording(CallSink);

impl CallObserver for Recording {
    fn ended(&self, call: &Call, outcome: &Outcome, is_notable: bool) {
        self.0.end(call, outcome, is_notable);
    }

    fn activity(&self, _: &Call) -> Option<String> {
        None
    }

    fn overdue(&self, _: &Call) {}
}

pub(super) fn recording(recorder: Arc<FlightRecorder>) -> Arc<dyn CallObserver> {
    Arc::new(Recording(CallSink::new(recorder, Arc::default()).0))
}

pub(super) fn observer() -> Arc<dyn CallObserver> {
    recording(Arc::new(FlightRecorder::new(16, 16)))
}
