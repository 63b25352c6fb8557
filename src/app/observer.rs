//! Passes records and events of the request path to [`crate::lifecycle`].

use std::sync::Arc;

use crate::call::{Call, Outcome};
use crate::lifecycle::capture::requests::RequestRecording;
use crate::lifecycle::process_scanner::Observations;
use crate::lifecycle::recorder::DumpWriter;
use crate::lifecycle::recorder::dumps::DumpReason;
use crate::lifecycle::{CallSink, activity};
use crate::proxy::instrument::CallObserver;

/// Passes records and events of calls to `lifecycle`.
#[derive(Debug)]
pub(super) struct LifecycleObserver {
    pub(super) sink: CallSink,
    pub(super) observations: Arc<Observations>,
    pub(super) dumps: Arc<DumpWriter>,
    pub(super) requests: Arc<RequestRecording>,
}

impl CallObserver for LifecycleObserver {
    fn ended(&self, call: &Call, outcome: &Outcome, is_notable: bool) {
        self.requests.ended(call, outcome);
        self.sink.end(call, outcome, is_notable);
    }

    fn activity(&self, call: &Call) -> Option<String> {
        activity::describe(&self.observations, call)
    }

    fn overdue(&self, call: &Call) {
        self.dumps.ask(DumpReason::Stuck, Some(describe(call)));
    }
}

fn describe(call: &Call) -> String {
    let (method, seq) = (call.method, call.seq);
    match call.subject.get().and_then(|s| s.pod.as_deref()) {
        Some(pod) => format!("{method} of {}/{}, call {seq}", pod.namespace, pod.name),
        None => format!("{method}, call {seq}"),
    }
}
