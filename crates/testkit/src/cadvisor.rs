//! What cAdvisor's containerd handler asks (`container/containerd` in google/cadvisor). The messages are those of the product: a test
//! against a real containerd holds their field numbers.

use std::path::Path;
use std::time::Duration;

use criscope::client;
use criscope_wire::services::{
    self, Container, GetContainerRequest, GetContainerResponse, GetTaskRequest, GetTaskResponse,
    Process, VersionResponse,
};
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// `--containerd-namespace`.
const NAMESPACE: &str = "k8s.io";

const VERSION: &str = "/containerd.services.version.v1.Version/Version";
const CONTAINER: &str = "/containerd.services.containers.v1.Containers/Get";
const TASK: &str = "/containerd.services.tasks.v1.Tasks/Get";

/// The status of a running task, and of one that has exited.
pub const RUNNING: i32 = services::Status::Running as i32;
pub const STOPPED: i32 = services::Status::Stopped as i32;

/// A connection to the socket that `--containerd` names.
pub struct Cadvisor {
    channel: Channel,
}

impl Cadvisor {
    pub async fn of(socket: &Path) -> Self {
        let channel = client::connect(socket, Duration::from_secs(30)).await;
        Self {
            channel: channel.expect("connect"),
        }
    }

    pub async fn version(&self) -> Result<String, Status> {
        let version: VersionResponse = self.call(VERSION, Some(NAMESPACE), ()).await?;
        Ok(version.version)
    }

    pub async fn container(&self, id: &str) -> Result<Container, Status> {
        self.container_in(Some(NAMESPACE), id).await
    }

    pub async fn task(&self, id: &str) -> Result<Process, Status> {
        self.task_in(Some(NAMESPACE), id).await
    }

    async fn container_in(
        &self,
        namespace: Option<&'static str>,
        id: &str,
    ) -> Result<Container, Status> {
        let request = GetContainerRequest { id: id.to_owned() };
        let got: GetContainerResponse = self.call(CONTAINER, namespace, request).await?;
        Ok(got.container.expect("a container"))
    }

    async fn task_in(&self, namespace: Option<&'static str>, id: &str) -> Result<Process, Status> {
        let request = GetTaskRequest {
            container_id: id.to_owned(),
            ..GetTaskRequest::default()
        };
        let got: GetTaskResponse = self.call(TASK, namespace, request).await?;
        Ok(got.process.expect("a task"))
    }

    /// Any method.
    pub async fn call<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        namespace: Option<&'static str>,
        message: impl Message + Default + 'static,
    ) -> Result<A, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.expect("connected");
        let mut request = Request::new(message);
        if let Some(namespace) = namespace {
            let value = namespace.parse().expect("a header");
            request.metadata_mut().insert("containerd-namespace", value);
        }
        let codec = ProstCodec::default();
        let path = PathAndQuery::from_static(method);
        Ok(grpc.unary(request, path, codec).await?.into_inner())
    }

    /// What containerd and what stands in for it have in common, of a running container and of its pod, which has this label.
    pub async fn assert_usual(&self, sandbox: &str, container: &str, label: (&str, &str)) {
        assert!(!self.version().await.expect("a version").is_empty());
        for (id, kind) in [(container, "container"), (sandbox, "sandbox")] {
            let found = self.container(id).await.expect("known");
            assert_eq!(found.id, id);
            assert_eq!(found.labels["io.cri-containerd.kind"], kind);
            if kind == "sandbox" {
                assert_eq!(found.labels[label.0], label.1);
            }
            assert!(!found.image.is_empty(), "{kind}");
            assert!(found.created_at.is_some_and(|time| time.seconds > 0));
            let spec = found.spec.expect("a specification");
            let json: serde_json::Value = serde_json::from_slice(&spec.value).expect("JSON");
            assert!(json["process"].is_object(), "cAdvisor fails without");
            // cAdvisor repeats the call while there is none.
            let task = crate::until("a task", || async { self.task(id).await.ok() }).await;
            assert_eq!((task.id.as_str(), task.status), (id, RUNNING));
            let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", task.pid));
            let cgroups = cgroups.expect("it runs");
            assert!(cgroups.contains(&format!("/{id}\n")), "{cgroups}");
        }
        let part = &container[..container.len() - 1];
        let unknown = "0".repeat(container.len());
        for method in [CONTAINER, TASK] {
            for (namespace, id, code) in [
                (None, container, Code::FailedPrecondition),
                (Some(""), container, Code::FailedPrecondition),
                (Some("../k8s.io"), container, Code::InvalidArgument),
                (Some("moby"), container, Code::NotFound),
                (Some(NAMESPACE), "", Code::NotFound),
                (Some(NAMESPACE), "../../../../etc/passwd", Code::NotFound),
                (Some(NAMESPACE), part, Code::NotFound),
                (Some(NAMESPACE), &unknown, Code::NotFound),
            ] {
                let refused = match method {
                    CONTAINER => self.container_in(namespace, id).await.err(),
                    _ => self.task_in(namespace, id).await.err(),
                };
                let refused = refused.expect("refused").code();
                assert_eq!(refused, code, "{method} {namespace:?} {id}");
            }
        }
    }
}
