//! A runtime that makes sandboxes and containers when it is told to, and callers of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::FutureExt as _;
use prost::Message as _;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tonic::Code;

use crate::call::{Client, Peer, Sealed};
use crate::cri::method::ApiVersion;
use crate::cri::{Method, v1};
use crate::proxy::backend::retries::kept::KeptCallEnd;
use crate::proxy::backend::retries::*;

/// Answers with an id of its own: what makes a sandbox or a container as soon as there is a permit for it, other calls at once.
#[derive(Debug)]
pub(super) struct SlowRuntime {
    /// Method and `grpc-timeout` of each request.
    pub(super) asked: Mutex<Vec<(String, String)>>,
    pub(super) permits: Semaphore,
    /// The code of the next answers.
    pub(super) code: Mutex<Code>,
    /// Calls that were cancelled.
    pub(super) cancelled: Arc<AtomicUsize>,
}

pub(super) struct CancelGuard(Option<Arc<AtomicUsize>>);

impl Drop for CancelGuard {
    fn drop(&mut self) {
        if let Some(cancelled) = &self.0 {
            cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<SlowRuntime>);

impl CallHandler for Shared {
    fn answer(&self, request: Request) -> ResponseFuture {
        let runtime = Arc::clone(&self.0);
        let (_, method) = request.uri().path().rsplit_once('/').expect("a method");
        let makes_something = ["RunPodSandbox", "CreateContainer"].contains(&method);
        let timeout = request.headers().get("grpc-timeout");
        let timeout = timeout.map_or("", |value| value.to_str().expect("text"));
        let number = {
            let mut asked = runtime.asked.lock().expect("lock");
            asked.push((method.to_owned(), timeout.to_owned()));
            asked.len()
        };
        Box::pin(async move {
            let mut guard = CancelGuard(Some(Arc::clone(&runtime.cancelled)));
            if makes_something {
                runtime.permits.acquire().await.expect("open").forget();
            }
            guard.0 = None;
            let code = *runtime.code.lock().expect("lock");
            if code != Code::Ok {
                return Ok(Status::from_backend(code, "no").into_response());
            }
            let message = v1::CreateContainerResponse {
                container_id: format!("made-{number}"),
            };
            let framed = frame::frame(&message.encode_to_vec()).expect("small");
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from(0));
            let body = Full::new(framed).with_trailers(async move { Some(Ok(trailers)) });
            let body = body.map_err(|never| match never {});
            Ok(Response::new(Body::boxed(body)))
        })
    }
}

/// A request, without the time in which it is made.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) message: Vec<u8>,
    pub(super) client: Client,
}

impl Asked {
    pub(super) fn sandbox(pod: &str, seen: &str) -> Self {
        let message = v1::RunPodSandboxRequest {
            config: Some(pod_config(pod, seen)),
            runtime_handler: String::new(),
        };
        Self::from_kubelet(Method::RunPodSandbox, &message)
    }

    pub(super) fn container(sandbox_id: &str, attempt: u32) -> Self {
        let config = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".to_owned(),
                attempt,
            }),
            ..Default::default()
        };
        let message = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod_config("web", "1")),
        };
        Self::from_kubelet(Method::CreateContainer, &message)
    }

    /// A call about an object with an id, as all that have one in their first field.
    pub(super) fn about(method: Method, id: &str) -> Self {
        let message = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        Self::from_kubelet(method, &message)
    }

    fn from_kubelet(method: Method, message: &impl prost::Message) -> Self {
        Self {
            method,
            message: message.encode_to_vec(),
            client: Client::Kubelet,
        }
    }

    pub(super) fn by(self, client: Client) -> Self {
        Self { client, ..self }
    }
}

pub(super) fn pod_config(pod: &str, seen: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: pod.to_owned(),
            uid: format!("uid-{pod}"),
            namespace: "shop".to_owned(),
            attempt: 0,
        }),
        annotations: [("kubernetes.io/config.seen".to_owned(), seen.to_owned())].into(),
        ..Default::default()
    }
}

