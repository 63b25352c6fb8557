//! Plugins of the Node Resource Interface against the program, with runc: adjustments take effect, events arrive, and a plugin
//! that fails does no more harm than it should.

mod classes;
mod effects;
mod failures;
mod finished;
mod life;
mod limits;

use criscope_nri::api::{
    ContainerAdjustment, ContainerRequest, CreateContainerResponse, Event, PodRequest,
};
use criscope_nri::{PluginReply, PluginStub};
use prost::Message as _;
use tokio::sync::mpsc;

use crate::prelude::*;

/// A daemon that plugins can connect to.
async fn daemon() -> (Daemon, Kubelet) {
    daemon_with("").await
}

/// The same with further settings of `[runtime.nri]`.
async fn daemon_with(more: &str) -> (Daemon, Kubelet) {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    configure(&mut daemon, more);
    let kubelet = daemon.serve().await;
    (daemon, kubelet)
}

fn configure(daemon: &mut Daemon, more: &str) {
    let (socket, root) = (socket(daemon), daemon.root());
    daemon.configure(&format!(
        "[runtime.nri]\nenable = true\nsocket_path = {socket:?}\nplugin_path = {:?}\nplugin_config_path = {:?}\n{more}\n",
        root.join("plugins"),
        root.join("plugins.conf.d"),
    ));
}

fn socket(daemon: &Daemon) -> PathBuf {
    daemon.state().join("nri/nri.sock")
}

/// What a plugin was told: the method, and the ids of pod and container.
type Told = (String, String, String);

/// A plugin that notes what it is told.
struct Plugin {
    end: PluginStub,
    told: mpsc::Receiver<Told>,
}

impl Plugin {
    /// Connects, and waits until it is synchronized.
    async fn new(
        daemon: &Daemon,
        index: &str,
        events: &[Event],
        mut serve: impl FnMut(&str, Bytes) -> PluginReply + Send + 'static,
    ) -> Self {
        let (note, mut told) = mpsc::channel(1024);
        let noted = move |method: &str, payload: Bytes| {
            let (pod, container) = match ContainerRequest::decode(payload.clone()) {
                Ok(request) => (
                    request.pod.unwrap_or_default().id,
                    request.container.unwrap_or_default().id,
                ),
                Err(_) => {
                    let request = PodRequest::decode(payload.clone()).unwrap_or_default();
                    (request.pod.unwrap_or_default().id, String::new())
                }
            };
            let _ = note.try_send((method.to_owned(), pod, container));
            serve(method, payload)
        };
        let path = socket(daemon);
        let (end, registered) = PluginStub::connect(&path, index, "test", events, noted)
            .await
            .expect("connects");
        registered.expect("registers");
        assert_eq!(told.recv().await.expect("told").0, "Synchronize");
        // It takes part once the daemon has its answer.
        let connected = format!("{index}-test");
        let line = |line: &Value| {
            line["event"] == "runtime.nri"
                && line["nri.plugin"] == *connected
                && line["msg"]
                    .as_str()
                    .is_some_and(|m| m.contains("synchronized"))
        };
        daemon
            .program()
            .wait_line("a registered plugin", line)
            .await;
        Self { end, told }
    }

    /// What it is told next.
    async fn next(&mut self) -> Told {
        let next = tokio::time::timeout(PATIENCE, self.told.recv());
        next.await.expect("in time").expect("told")
    }
}

/// A plugin that adjusts every container in the same way.
async fn adjusting(daemon: &Daemon, index: &str, adjust: ContainerAdjustment) -> Plugin {
    let adjust = Arc::new(adjust);
    let serve = move |method: &str, _| match method {
        "CreateContainer" => PluginReply::message(&CreateContainerResponse {
            adjust: Some(ContainerAdjustment::clone(&adjust)),
            ..Default::default()
        }),
        _ => PluginReply::empty(),
    };
    Plugin::new(daemon, index, &[Event::CreateContainer], serve).await
}

/// UpdatePodSandboxResources, of which plugins may refuse an update.
async fn resize(kubelet: &Kubelet, pod: &Pod) -> Result<(), Status> {
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: pod.id.clone(),
        resources: Some(v1::LinuxContainerResources {
            memory_limit_in_bytes: 64 << 20,
            ..Default::default()
        }),
        ..Default::default()
    };
    let mut runtime = kubelet.runtime.clone();
    runtime.update_pod_sandbox_resources(request).await?;
    Ok(())
}
