//! A fake CRI runtime, for loads that a real one cannot produce quickly: a list of 10 MB, and a million calls.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use criscope::cri::v1;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::UnixListener;

use crate::error::{IoContext, Result};
use crate::message::{Once, frame};
use crate::server_thread::ServerThread;

/// Minimum size of the long list, in bytes.
pub(crate) const LONG_LIST: usize = 10_000_000;

/// What `ListContainers` returns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    /// A single container.
    Short,
    /// A thousand containers with the annotations of a kubelet, about 1 MB.
    Thousand,
    /// At least [`LONG_LIST`] bytes.
    Long,
}

const POD: &str = "pod-7d4b9c6f5-x2x7q";
const POD_UID: &str = "6f1d9a52-5a36-4b5e-9d0c-0c8f3b8a9f10";
const NAMESPACE: &str = "benchmark";

const UNIMPLEMENTED: HeaderValue = HeaderValue::from_static("12");

/// The fake runtime; it serves its socket until dropped.
pub(crate) struct Fake {
    /// Its CRI socket.
    pub(crate) socket: PathBuf,
    state: Arc<State>,
    _server: ServerThread,
}

impl Fake {
    /// Starts it on a socket in `folder`, with a short list.
    ///
    /// # Errors
    /// If the socket or the thread cannot be created.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let socket = folder.join("fake.sock");
        let doing = || format!("listening on {}", socket.display());
        let listener = std::os::unix::net::UnixListener::bind(&socket).during(doing)?;
        listener.set_nonblocking(true).during(doing)?;
        let state = Arc::new(State {
            list: AtomicUsize::new(List::Short as usize),
            ids: AtomicU64::new(0),
            lists: [
                frame(&list(1, NOTES)),
                frame(&list(1_000, NOTES / 3)),
                frame(&list(
                    LONG_LIST.div_ceil(container(0, NOTES).encoded_len()),
                    NOTES,
                )),
            ],
        });
        let served = Arc::clone(&state);
        let server = ServerThread::start("fake", move || serve(listener, served))?;
        Ok(Self {
            socket,
            state,
            _server: server,
        })
    }

    /// Sets what `ListContainers` returns.
    pub(crate) fn set_list(&self, list: List) {
        self.state.list.store(list as usize, Ordering::Relaxed);
    }
}

struct State {
    list: AtomicUsize,
    ids: AtomicU64,
    /// In the order of [`List`].
    lists: [Bytes; 3],
}

impl State {
    /// The reply to a call; `None` for unknown calls.
    fn answer(&self, method: &str) -> Option<Bytes> {
        Some(match method {
            "Version" => frame(&v1::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: "fake".to_owned(),
                runtime_version: "1.0.0".to_owned(),
                runtime_api_version: "v1".to_owned(),
            }),
            "Status" => frame(&v1::StatusResponse {
                status: Some(v1::RuntimeStatus {
                    conditions: ["RuntimeReady", "NetworkReady"].map(condition).into(),
                }),
                ..Default::default()
            }),
            "ListContainers" => self.lists[self.list.load(Ordering::Relaxed)].clone(),
            "ListPodSandbox" => frame(&v1::ListPodSandboxResponse { items: vec![pod()] }),
            "ContainerStatus" => frame(&v1::ContainerStatusResponse {
                status: Some(v1::ContainerStatus {
                    id: id(0),
                    state: v1::ContainerState::ContainerRunning.into(),
                    labels: labels("container-0"),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            "RunPodSandbox" => frame(&v1::RunPodSandboxResponse {
                pod_sandbox_id: self.next_id(),
            }),
            "CreateContainer" => frame(&v1::CreateContainerResponse {
                container_id: self.next_id(),
            }),
            "StartContainer" | "StopContainer" | "RemoveContainer" | "StopPodSandbox"
            | "RemovePodSandbox" => frame(&v1::StartContainerResponse {}),
            _ => return None,
        })
    }

    fn next_id(&self) -> String {
        id(1 + self.ids.fetch_add(1, Ordering::Relaxed))
    }
}

fn id(number: u64) -> String {
    format!("{number:064x}")
}

fn condition(name: &str) -> v1::RuntimeCondition {
    v1::RuntimeCondition {
        r#type: name.to_owned(),
        status: true,
        ..Default::default()
    }
}

/// The pod of every container in the lists.
fn pod() -> v1::PodSandbox {
    v1::PodSandbox {
        id: id(u64::MAX),
        metadata: Some(v1::PodSandboxMetadata {
            name: POD.to_owned(),
            uid: POD_UID.to_owned(),
            namespace: NAMESPACE.to_owned(),
            attempt: 0,
        }),
        ..Default::default()
    }
}

/// The labels that the kubelet sets on every container.
fn labels(name: &str) -> HashMap<String, String> {
    [
        ("io.kubernetes.container.name", name),
        ("io.kubernetes.pod.name", POD),
        ("io.kubernetes.pod.namespace", NAMESPACE),
        ("io.kubernetes.pod.uid", POD_UID),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

/// Bytes of an annotation in the long list, most of its size.
const NOTES: usize = 1_500;

/// A list of containers with an annotation of `notes` bytes each.
fn list(count: usize, notes: usize) -> v1::ListContainersResponse {
    v1::ListContainersResponse {
        containers: (0..count).map(|number| container(number, notes)).collect(),
    }
}

fn container(number: usize, notes: usize) -> v1::Container {
    let name = format!("container-{number}");
    v1::Container {
        id: id(number as u64),
        pod_sandbox_id: id(u64::MAX),
        labels: labels(&name),
        annotations: HashMap::from([("example.com/notes".to_owned(), "x".repeat(notes))]),
        metadata: Some(v1::ContainerMetadata { name, attempt: 0 }),
        image_ref: format!("registry.example.com/image@sha256:{}", id(1)),
        state: v1::ContainerState::ContainerRunning.into(),
        created_at: 1_700_000_000_000_000_000,
        ..Default::default()
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, state: Arc<State>) {
    let Ok(listener) = UnixListener::from_std(listener) else {
        return;
    };
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request| reply(Arc::clone(&state), request));
        let connection = Builder::new(TokioExecutor::new())
            .auto_date_header(false)
            .max_concurrent_streams(None)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn reply(
    state: Arc<State>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Once>, Infallible> {
    let (head, body) = request.into_parts();
    // Errors of the body are ignored: the caller sees its stream break.
    let _ = body.collect().await;
    let method = head.uri.path().rsplit('/').next().unwrap_or_default();
    let answer = state.answer(method);
    let unknown = answer.is_none();
    let mut response = Response::new(match answer {
        Some(message) => Once::reply(message, status(HeaderValue::from_static("0"))),
        None => Once::empty(),
    });
    if unknown {
        *response.headers_mut() = status(UNIMPLEMENTED);
    }
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    Ok(response)
}

fn status(code: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), code)])
}
