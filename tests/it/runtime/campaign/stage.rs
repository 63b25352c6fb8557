//! The healthy pod, the calls about it, and the daemon's resource usage meanwhile.

use std::future::Future;

use tokio::time::{sleep, timeout};

use crate::prelude::*;

/// Maximum duration of a call about the healthy pod. The kubelet gives up after two minutes; an emulated machine under load
/// needs some seconds.
const ANSWER: Duration = Duration::from_secs(30);

/// Limits on the daemon's additional resource usage during an attack.
pub(super) struct Bounds {
    /// Peak of resident memory, in bytes.
    memory: usize,
    /// Open descriptors.
    descriptors: usize,
    /// Threads, the pool for blocking work included.
    threads: usize,
}

/// The bounds of every attack.
pub(super) const BOUNDS: Bounds = Bounds {
    memory: 80 << 20,
    descriptors: 256,
    threads: 96,
};

/// A daemon with a healthy pod.
pub(super) struct Stage {
    pub(super) daemon: Daemon,
    pub(super) kubelet: Kubelet,
    pod: Pod,
    container: String,
}

/// Resource usage of the daemon.
#[derive(Debug)]
struct Usage {
    memory: usize,
    descriptors: usize,
    threads: usize,
}

impl Usage {
    fn of(pid: Pid) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let number = |name: &str| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name));
            let value = value.expect("a line").trim_start_matches(':').trim();
            let digits = value.trim_end_matches(" kB");
            digits.parse::<usize>().expect("a number")
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
        Self {
            memory: number("VmHWM") << 10,
            descriptors: descriptors.count(),
            threads: number("Threads"),
        }
    }

    fn assert_within(&self, before: &Self) {
        let more = |now: usize, then: usize| now.saturating_sub(then);
        let memory = more(self.memory, before.memory);
        assert!(memory <= BOUNDS.memory, "{} MiB more", memory >> 20);
        let descriptors = more(self.descriptors, before.descriptors);
        assert!(descriptors <= BOUNDS.descriptors, "{self:?}, {before:?}");
        let threads = more(self.threads, before.threads);
        assert!(threads <= BOUNDS.threads, "{self:?}, {before:?}");
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::of(Daemon::new(crate::CRISCOPE).await).await
    }

    /// Uses a running daemon.
    pub(super) async fn of(daemon: Daemon) -> Self {
        let kubelet = Kubelet::of(&daemon).await;
        let pod = kubelet.plain_pod("healthy").await;
        let container = kubelet.launch(&pod, idle("main")).await;
        let stage = Self {
            daemon,
            kubelet,
            pod,
            container,
        };
        // Warm up what is allocated at the first call of each kind.
        stage.round().await;
        stage
    }

    /// Runs an attack, and calls about the healthy pod continuously until it is over.
    pub(super) async fn withstands<T>(&self, attack: impl Future<Output = T>) -> T {
        let pid = self.daemon.program().pid();
        // Reset the peak (proc(5), clear_refs).
        fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("clear_refs");
        let before = Usage::of(pid);
        let healthy = async {
            loop {
                self.round().await;
                // The pace of the calls; the attack is to have the processor, too.
                sleep(Duration::from_millis(20)).await;
            }
        };
        let bounded = async {
            loop {
                Usage::of(pid).assert_within(&before);
                sleep(Duration::from_millis(20)).await;
            }
        };
        let result = tokio::select! {
            result = attack => result,
            () = healthy => unreachable!("endless"),
            () = bounded => unreachable!("endless"),
        };
        // The aftermath must not block calls either.
        self.round().await;
        Usage::of(pid).assert_within(&before);
        // Descriptors that the attack opened are closed again.
        until_true("descriptors to be closed", async || {
            let now = Usage::of(pid).descriptors;
            now <= before.descriptors + 16
        })
        .await;
        result
    }

    /// Removes the healthy pod; nothing may be left of any pod.
    pub(super) async fn end(self) {
        self.kubelet.end(&self.pod).await;
        self.daemon.assert_clean();
    }

    /// Every call that a kubelet makes about a running pod. An attack that may be short calls this itself.
    pub(super) async fn round(&self) {
        let mut runtime = self.kubelet.runtime.clone();
        let request = v1::StatusRequest::default();
        answered("Status", runtime.status(request)).await;
        let request = v1::ListPodSandboxRequest::default();
        let list = answered("ListPodSandbox", runtime.list_pod_sandbox(request)).await;
        assert!(list.items.iter().any(|pod| pod.id == self.pod.id));
        let request = v1::ListContainersRequest::default();
        let list = answered("ListContainers", runtime.list_containers(request)).await;
        assert!(list.containers.iter().any(|each| each.id == self.container));
        let request = requests::pod_status(&self.pod.id, true);
        answered("PodSandboxStatus", runtime.pod_sandbox_status(request)).await;
        let request = requests::stats(&self.container);
        answered("ContainerStats", runtime.container_stats(request)).await;
        let request = v1::ListContainerStatsRequest::default();
        answered("ListContainerStats", runtime.list_container_stats(request)).await;
        let request = requests::exec_sync(&self.container, words("/bin/echo well"), 0);
        let said = answered("ExecSync", runtime.exec_sync(request)).await;
        assert_eq!(said.stdout, b"well\n");
    }
}

async fn answered<T>(
    what: &str,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> T {
    let answer = timeout(ANSWER, call).await;
    let answer = answer.unwrap_or_else(|_| panic!("{what} of the healthy pod timed out"));
    let answer = answer.unwrap_or_else(|error| panic!("{what} of the healthy pod: {error}"));
    answer.into_inner()
}
