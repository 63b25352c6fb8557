//! Passes records and events of the request path to [`crate::lifecycle`].

use std::path::Path;
use std::sync::Arc;

use crate::call::{Call, Outcome};
use crate::cri::Method;
use crate::lifecycle::capture::requests::RequestRecording;
use crate::lifecycle::process_scanner::Observations;
use crate::lifecycle::recorder::DumpWriter;
use crate::lifecycle::recorder::dumps::DumpReason;
use crate::lifecycle::{CallSink, activity};
use crate::proxy::backend::Backend;
use crate::proxy::instrument::CallObserver;

/// Passes records and events of calls to `lifecycle`.
#[derive(Debug)]
pub(super) struct LifecycleObserver {
    pub(super) sink: CallSink,
    pub(super) observations: Arc<Observations>,
    pub(super) dumps: Arc<DumpWriter>,
    pub(super) backends: Vec<Arc<Backend>>,
    pub(super) requests: Arc<RequestRecording>,
}

impl CallObserver for LifecycleObserver {
    fn ended(&self, call: &Call, outcome: &Outcome, is_notable: bool) {
        if matches!(call.method, Method::Status | Method::ImageFsInfo) {
            self.learn(call);
        }
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

impl LifecycleObserver {
    /// Updates the state of a backend from its response, if a single backend answered.
    fn learn(&self, call: &Call) {
        let (Some(route), Some(answer)) = (call.route.get(), call.response.get()) else {
            return;
        };
        let mut backends = self.backends.iter();
        let Some(backend) = backends.find(|backend| *backend.name() == route.backend) else {
            return;
        };
        if let Some(conditions) = &answer.conditions {
            backend.saw_conditions(conditions);
        }
        if let Some(path) = &answer.image_fs {
            backend.health().set_image_fs(Path::new(path.text()));
        }
    }
}

fn describe(call: &Call) -> String {
    let (method, seq) = (call.method, call.seq);
    match call.subject.get().and_then(|s| s.pod.as_deref()) {
        Some(pod) => format!("{method} of {}/{}, call {seq}", pod.namespace, pod.name),
        None => format!("{method}, call {seq}"),
    }
}
