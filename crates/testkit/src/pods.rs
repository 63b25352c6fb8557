//! Pods of a fake runtime: the requests with which a kubelet starts, restarts and stops them, and a runtime in which
//! each method can be slow or fail.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use criscope::cri::status::Code;
use criscope::cri::v1;
use criscope::units::rfc3339;
use criscope::units::times::UnixMicros;
use prost::Message;
use tokio_util::sync::CancellationToken;

use crate::client::{Call, Client, Got};
use crate::encode;
use crate::fake::Fake;
use crate::lock;
use crate::proxy::Proxy;
use crate::requests;
use crate::script::{self, Step};

/// How the runtime answers a method.
#[derive(Clone, Debug)]
pub enum Manner {
    /// Successfully, after this delay.
    Late(Duration),
    /// With this code.
    Fails(Code),
    /// Never.
    Hangs,
    /// With this framed message.
    Says(Bytes),
}

/// The behaviour of a runtime by method. Other methods succeed immediately.
#[derive(Clone, Default)]
pub struct Manners(Arc<Mutex<HashMap<String, Manner>>>);

impl Manners {
    /// Installs itself as the handler of this runtime.
    pub fn of(fake: &Fake) -> Self {
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

    /// Sets the behaviour of a method.
    pub fn set(&self, method: &str, manner: Manner) {
        lock(&self.0).insert(method.to_owned(), manner);
    }

    /// Makes a method succeed again.
    pub fn reset(&self, method: &str) {
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

/// The status of a container that the kernel has just killed.
pub fn oom_killed() -> Bytes {
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

/// The configuration of the pod `shop/NAME` with the uid `uid-NAME`.
pub fn config(name: &str) -> v1::PodSandboxConfig {
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            namespace: "shop".into(),
            uid: format!("uid-{name}"),
            attempt: 0,
        }),
        ..Default::default()
    }
}

/// `RunPodSandbox` of the pod `shop/NAME`.
pub fn run(name: &str) -> Call {
    run_with(config(name), "")
}

/// `RunPodSandbox` of a pod with a runtime handler.
pub fn run_with(config: v1::PodSandboxConfig, handler: &str) -> Call {
    let request = requests::run_pod(config, handler);
    Call::runtime("RunPodSandbox", encode(&request))
}

/// `CreateContainer` of the container `app` in `sandbox-1`.
pub fn create(sandbox: v1::PodSandboxConfig, attempt: u32, image: Option<&str>) -> Call {
    let image = image.map(requests::image_spec);
    let request = requests::create(
        "sandbox-1",
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: "app".into(),
                attempt,
            }),
            image,
            ..Default::default()
        },
        sandbox,
    );
    Call::runtime("CreateContainer", encode(&request))
}

/// `StartContainer` of `container-1`.
pub fn start() -> Call {
    let request = requests::start("container-1");
    Call::runtime("StartContainer", encode(&request))
}

/// A runtime that creates `sandbox-1` and `container-1`.
pub fn runtime() -> Fake {
    let fake = Fake::new();
    fake.on(|head| match head.uri.path().rsplit('/').next() {
        Some(method @ ("RunPodSandbox" | "CreateContainer")) => script::ok(&[good(method, 1)]),
        _ => script::empty(),
    });
    fake
}

/// A list of pods of about this many bytes.
pub fn long_list(bytes: usize) -> Bytes {
    let item = v1::PodSandbox {
        id: "x".repeat(bytes),
        ..Default::default()
    };
    encode(&v1::ListPodSandboxResponse { items: vec![item] })
}

/// A pod with its sandbox.
#[derive(Clone)]
pub struct Pod {
    config: v1::PodSandboxConfig,
    pub sandbox: String,
}

/// A client that keeps state like a kubelet.
pub struct Kubelet {
    client: Client,
    image: v1::ImageSpec,
}

impl Kubelet {
    pub async fn before(proxy: &Proxy) -> Self {
        Self {
            client: proxy.client().await,
            image: requests::image_spec("registry.example/app:1"),
        }
    }

    /// A call of the runtime service with this message.
    pub async fn call(&self, method: &str, message: &impl Message) -> Got {
        self.client
            .call(Call::runtime(method, encode(message)))
            .await
    }

    /// A call of the runtime service without a pod.
    pub async fn plain(&self, method: &str) -> Got {
        self.client.call(Call::plain(method)).await
    }

    /// Creates the sandbox of `shop/NAME`; returns `None` on failure.
    pub async fn sandbox(&self, name: &str) -> Option<Pod> {
        self.sandbox_again(name, 0).await
    }

    /// The same with a later attempt.
    pub async fn sandbox_again(&self, name: &str, attempt: u32) -> Option<Pod> {
        let mut config = config(name);
        config.metadata.as_mut()?.attempt = attempt;
        let seen = rfc3339(UnixMicros::now());
        let key = "kubernetes.io/config.seen".to_owned();
        config.annotations.insert(key, seen);
        let request = requests::run_pod(config.clone(), "");
        let got = self.call("RunPodSandbox", &request).await;
        let answer: v1::RunPodSandboxResponse = decode(&got)?;
        Some(Pod {
            config,
            sandbox: answer.pod_sandbox_id,
        })
    }

    /// Pulls the image of a pod.
    pub async fn pull(&self, pod: &Pod) -> Got {
        let request = v1::PullImageRequest {
            image: Some(self.image.clone()),
            sandbox_config: Some(pod.config.clone()),
            ..Default::default()
        };
        self.client
            .call(Call::image("PullImage", encode(&request)))
            .await
    }

    /// Creates and starts the container `app`; returns its id, or `None` on failure.
    pub async fn container(&self, pod: &Pod, attempt: u32) -> Option<String> {
        let request = requests::create(
            &pod.sandbox,
            v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "app".into(),
                    attempt,
                }),
                image: Some(self.image.clone()),
                ..Default::default()
            },
            pod.config.clone(),
        );
        let got = self.call("CreateContainer", &request).await;
        let answer: v1::CreateContainerResponse = decode(&got)?;
        let container_id = answer.container_id;
        let start = requests::start(&container_id);
        let got = self.call("StartContainer", &start).await;
        (got.code() == 0).then_some(container_id)
    }

    /// Gets the status of a container.
    pub async fn ask(&self, container_id: &str) -> Got {
        let request = requests::status(container_id, false);
        self.call("ContainerStatus", &request).await
    }

    /// Starts a pod, optionally with an image pull.
    pub async fn start(&self, name: &str, pull: bool) -> Option<(Pod, String)> {
        let pod = self.sandbox(name).await?;
        if pull && self.pull(&pod).await.code() != 0 {
            return None;
        }
        let container = self.container(&pod, 0).await?;
        Some((pod, container))
    }

    /// Stops and removes a pod.
    pub async fn stop(&self, pod: &Pod) {
        let stop = requests::stop_pod(&pod.sandbox);
        self.call("StopPodSandbox", &stop).await;
        let remove = requests::remove_pod(&pod.sandbox);
        self.call("RemovePodSandbox", &remove).await;
    }

    /// The connection itself.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

fn decode<M: Message + Default>(got: &Got) -> Option<M> {
    if got.code() != 0 {
        return None;
    }
    Some(M::decode(got.data.get(5..)?).expect("a message"))
}
