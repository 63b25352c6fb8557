//! A blocked containerd: the diagnosis names it and what blocks it.

use super::Node;
use super::explained::pull;
use crate::prelude::*;

/// Waits until the story of a pod contains these words.
async fn says(proxy: &Proxy, pod: &str, words: &str) {
    let path = format!("/debug/pods/shop/{pod}");
    until_true(words, async || {
        proxy.json(&path).await.to_string().contains(words)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_containerd_is_the_cause() {
    let node = Node::new().await;
    let (proxy, kubelet) = (&node.proxy, &node.kubelet);
    let pid = Pid::from_raw(node.containerd.pid().cast_signed());
    halt(pid);
    let running = kubelet.run(node.shop_pod("halted"));
    let looking = async {
        says(proxy, "halted", "now in containerd, stopped by a signal").await;
        kill(pid, Signal::SIGCONT).expect("continue");
    };
    let (pod, ()) = tokio::join!(running, looking);
    // A short deadline: the runtime alone is the cause.
    halt(pid);
    let pulling = pull(kubelet, &pod.config, "127.0.0.1:1/nothing:1");
    let looking = async {
        says(proxy, "halted", "now in containerd, stopped by a signal").await;
        kill(pid, Signal::SIGCONT).expect("continue");
    };
    let (pulled, ()) = tokio::join!(pulling, looking);
    assert!(pulled.is_err(), "there is no registry");
    kubelet.end(&pod).await;
    node.end().await;
}

/// A cgroup with a freezer, v1 or v2.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let freezer = root.join("freezer");
        let dir = if freezer.exists() {
            freezer
        } else {
            root.to_owned()
        };
        let dir = dir.join(name).join("held");
        fs::create_dir_all(&dir).expect("cgroup");
        Self(dir)
    }

    fn freeze(&self, frozen: bool) {
        let v1 = self.0.join("freezer.state");
        let written = match (v1.exists(), frozen) {
            (true, true) => fs::write(v1, "FROZEN"),
            (true, false) => fs::write(v1, "THAWED"),
            (false, _) => fs::write(self.0.join("cgroup.freeze"), u8::from(frozen).to_string()),
        };
        written.expect("freezer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_shim_is_the_cause() {
    let node = Node::new().await;
    let pod = node.kubelet.run(node.shop_pod("frozen")).await;
    let shims = fs::read_dir("/proc").expect("proc").filter_map(|entry| {
        let entry = entry.ok()?;
        let text = fs::read(entry.path().join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_shim = text.contains("containerd-shim") && text.contains(&pod.id);
        is_shim.then(|| entry.file_name().to_string_lossy().into_owned())
    });
    let shims: Vec<_> = shims.collect();
    let [shim] = &shims[..] else {
        panic!("one shim: {shims:?}");
    };
    let cgroup = Cgroup::new(node.containerd.name());
    fs::write(cgroup.0.join("cgroup.procs"), shim).expect("move");
    cgroup.freeze(true);
    let stopping = node.kubelet.end(&pod);
    let looking = async {
        let words = "now in containerd-shim-runc-v2, frozen by its cgroup";
        says(&node.proxy, "frozen", words).await;
        cgroup.freeze(false);
    };
    tokio::join!(stopping, looking);
    until_true("the end of the shim", async || {
        !Path::new("/proc").join(shim).exists()
    })
    .await;
    for dir in [&*cgroup.0, cgroup.0.parent().expect("parent")] {
        // The parent belongs to containerd if it has other children.
        let _ = fs::remove_dir(dir);
    }
    node.end().await;
}
