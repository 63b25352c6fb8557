//! A CRI runtime on a unix socket that keeps its objects in memory, and can fail or delay one method.
//!
//! A call continues after its caller has disconnected, as in CRI-O.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tonic::Code;

use crate::cri::v1::*;

/// The encoded response, or status and message.
type FakeResponse = Result<Vec<u8>, (Code, &'static str)>;
type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The runtime's objects.
#[derive(Default)]
pub(super) struct FakeObjects {
    pub(super) sandboxes: HashMap<String, PodSandboxConfig>,
    pub(super) images: Vec<String>,
    container: Option<CreateContainerRequest>,
    /// The methods that were called, in order.
    pub(super) calls: Vec<String>,
}

/// A CRI runtime that keeps its objects in memory.
#[derive(Default)]
pub(super) struct FakeRuntime {
    pub(super) objects: Mutex<FakeObjects>,
    /// This method fails.
    pub(super) fails: Option<(&'static str, Code)>,
    /// This method waits for `release` first.
    pub(super) held: Option<&'static str>,
    /// Gets a permit when the delayed method is called.
    pub(super) reached: Semaphore0,
    /// Takes a permit before it continues.
    pub(super) release: Semaphore0,
}

/// A semaphore that begins without permits.
pub(super) struct Semaphore0(Semaphore);

impl Default for Semaphore0 {
    fn default() -> Self {
        Self(Semaphore::new(0))
    }
}

impl Semaphore0 {
    pub(super) fn add(&self) {
        self.0.add_permits(1);
    }

    pub(super) async fn take(&self) {
        self.0.acquire().await.expect("never closed").forget();
    }
}

impl FakeRuntime {
    /// Serves at `path` for the duration of the test.
    pub(super) fn serve(self, path: &Path) -> Arc<Self> {
        let fake = Arc::new(self);
        let listener = UnixListener::bind(path).expect("bind");
        let server = Arc::clone(&fake);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let fake = Arc::clone(&server);
                let service = service_fn(move |request| Arc::clone(&fake).call(request));
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        fake
    }

    pub(super) fn objects(&self) -> MutexGuard<'_, FakeObjects> {
        self.objects.lock().expect("no test panics in it")
    }

    async fn call(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        let path = request.uri().path().to_owned();
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        let body = request.into_body().collect().await.expect("a request");
        // Without the gRPC frame header of five bytes.
        let message = body.to_bytes().split_off(5);
        let working = tokio::spawn(async move {
            if self.held == Some(&*method) {
                self.reached.add();
                self.release.take().await;
            }
            self.work(&method, message)
        });
        Ok(match working.await.expect("no panic") {
            Ok(answer) => answered(&answer),
            Err((code, message)) => refused(code, message),
        })
    }

    fn work(&self, method: &str, message: Bytes) -> FakeResponse {
        let mut objects = self.objects();
        objects.calls.push(method.to_owned());
        if let Some((failing, code)) = self.fails
            && failing == method
        {
            return Err((code, "told to fail"));
        }
        objects.answer(method, message)
    }
}

fn answered(message: &[u8]) -> Response<Body> {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("small"));
    frame.put_slice(message);
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let body = Full::new(frame.freeze()).with_trailers(async { Some(Ok(trailers)) });
    Response::builder()
        .header("content-type", "application/grpc")
        .body(body.boxed_unsync())
        .expect("a response")
}

fn refused(code: Code, message: &str) -> Response<Body> {
    Response::builder()
        .header("content-type", "application/grpc")
        .header("grpc-status", code as i32)
        .header("grpc-message", message)
        .body(Empty::new().boxed_unsync())
        .expect("a response")
}

