//! A pod as a kubelet makes it, and a runtime that makes it.

use http::request::Parts;

use crate::prelude::*;

/// A runtime that gives every sandbox and container an id of its own, and whose containers all failed.
pub(super) fn answers() -> impl Fn(&Parts) -> Vec<Step> + Send + Sync {
    let next = AtomicUsize::new(0);
    // The bodies of requests are not looked at, so ids are made here and handed out by the answers.
    move |head| match head.uri.path().rsplit('/').next() {
        Some("RunPodSandbox") => script::ok(&[encode(&v1::RunPodSandboxResponse {
            pod_sandbox_id: format!("sandbox-{}", next.fetch_add(1, Ordering::SeqCst)),
        })]),
        Some("CreateContainer") => script::ok(&[encode(&v1::CreateContainerResponse {
            container_id: format!("container-{}", next.fetch_add(1, Ordering::SeqCst)),
        })]),
        // Commands fail.
        Some("ExecSync") => script::ok(&[encode(&v1::ExecSyncResponse {
            exit_code: 1,
            ..Default::default()
        })]),
        Some("ContainerStatus") => script::ok(&[encode(&failed())]),
        _ => script::empty(),
    }
}

/// Answers as [`answers`].
pub(super) fn runtime(fake: &Fake) {
    fake.on(answers());
}

fn failed() -> v1::ContainerStatusResponse {
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    let now = i64::try_from(now.as_nanos()).expect("fits");
    let status = v1::ContainerStatus {
        state: v1::ContainerState::ContainerExited.into(),
        started_at: now - 1_000_000,
        finished_at: now,
        exit_code: 1,
        reason: "Error".into(),
        ..Default::default()
    };
    v1::ContainerStatusResponse {
        status: Some(status),
        ..Default::default()
    }
}

/// A pod `shop/NAME` with one container `app`.
pub(super) struct Pod {
    config: v1::PodSandboxConfig,
    sandbox: String,
    container: String,
    attempt: u32,
}

/// The one string of an answer.
fn id(answer: &[u8]) -> String {
    let decoded: v1::RunPodSandboxResponse =
        prost::Message::decode(&answer[5..]).expect("a message");
    decoded.pod_sandbox_id
}

impl Pod {
    pub(super) fn new(name: &str) -> Self {
        Self {
            config: pods::config(name),
            sandbox: String::new(),
            container: String::new(),
            attempt: 0,
        }
    }

    /// The kubelet saw it at this time, RFC 3339.
    pub(super) fn seen(mut self, time: &str) -> Self {
        let annotations = &mut self.config.annotations;
        annotations.insert("kubernetes.io/config.seen".into(), time.into());
        annotations.insert("example.com/password".into(), "hunter2".into());
        self
    }

    /// A command in its container: a probe with a timeout in seconds, a hook without.
    pub(super) async fn exec(&self, client: &Client, timeout: i64) {
        let exec = requests::exec_sync(&self.container, vec!["hunter2".into()], timeout);
        self.call(client, "ExecSync", message_of(&exec)).await;
    }

    /// Its container is stopped and started again.
    pub(super) async fn kill(&mut self, client: &Client) {
        let stop = requests::stop(&self.container, 30);
        self.call(client, "StopContainer", message_of(&stop)).await;
        self.again(client).await;
    }

    pub(super) async fn run(&mut self, client: &Client) {
        let run = requests::run_pod(self.config.clone(), "");
        let got = client
            .call(Call::runtime("RunPodSandbox", encode(&run)))
            .await;
        assert_eq!(got.code(), 0);
        self.sandbox = id(&got.data);
    }

    /// Gives the status.
    pub(super) async fn pull(&self, client: &Client) -> i32 {
        let pull = requests::pull_for("docker.io/library/app:1", self.config.clone());
        let got = client.call(Call::image("PullImage", encode(&pull))).await;
        got.code()
    }

    pub(super) async fn create_and_start(&mut self, client: &Client) {
        let create = requests::create(
            &self.sandbox,
            v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "app".into(),
                    attempt: self.attempt,
                }),
                ..Default::default()
            },
            self.config.clone(),
        );
        let got = client
            .call(Call::runtime("CreateContainer", encode(&create)))
            .await;
        assert_eq!(got.code(), 0);
        self.container = id(&got.data);
        let start = requests::start(&self.container);
        self.call(client, "StartContainer", message_of(&start))
            .await;
    }

    pub(super) async fn start(&mut self, client: &Client) {
        self.run(client).await;
        assert_eq!(self.pull(client).await, 0);
        self.create_and_start(client).await;
    }

    /// Its container starts again.
    pub(super) async fn again(&mut self, client: &Client) {
        self.attempt += 1;
        self.create_and_start(client).await;
    }

    pub(super) async fn status(&self, client: &Client) {
        let status = requests::status(&self.container, false);
        self.call(client, "ContainerStatus", message_of(&status))
            .await;
    }

    pub(super) async fn stop(&mut self, client: &Client) {
        let stop = requests::stop(&self.container, 1);
        self.call(client, "StopContainer", message_of(&stop)).await;
        let stop = requests::stop_pod(&self.sandbox);
        self.call(client, "StopPodSandbox", message_of(&stop)).await;
        let remove = requests::remove_pod(&self.sandbox);
        self.call(client, "RemovePodSandbox", message_of(&remove))
            .await;
    }

    async fn call(&self, client: &Client, method: &str, body: Bytes) {
        let got = client.call(Call::runtime(method, body)).await;
        assert_eq!(got.code(), 0, "{method}");
    }
}

fn message_of(request: &impl prost::Message) -> Bytes {
    message(&request.encode_to_vec())
}