/// A deadline that has passed at once, so that no test waits for one.
pub(super) const PASSED: Option<Duration> = Some(Duration::ZERO);
pub(super) const FAR: Option<Duration> = Some(Duration::from_secs(3600));

pub(super) struct Rig {
    pub(super) runtime: Arc<SlowRuntime>,
    pub(super) kept: Arc<KeptCalls>,
    pub(super) service: RetryJoining,
}

impl Rig {
    pub(super) fn new() -> Self {
        let runtime = Arc::new(SlowRuntime {
            asked: Mutex::default(),
            permits: Semaphore::new(0),
            code: Mutex::new(Code::Ok),
            cancelled: Arc::default(),
        });
        let kept = Arc::<KeptCalls>::default();
        let inner = CriService::new(Shared(Arc::clone(&runtime)));
        let service = RetryJoining::new(inner, Arc::clone(&kept));
        Self {
            runtime,
            kept,
            service,
        }
    }

    pub(super) fn call(
        &self,
        asked: &Asked,
        deadline: Option<Duration>,
    ) -> (Arc<Call>, ResponseFuture) {
        let peer = Peer {
            client: asked.client,
            pid: None,
            comm: None,
        };
        let (method, api) = (asked.method, ApiVersion::V1);
        let call = Arc::new(Call::new(0, method, api, deadline, Arc::new(peer), None));
        let message = Bytes::from(asked.message.clone());
        call.subject
            .set(peek::request(method, &message))
            .expect("once");
        call.message.set(Sealed::new(message)).expect("once");
        let mut request = Request::new(Body::Empty);
        let path = format!("/runtime.v1.RuntimeService/{method}");
        *request.uri_mut() = path.parse().expect("path");
        request.extensions_mut().insert(Arc::clone(&call));
        let answer = self.service.answer(request);
        (call, answer)
    }

    /// Makes a call whose caller gives up while the runtime is busy with it.
    pub(super) async fn give_up(&self, asked: &Asked, deadline: Option<Duration>) {
        let (_, mut answer) = self.call(asked, deadline);
        assert!((&mut answer).now_or_never().is_none(), "it waits");
        settle().await;
        drop(answer);
        settle().await;
    }

    /// Makes a call that waits for its answer, and lets the runtime answer one more. Returns the new id and whether the call joined.
    pub(super) async fn made(&self, asked: &Asked) -> (Result<String, Code>, bool) {
        let (call, answer) = self.call(asked, FAR);
        let answer = tokio::spawn(answer);
        settle().await;
        self.answer_one().await;
        let answer = answer.await.expect("no panic").expect("an answer");
        let (head, body) = answer.into_parts();
        if let Some((code, _)) = frame::status(&head.headers) {
            return (Err(code), call.joined().is_some());
        }
        let bytes = body.collect().await.expect("a body").to_bytes();
        let message = frame::message(&bytes).expect("whole");
        let message = v1::CreateContainerResponse::decode(message).expect("valid");
        (Ok(message.container_id), call.joined().is_some())
    }

    /// A call about an object with an id.
    pub(super) async fn about(&self, method: Method, id: &str) {
        let (_, answer) = self.call(&Asked::about(method, id), FAR);
        answer.await.expect("an answer");
    }

    pub(super) async fn answer_one(&self) {
        self.runtime.permits.add_permits(1);
        settle().await;
    }

    pub(super) fn asked(&self) -> usize {
        self.runtime.asked.lock().expect("lock").len()
    }

    pub(super) fn cancelled(&self) -> usize {
        self.runtime.cancelled.load(Ordering::SeqCst)
    }

    pub(super) fn ended(&self, end: KeptCallEnd) -> u64 {
        self.kept.ended(end)
    }
}

/// Lets all tasks go on until they wait.
pub(super) async fn settle() {
    for _ in 0..10 {
        yield_now().await;
    }
}

pub(super) fn made(number: usize, joined: bool) -> (Result<String, Code>, bool) {
    (Ok(format!("made-{number}")), joined)
}
