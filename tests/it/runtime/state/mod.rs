//! The files of the built-in runtime: which directories belong together, unusable records, power failures, and hanging
//! disks.

mod disk;
mod frozen;
mod identity;
mod power;
mod records;

use criscope_shim::record::start_time;

use crate::prelude::*;

/// A pod with one running container, and the container's process.
struct Running {
    pod: Pod,
    container: String,
    pid: u32,
    begun: u64,
}

impl Running {
    async fn new(kubelet: &Kubelet, name: &str) -> Self {
        let pod = kubelet.plain_pod(name).await;
        let container = kubelet.launch(&pod, idle("main")).await;
        let request = requests::status(&container, true);
        let status = kubelet.runtime.clone().container_status(request).await;
        let info = status.expect("status").into_inner().info;
        let info: Value = serde_json::from_str(&info["info"]).expect("json");
        let pid = info["pid"].as_u64().and_then(|pid| pid.try_into().ok());
        let pid = pid.expect("a pid");
        Self {
            pod,
            container,
            pid,
            begun: start_time(pid).expect("it runs"),
        }
    }

    /// Asserts that its process is still the original one.
    fn lives(&self, when: &str) {
        assert_eq!(start_time(self.pid), Some(self.begun), "{when}");
    }

    /// Asserts that it runs, and that exec works.
    async fn is_well(&self, kubelet: &Kubelet, when: &str) {
        self.lives(when);
        assert_eq!(kubelet.says(&self.container, "echo well").await, "well");
        let state = kubelet.pod_status(&self.pod).await.state();
        assert!(state == v1::PodSandboxState::SandboxReady, "{when}");
    }

    fn sandbox_record(&self, daemon: &Daemon) -> PathBuf {
        let dir = daemon.root().join("root/sandboxes").join(&self.pod.id);
        dir.join("record.json")
    }

    fn container_record(&self, daemon: &Daemon) -> PathBuf {
        let dir = daemon.root().join("root/containers").join(&self.container);
        dir.join("record.json")
    }
}

/// Starts a daemon that is expected to refuse to start; returns its log.
async fn refused(daemon: &Daemon) -> String {
    let (status, log) = daemon.spawn().ended().await;
    let log = log.join("\n");
    assert_eq!(status.code(), Some(78), "{log}");
    log
}

fn read(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("json")
}

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value = read(path);
    change(&mut value);
    fs::write(path, value.to_string()).expect("record");
}