impl FakeObjects {
    fn answer(&mut self, method: &str, message: Bytes) -> FakeResponse {
        Ok(match method {
            "Version" => VersionResponse {
                runtime_name: "fake".into(),
                runtime_version: "1.0".into(),
                runtime_api_version: "v1".into(),
                ..Default::default()
            }
            .encode_to_vec(),
            "Status" => status().encode_to_vec(),
            "RuntimeConfig" => RuntimeConfigResponse {
                linux: Some(LinuxRuntimeConfiguration {
                    cgroup_driver: CgroupDriver::Systemd.into(),
                }),
            }
            .encode_to_vec(),
            "PullImage" | "ImageStatus" | "RemoveImage" => self.image(method, message),
            "RunPodSandbox" => {
                let request = RunPodSandboxRequest::decode(message).expect("decodes");
                let id = format!("sandbox-{}", self.sandboxes.len());
                self.sandboxes
                    .insert(id.clone(), request.config.expect("a config"));
                RunPodSandboxResponse { pod_sandbox_id: id }.encode_to_vec()
            }
            "ListPodSandbox" => self.list(message).encode_to_vec(),
            "PodSandboxStatus" => PodSandboxStatusResponse {
                status: Some(PodSandboxStatus {
                    network: Some(PodSandboxNetworkStatus {
                        ip: "192.0.2.7".into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }
            .encode_to_vec(),
            "RemovePodSandbox" => {
                let request = RemovePodSandboxRequest::decode(message).expect("decodes");
                self.sandboxes.remove(&request.pod_sandbox_id);
                Vec::new()
            }
            "StopPodSandbox" | "StopContainer" | "RemoveContainer" => Vec::new(),
            "CreateContainer" => {
                self.container = Some(CreateContainerRequest::decode(message).expect("decodes"));
                let container_id = "container-0".to_owned();
                CreateContainerResponse { container_id }.encode_to_vec()
            }
            "StartContainer" => {
                self.write_log();
                Vec::new()
            }
            "ExecSync" => exec(message).encode_to_vec(),
            "ContainerStatus" => ContainerStatusResponse {
                status: Some(ContainerStatus {
                    state: ContainerState::ContainerRunning.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }
            .encode_to_vec(),
            _ => return Err((Code::Unimplemented, "not in this fake")),
        })
    }

    /// The three requests have the image in field 1.
    fn image(&mut self, method: &str, message: Bytes) -> Vec<u8> {
        let request = RemoveImageRequest::decode(message).expect("decodes");
        let name = request.image.expect("an image").image;
        match method {
            "PullImage" => {
                self.images.push(name);
                let image_ref = "sha256:0".to_owned();
                PullImageResponse { image_ref }.encode_to_vec()
            }
            "RemoveImage" => {
                self.images.retain(|image| *image != name);
                Vec::new()
            }
            _ => {
                let found = self.images.contains(&name).then(|| Image {
                    id: "sha256:0".into(),
                    ..Default::default()
                });
                let info = HashMap::new();
                ImageStatusResponse { image: found, info }.encode_to_vec()
            }
        }
    }

    fn list(&self, message: Bytes) -> ListPodSandboxResponse {
        let request = ListPodSandboxRequest::decode(message).expect("decodes");
        let labels = request.filter.unwrap_or_default().label_selector;
        let selected = |config: &PodSandboxConfig| {
            labels
                .iter()
                .all(|(name, value)| config.labels.get(name) == Some(value))
        };
        let matching = self.sandboxes.iter().filter(|(_, config)| selected(config));
        let items = matching.map(|(id, _)| PodSandbox {
            id: id.clone(),
            ..Default::default()
        });
        ListPodSandboxResponse {
            items: items.collect(),
        }
    }

    /// Writes the output of the container's script, in the CRI log format.
    fn write_log(&self) {
        let request = self.container.as_ref().expect("created");
        let config = request.config.as_ref().expect("a config");
        let sandbox = request.sandbox_config.as_ref().expect("a config");
        let path = PathBuf::from(&sandbox.log_directory).join(&config.log_path);
        let run = &sandbox.metadata.as_ref().expect("metadata").uid;
        let log = format!(
            "2026-01-02T03:04:05.6Z stdout F out {run}\n2026-01-02T03:04:05.7Z stderr F err {run}\n"
        );
        fs::write(path, log).expect("the log directory exists");
    }
}

fn status() -> StatusResponse {
    let ready = |name: &str| RuntimeCondition {
        r#type: name.into(),
        status: true,
        ..Default::default()
    };
    StatusResponse {
        status: Some(RuntimeStatus {
            conditions: vec![ready("RuntimeReady"), ready("NetworkReady")],
        }),
        ..Default::default()
    }
}

/// Runs the command, on this machine.
fn exec(message: Bytes) -> ExecSyncResponse {
    let request = ExecSyncRequest::decode(message).expect("decodes");
    let output = std::process::Command::new(&request.cmd[0])
        .args(&request.cmd[1..])
        .output()
        .expect("a shell");
    ExecSyncResponse {
        stdout: output.stdout,
        stderr: output.stderr,
        exit_code: output.status.code().unwrap_or(-1),
    }
}
