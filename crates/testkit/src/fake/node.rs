//! Responses to criscope's own calls.

use std::sync::Mutex;

use bytes::Bytes;
use criscope::cri::v1;
use h2::RecvStream;
use h2::server::SendResponse;
use http::request::Parts;
use http::{HeaderMap, Response};
use prost::Message;

use crate::{headers, lock, message, script};

/// The runtime as criscope's probe sees it.
#[derive(Clone)]
pub struct Node {
    /// Whether it serves `runtime.v1`.
    pub v1: bool,
    /// Whether it serves `runtime.v1alpha2`.
    pub v1alpha2: bool,
    pub sandboxes: Vec<v1::PodSandbox>,
    pub containers: Vec<v1::Container>,
    /// The conditions of its Status.
    pub conditions: Vec<v1::RuntimeCondition>,
}

impl Default for Node {
    fn default() -> Self {
        let condition = |kind: &str| v1::RuntimeCondition {
            r#type: kind.into(),
            status: true,
            ..Default::default()
        };
        Self {
            v1: true,
            v1alpha2: true,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            conditions: vec![condition("RuntimeReady"), condition("NetworkReady")],
        }
    }
}

impl Node {
    /// Adds a pod `shop/NAME` with one container `app`.
    pub fn add_pod(&mut self, name: &str, sandbox: &str, container: &str) {
        self.sandboxes.push(v1::PodSandbox {
            id: sandbox.into(),
            metadata: Some(v1::PodSandboxMetadata {
                name: name.into(),
                namespace: "shop".into(),
                uid: format!("uid-{name}"),
                attempt: 0,
            }),
            ..Default::default()
        });
        self.containers.push(v1::Container {
            id: container.into(),
            pod_sandbox_id: sandbox.into(),
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt: 0,
            }),
            ..Default::default()
        });
    }

    /// Returns whether a path belongs to a service that is served.
    pub(super) fn knows(&self, path: &str) -> bool {
        match path {
            p if p.starts_with("/runtime.v1.") => self.v1,
            p if p.starts_with("/runtime.v1alpha2.") => self.v1alpha2,
            _ => true,
        }
    }

    fn version() -> v1::VersionResponse {
        v1::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "fake".into(),
            runtime_version: "v9".into(),
            runtime_api_version: "v1".into(),
        }
    }

    fn list_sandboxes(&self, request: &[u8]) -> v1::ListPodSandboxResponse {
        let request = v1::ListPodSandboxRequest::decode(request).unwrap_or_default();
        let id = request.filter.unwrap_or_default().id;
        let all = self.sandboxes.iter().filter(|s| s.id.starts_with(&id));
        v1::ListPodSandboxResponse {
            items: all.cloned().collect(),
        }
    }

    fn list_containers(&self, request: &[u8]) -> v1::ListContainersResponse {
        let request = v1::ListContainersRequest::decode(request).unwrap_or_default();
        let id = request.filter.unwrap_or_default().id;
        let all = self.containers.iter().filter(|c| c.id.starts_with(&id));
        v1::ListContainersResponse {
            containers: all.cloned().collect(),
        }
    }

    fn reply(&self, path: &str, request: &[u8]) -> Result<Vec<u8>, HeaderMap> {
        if !self.knows(path) {
            return Err(script::status(12, "unknown service"));
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(match name {
            "Version" => Self::version().encode_to_vec(),
            "Status" => v1::StatusResponse {
                status: Some(v1::RuntimeStatus {
                    conditions: self.conditions.clone(),
                }),
                ..Default::default()
            }
            .encode_to_vec(),
            "ListPodSandbox" => self.list_sandboxes(request).encode_to_vec(),
            "ListContainers" => self.list_containers(request).encode_to_vec(),
            _ => return Err(script::status(12, "unknown method")),
        })
    }
}

pub(super) async fn answer(
    head: &Parts,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    node: &Mutex<Node>,
) {
    let mut request = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        request.extend_from_slice(&data);
    }
    let request = request.get(5..).unwrap_or_default();
    let reply = lock(node).reply(head.uri.path(), request);
    let mut response = Response::new(());
    *response.headers_mut() = headers(&[("content-type", "application/grpc")]);
    // criscope may have stopped in the meantime.
    let _ = match reply {
        Ok(reply) => respond
            .send_response(response, false)
            .and_then(|mut stream| {
                stream.send_data(message(&reply), false)?;
                stream.send_trailers(script::status(0, ""))
            }),
        Err(status) => {
            response.headers_mut().extend(status);
            respond.send_response(response, true).map(drop)
        }
    };
}
