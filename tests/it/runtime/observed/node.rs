//! A daemon whose only CNI plugin is a script, and its caller.

use std::os::unix::fs::PermissionsExt as _;

use criscope::lifecycle::view::PodStory;
use prost::Message;

use crate::harness::daemon::RuntimeConfig;
use crate::harness::leaks::Traces;
use crate::prelude::*;
use crate::runtime::Scratch;
use crate::runtime::image::make::{self, Image};

/// The only pod.
const POD: &str = "web";

/// Dropping it kills the daemon, then its shims and their processes, and removes their cgroups, even if the test fails.
pub(super) struct Node {
    pub(super) proxy: Proxy,
    /// Its name is also that of the directory and of the pods' parent cgroup.
    pub(super) traces: Traces,
    pub(super) scratch: Scratch,
}

impl Node {
    /// Starts it with a plugin that runs this script for ADD.
    pub(super) async fn start(collector: &Collector, add: &str) -> Self {
        let scratch = Scratch::new();
        let dir = scratch.path();
        let name = dir.file_name().and_then(|name| name.to_str());
        let traces = Traces::of(name.expect("a name"));
        for name in ["bin", "net.d", "cni"] {
            fs::create_dir(dir.join(name)).expect("dir");
        }
        let conf = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"dawdler"}]}"#;
        fs::write(dir.join("net.d/net.conflist"), conf).expect("write");
        plugin(dir, add);
        let config = RuntimeConfig {
            root: &dir.join("root"),
            state: &dir.join("state"),
            shim: Some(crate::SHIM.as_ref()),
            handlers: &[],
            cni_conf: &dir.join("net.d"),
            cni_bins: &[&dir.join("bin")],
            cni_cache: &dir.join("cni"),
            more: "",
        };
        let config = format!(
            "[backends.main]\nkind = \"builtin\"\n{config}\
             [telemetry.otlp]\nendpoint = {:?}\n\
             [story]\nstate_dir = {:?}\n",
            collector.endpoint(),
            dir.join("story"),
        );
        let start = Start::new(crate::CRISCOPE)
            .config(&config)
            .env("OTEL_BSP_SCHEDULE_DELAY", "50");
        Self {
            proxy: start.ready().await,
            traces,
            scratch,
        }
    }

    pub(super) async fn client(&self) -> Client {
        self.proxy.client().await
    }

    /// Waits for a story of the pod that satisfies `good`.
    pub(super) async fn story(&self, what: &str, good: impl Fn(&PodStory) -> bool) -> PodStory {
        let path = format!("/debug/pods/ns/{POD}?format=json");
        until(what, || async {
            let (_, text) = self.proxy.get(&path).await;
            serde_json::from_str(&text).ok().filter(&good)
        })
        .await
    }

    pub(super) fn pod(&self) -> v1::PodSandboxConfig {
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: POD.to_owned(),
                uid: format!("uid-{POD}"),
                namespace: "ns".to_owned(),
                attempt: 0,
            }),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("/{}", self.traces.name()),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// The RunPodSandbox call.
    pub(super) fn run_call(&self) -> Call {
        let request = requests::run_pod(self.pod(), "");
        Call::runtime("RunPodSandbox", encode(&request))
    }

    pub(super) async fn run(&self, client: &Client) -> String {
        let made: v1::RunPodSandboxResponse = good(client, self.run_call()).await;
        made.pod_sandbox_id
    }

    pub(super) fn pull_call(&self, image: &str) -> Call {
        let request = requests::pull_for(image, self.pod());
        Call::image("PullImage", encode(&request))
    }

    /// Creates and starts a container that sleeps.
    pub(super) async fn start_container(&self, client: &Client, sandbox: &str, image: &str) {
        let request = requests::create(
            sandbox,
            v1::ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: "app".to_owned(),
                    attempt: 0,
                }),
                image: Some(requests::image_spec(image)),
                command: ["/bin/busybox", "sleep", "600"].map(str::to_owned).into(),
                ..Default::default()
            },
            self.pod(),
        );
        let call = Call::runtime("CreateContainer", encode(&request));
        let made: v1::CreateContainerResponse = good(client, call).await;
        let request = requests::start(&made.container_id);
        let call = Call::runtime("StartContainer", encode(&request));
        let _: v1::StartContainerResponse = good(client, call).await;
    }

    pub(super) async fn remove(&self, client: &Client, sandbox: &str) {
        let request = requests::stop_pod(sandbox);
        let call = Call::runtime("StopPodSandbox", encode(&request));
        let _: v1::StopPodSandboxResponse = good(client, call).await;
        let request = requests::remove_pod(sandbox);
        let call = Call::runtime("RemovePodSandbox", encode(&request));
        let _: v1::RemovePodSandboxResponse = good(client, call).await;
    }
}

fn plugin(dir: &Path, add: &str) {
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\nenv >{}/env.$CNI_COMMAND\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\n{add}\n",
        dir.display()
    );
    let path = dir.join("bin/dawdler");
    fs::write(&path, script).expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
}

async fn good<M: Message + Default>(client: &Client, call: Call) -> M {
    let got = client.call(call).await;
    assert_eq!(got.code(), 0, "{}", got.text());
    M::decode(&got.data[5..]).expect("a message")
}

/// Busybox in one layer, incompressible data in another.
pub(super) fn image() -> Image {
    let busybox = fs::read("/bin/busybox").expect("busybox-static is installed");
    let program = make::layer().dir("bin", 0o755).entry(
        "bin/busybox",
        tar::EntryType::Regular,
        &busybox,
        |header| header.set_mode(0o755),
    );
    let noise = make::layer().file("noise", &make::noise(7, 200_000));
    make::gzipped(&[program.end(), noise.end()])
}
