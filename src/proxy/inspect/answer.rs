//! Reads the few responses that carry new ids, exit codes or conditions of the runtime, from a bounded copy.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use tonic::Code;

use super::Inspector;
use crate::call::{Call, Sealed};
use crate::cri::subject::ContainerIdentity;
use crate::cri::{Method, peek};
use crate::grpc::Body;
use crate::grpc::frame;
use crate::grpc::observed::{BodyObserver, FrameResult, ObservedBody};
use crate::proxy::pod_index::{ContainerEntry, SandboxEntry};

/// Most bytes of a response that are copied. An id needs seventy; for an ExecSync with more output than this the record has
/// no exit code.
const MAX_COPY_BYTES: usize = 64 << 10;

/// Returns whether responses to this method are read.
pub const fn is_wanted(method: Method) -> bool {
    peek::wants_answer(method)
        || matches!(method, Method::RemovePodSandbox | Method::RemoveContainer)
}

/// Forwards a response and copies it.
pub(super) fn inspected(body: Body, call: Arc<Call>, inspector: Arc<Inspector>) -> Body {
    let copy = ResponseCopy {
        call,
        inspector,
        copy: Some(BytesMut::new()),
    };
    Body::boxed(ObservedBody::new(body, copy))
}

struct ResponseCopy {
    call: Arc<Call>,
    inspector: Arc<Inspector>,
    copy: Option<BytesMut>,
}

impl ResponseCopy {
    fn keep(&mut self, data: &Bytes) {
        let Some(copy) = &mut self.copy else { return };
        if copy.len() + data.len() <= MAX_COPY_BYTES {
            copy.extend_from_slice(data);
        } else {
            self.copy = None;
        }
    }

    /// Called when the response is complete and successful.
    fn learn(&mut self) {
        let Some(copy) = self.copy.take() else { return };
        let Some(message) = frame::message(&copy) else {
            return;
        };
        let answer = peek::answer(self.call.method, message);
        let _ = self.call.response.set(answer);
        learn(&self.call, &self.inspector);
    }
}

/// Adds the ids in a successful response to the index, and tells a backend its conditions.
fn learn(call: &Call, inspector: &Inspector) {
    let index = &inspector.index;
    let (Some(subject), Some(route)) = (call.subject.get(), call.route.get()) else {
        return;
    };
    match call.method {
        Method::RunPodSandbox | Method::RestorePod => {
            if let (Some(id), Some(pod)) = (call.sandbox_id(), &subject.pod) {
                let entry = SandboxEntry {
                    pod: Arc::clone(pod),
                    backend: Arc::clone(&route.backend),
                };
                index.insert_sandbox(Arc::clone(id), entry);
                for (id, entry) in restored(call, id, &route.backend) {
                    index.insert_container(id, entry);
                }
            }
        }
        Method::CreateContainer => {
            if let (Some(id), Some(sandbox), Some(container)) =
                (call.container_id(), call.sandbox_id(), &subject.container)
            {
                let entry = ContainerEntry {
                    container: Arc::clone(container),
                    sandbox_id: Arc::clone(sandbox),
                    backend: Arc::clone(&route.backend),
                };
                index.insert_container(Arc::clone(id), entry);
            }
        }
        Method::RemovePodSandbox => {
            if let Some(id) = &subject.sandbox_id {
                index.sandbox_removed(id);
            }
        }
        Method::RemoveContainer => {
            if let Some(id) = &subject.container_id {
                index.container_removed(id);
            }
        }
        Method::Status | Method::ImageFsInfo => {
            let mut backends = inspector.backends.iter();
            // An answer that was joined is that of no backend.
            let backend = backends.find(|backend| *backend.name() == route.backend);
            if let (Some(backend), Some(answer)) = (backend, call.response.get()) {
                backend.learn(answer);
            }
        }
        _ => {}
    }
}

/// The containers in the answer to a RestorePod. The answer has their names; the request has their attempts, too.
fn restored(
    call: &Call,
    sandbox_id: &Arc<str>,
    backend: &Arc<str>,
) -> Vec<(Arc<str>, ContainerEntry)> {
    let answered = call.response.get().map(|answer| &answer.restored[..]);
    let request = call.message.get().map(Sealed::bytes);
    let named = request.map_or_else(Vec::new, peek::restored_containers);
    let answered = answered.unwrap_or_default().iter();
    let entries = answered.map(|made| {
        let named = named.iter().find(|container| container.name == made.name);
        let container = named.cloned().unwrap_or_else(|| {
            Arc::new(ContainerIdentity {
                name: made.name.clone(),
                attempt: 0,
            })
        });
        let entry = ContainerEntry {
            container,
            sandbox_id: Arc::clone(sandbox_id),
            backend: Arc::clone(backend),
        };
        (Arc::clone(&made.id), entry)
    });
    entries.collect()
}

impl BodyObserver<Body> for ResponseCopy {
    fn poll_frame(&mut self, body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            if let Some(data) = frame.data_ref() {
                self.keep(data);
            } else if let Some(trailers) = frame.trailers_ref() {
                match frame::status(trailers) {
                    Some((Code::Ok, _)) => self.learn(),
                    _ => self.copy = None,
                }
            }
        }
        Poll::Ready(frame)
    }
}
