//! A blocked containerd: the diagnosis names it and what blocks it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::explained::Kubelet;
use super::{before, end};
use crate::harness::containerd::Containerd;
use crate::harness::process::halt;
use crate::harness::proxy::Proxy;
use crate::harness::until;

const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until the story of a pod contains these words.
async fn says(proxy: &Proxy, pod: &str, words: &str) {
    let path = format!("/debug/pods/shop/{pod}?format=json");
    until(words, || async {
        let (_, text) = proxy.get(&path).await;
        text.contains(words).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_containerd_is_the_cause() {
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "halted").await;
    let pid = Pid::from_raw(containerd.pid().cast_signed());
    halt(pid);
    let running = kubelet.sandbox(DEADLINE);
    let looking = async {
        says(&proxy, "halted", "now in containerd, stopped by a signal").await;
        kill(pid, Signal::SIGCONT).expect("continue");
    };
    let (sandbox, ()) = tokio::join!(running, looking);
    let sandbox = sandbox.expect("a sandbox");
    // A short deadline: the runtime alone is the cause.
    halt(pid);
    let pulling = kubelet.pull("127.0.0.1:1/nothing:1");
    let looking = async {
        says(&proxy, "halted", "now in containerd, stopped by a signal").await;
        kill(pid, Signal::SIGCONT).expect("continue");
    };
    let (pulled, ()) = tokio::join!(pulling, looking);
    assert!(pulled.is_err(), "there is no registry");
    kubelet.remove(&sandbox).await;
    proxy.stop().await;
    end(containerd);
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
    let containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let mut kubelet = Kubelet::on(&proxy, &containerd, "frozen").await;
    let sandbox = kubelet.sandbox(DEADLINE).await.expect("a sandbox");
    let shims = fs::read_dir("/proc").expect("proc").filter_map(|entry| {
        let entry = entry.ok()?;
        let text = fs::read(entry.path().join("cmdline")).ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_shim = text.contains("containerd-shim") && text.contains(&sandbox);
        is_shim.then(|| entry.file_name().to_string_lossy().into_owned())
    });
    let shims: Vec<_> = shims.collect();
    let [shim] = &shims[..] else {
        panic!("one shim: {shims:?}");
    };
    let cgroup = Cgroup::new(containerd.name());
    fs::write(cgroup.0.join("cgroup.procs"), shim).expect("move");
    cgroup.freeze(true);
    let stopping = kubelet.remove(&sandbox);
    let looking = async {
        let words = "now in containerd-shim-runc-v2, frozen by its cgroup";
        says(&proxy, "frozen", words).await;
        cgroup.freeze(false);
    };
    tokio::join!(stopping, looking);
    until("the end of the shim", || async {
        (!Path::new("/proc").join(shim).exists()).then_some(())
    })
    .await;
    for dir in [&*cgroup.0, cgroup.0.parent().expect("parent")] {
        // The parent belongs to containerd if it has other children.
        let _ = fs::remove_dir(dir);
    }
    proxy.stop().await;
    end(containerd);
}
