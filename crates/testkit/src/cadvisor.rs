//! What cAdvisor's containerd handler asks (`container/containerd` in google/cadvisor), with messages of its own: the field numbers
//! are those of containerd's definitions, and a test against a real containerd holds them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use criscope::client;
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
pub const RUNNING: i32 = 2;
pub const STOPPED: i32 = 3;

#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Got<T: Message + Default + Debug> {
    #[prost(message, optional, tag = "1")]
    it: Option<T>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    #[prost(string, tag = "3")]
    pub image: String,
    #[prost(message, optional, tag = "5")]
    pub spec: Option<Spec>,
    #[prost(message, optional, tag = "8")]
    pub created_at: Option<Time>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Spec {
    #[prost(string, tag = "1")]
    pub kind: String,
    #[prost(bytes = "vec", tag = "2")]
    pub json: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Task {
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    #[prost(int32, tag = "4")]
    pub status: i32,
    #[prost(uint32, tag = "9")]
    pub exit_status: u32,
}

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
        let version: Id = self.call(VERSION, Some(NAMESPACE), Id::default()).await?;
        Ok(version.id)
    }

    pub async fn container(&self, id: &str) -> Result<Container, Status> {
        self.get(CONTAINER, Some(NAMESPACE), id).await
    }

    pub async fn task(&self, id: &str) -> Result<Task, Status> {
        self.get(TASK, Some(NAMESPACE), id).await
    }

    async fn get<T: Message + Default + Debug + 'static>(
        &self,
        method: &'static str,
        namespace: Option<&'static str>,
        id: &str,
    ) -> Result<T, Status> {
        let id = Id { id: id.to_owned() };
        let got: Got<T> = self.call(method, namespace, id).await?;
        Ok(got.it.expect("a response has it"))
    }

    /// Any method with an id.
    pub async fn call<A: Message + Default + 'static>(
        &self,
        method: &'static str,
        namespace: Option<&'static str>,
        id: impl Message + Default + 'static,
    ) -> Result<A, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.expect("connected");
        let mut request = Request::new(id);
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
            let json: serde_json::Value = serde_json::from_slice(&spec.json).expect("JSON");
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
                    CONTAINER => self.get::<Container>(method, namespace, id).await.err(),
                    _ => self.get::<Task>(method, namespace, id).await.err(),
                };
                let refused = refused.expect("refused").code();
                assert_eq!(refused, code, "{method} {namespace:?} {id}");
            }
        }
    }
}
