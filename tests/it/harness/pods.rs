//! A kubelet that starts, restarts and stops pods, and a runtime that is slow or fails where it is told to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use criscope::cri::status::Code;
use criscope::cri::v1;
use prost::Message;
use tokio_util::sync::CancellationToken;

use super::client::{Call, Client, Got};
use super::encode;
use super::fake::{Fake, lock};
use super::proxy::Proxy;
use super::script::{self, Step};

/// What the runtime does with a call.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// Answers after this time.
    Late(Duration),
    /// Fails with this code.
    Fails(Code),
    /// Never answers.
    Hangs,
    /// Answers with this framed message.
    Says(Bytes),
}

/// The manners of a runtime, by method; what is not there is answered well and at once.
#[derive(Clone, Default)]
pub(crate) struct Manners(Arc<Mutex<HashMap<String, Manner>>>);

impl Manners {
    /// Those of this runtime, from now on.
    pub(crate) fn of(fake: &Fake) -> Self {
        let manners = Self::default();
        let ids = AtomicUsize::new(1);
        let own = manners.clone();
        fake.on(move |head| {
            let method = head.uri.path().rsplit('/').next().unwrap_or_default();
            let manner = lock(&own.0).get(method).cloned();
            own.answer(method, manner, ids.fetch_add(1, Ordering::Relaxed))
        });
        manners
    }

    /// From now on this method is answered so.
    pub(crate) fn set(&self, method: &str, manner: Manner) {
        lock(&self.0).insert(method.to_owned(), manner);
    }

    /// From now on this method is answered well.
    pub(crate) fn reset(&self, method: &str) {
        lock(&self.0).remove(method);
    }

    fn answer(&self, method: &str, manner: Option<Manner>, id: usize) -> Vec<Step> {
        match manner {
            None => script::ok(&[good(method, id)]),
            Some(Manner::Late(time)) => {
                let mut steps = script::ok(&[good(method, id)]);
                steps.insert(1, wait(time));
                steps
            }
            Some(Manner::Fails(code)) => script::error(code as i32, "told to fail"),
            Some(Manner::Hangs) => vec![Step::Read, Step::Hang],
            Some(Manner::Says(message)) => script::ok(&[message]),
        }
    }
}

fn wait(time: Duration) -> Step {
    let token = CancellationToken::new();
    let over = token.clone();
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        over.cancel();
    });
    Step::Wait(token)
}

fn good(method: &str, id: usize) -> Bytes {
    match method {
        "RunPodSandbox" => encode(&v1::RunPodSandboxResponse {
            pod_sandbox_id: format!("sandbox-{id}"),
        }),
        "CreateContainer" => encode(&v1::CreateContainerResponse {
            container_id: format!("container-{id}"),
        }),
        "PullImage" => encode(&v1::PullImageResponse {
            image_ref: "sha256:1".into(),
        }),
        _ => super::message(b""),
    }
}

/// What the runtime says of a container that the kernel killed just now.
pub(crate) fn oom_killed() -> Bytes {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.expect("after 1970").as_nanos();
    encode(&v1::ContainerStatusResponse {
        status: Some(v1::ContainerStatus {
            state: v1::ContainerState::ContainerExited.into(),
            started_at: 1,
            finished_at: i64::try_from(now).expect("before 2262"),
            exit_code: 137,
            reason: "OOMKilled".into(),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// A list of pods of about this many bytes.
pub(crate) fn long_list(bytes: usize) -> Bytes {
    let item = v1::PodSandbox {
        id: "x".repeat(bytes),
        ..Default::default()
    };
    encode(&v1::ListPodSandboxResponse { items: vec![item] })
}

/// A pod that has a sandbox.
#[derive(Clone)]
pub(crate) struct Pod {
    config: v1::PodSandboxConfig,
    pub(crate) sandbox: String,
}

/// A caller that knows what a kubelet knows.
pub(crate) struct Kubelet {
    client: Client,
    image: v1::ImageSpec,
}

impl Kubelet {
    pub(crate) async fn before(proxy: &Proxy) -> Self {
        Self {
            client: proxy.client().await,
            image: v1::ImageSpec {
                image: "registry.example/app:1".into(),
                ..Default::default()
            },
        }
    }

    /// A call of the runtime service with this message.
    pub(crate) async fn call(&self, method: &str, message: &impl Message) -> Got {
        self.client
            .call(Call::runtime(method, encode(message)))
            .await
    }

    /// A call of the runtime service without a subject.
    pub(crate) async fn plain(&self, method: &str) -> Got {
        self.client.call(Call::plain(method)).await
    }

    /// Makes a sandbox for `shop/NAME`; `None` if that fails.
    pub(crate) async fn sandbox(&self, name: &str) -> Option<Pod> {
        let config = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.into(),
                namespace: "shop".into(),
                uid: format!("uid-{name}"),
                attempt: 0,
            }),
            ..Default::default()
        };
        let request = v1::RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let got = self.call("RunPodSandbox", &request).await;
        let answer: v1::RunPodSandboxResponse = decode(&got)?;
        Some(Pod {
            config,
            sandbox: answer.pod_sandbox_id,
        })
    }

    /// Pulls the image of a pod.
    pub(crate) async fn pull(&self, pod: &Pod) -> Got {
        let request = v1::PullImageRequest {
            image: Some(self.image.clone()),
            sandbox_config: Some(pod.config.clone()),
            ..Default::default()
        };
        self.client
            .call(Call::image("PullImage", encode(&request)))
            .await
    }

    /// Creates and starts the container `app`; gives its id, or `None` if that fails.
    pub(crate) async fn container(&self, pod: &Pod, attempt: u32) -> Option<String> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: pod.sandbox.clone(),
            config: Some(v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "app".into(),
                    attempt,
                }),
                image: Some(self.image.clone()),
                ..Default::default()
            }),
            sandbox_config: Some(pod.config.clone()),
        };
        let got = self.call("CreateContainer", &request).await;
        let answer: v1::CreateContainerResponse = decode(&got)?;
        let container_id = answer.container_id;
        let start = v1::StartContainerRequest {
            container_id: container_id.clone(),
        };
        let got = self.call("StartContainer", &start).await;
        (got.code() == 0).then_some(container_id)
    }

    /// Asks how a container is.
    pub(crate) async fn ask(&self, container_id: &str) -> Got {
        let request = v1::ContainerStatusRequest {
            container_id: container_id.into(),
            verbose: false,
        };
        self.call("ContainerStatus", &request).await
    }

    /// Starts a pod, with a pull or without.
    pub(crate) async fn start(&self, name: &str, pull: bool) -> Option<(Pod, String)> {
        let pod = self.sandbox(name).await?;
        if pull && self.pull(&pod).await.code() != 0 {
            return None;
        }
        let container = self.container(&pod, 0).await?;
        Some((pod, container))
    }

    /// Stops and removes a pod.
    pub(crate) async fn stop(&self, pod: &Pod) {
        let stop = v1::StopPodSandboxRequest {
            pod_sandbox_id: pod.sandbox.clone(),
        };
        self.call("StopPodSandbox", &stop).await;
        let remove = v1::RemovePodSandboxRequest {
            pod_sandbox_id: pod.sandbox.clone(),
        };
        self.call("RemovePodSandbox", &remove).await;
    }

    /// The connection itself.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

fn decode<M: Message + Default>(got: &Got) -> Option<M> {
    if got.code() != 0 {
        return None;
    }
    Some(M::decode(got.data.get(5..)?).expect("a message"))
}
