//! A pod with a container, its sessions, and checks for leftovers.

use super::{WAYS, kubelet_says_hello};
use crate::prelude::*;
use crate::streaming::client::Client;

/// A pod with one container, and its resource usage without sessions.
pub(super) struct Node {
    pub(super) daemon: Daemon,
    pub(super) kubelet: Kubelet,
    pub(super) pod: Pod,
    pub(super) container: String,
    quiet: BTreeMap<&'static str, usize>,
    idle: Vec<String>,
}

impl Node {
    pub(super) async fn with(config: v1::ContainerConfig) -> Self {
        let (daemon, kubelet, pod) = node_with_pod("sessions").await;
        let container = kubelet.launch(&pod, config).await;
        let mut node = Self {
            daemon,
            kubelet,
            pod,
            container,
            quiet: BTreeMap::new(),
            idle: Vec::new(),
        };
        // Warm up what is created at first use.
        kubelet_says_hello(&node).await;
        let client = Client::connect(&node.exec("true", "oe").await, WAYS[0], "oe").await;
        client.finish().await;
        node.no_session_is_left().await;
        node.idle = node.processes();
        node.quiet = node.descriptors();
        node
    }

    /// The URL for running a script; letters select its streams, `t` a terminal.
    pub(super) async fn exec(&self, script: &str, streams: &str) -> String {
        let command = requests::shell_command(script);
        self.kubelet
            .exec_url(&self.container, command, streams)
            .await
    }

    /// The URL for attaching to the container, with letters as in `exec`.
    pub(super) async fn attach(&self, streams: &str) -> String {
        self.kubelet.attach_url(&self.container, streams).await
    }

    pub(super) async fn forward(&self) -> String {
        self.kubelet.forward_url(&self.pod.id).await
    }

    /// The arguments of additional processes in the container, sorted.
    pub(super) fn processes(&self) -> Vec<String> {
        let all = leaks::processes(self.daemon.name()).into_iter();
        let inside = all.map(|(_, what)| what.trim().to_owned());
        let mut inside: Vec<_> = inside
            .filter(|what| !what.contains("criscope-shim"))
            .collect();
        inside.sort();
        inside
    }

    pub(super) fn shim(&self) -> Pid {
        self.daemon.shim(&self.pod.id)
    }

    /// The directory of the pod, with the socket of its shim.
    pub(super) fn pod_dir(&self) -> PathBuf {
        self.daemon.state().join("state/pods").join(&self.pod.id)
    }

    /// Waits for the log line of a session of this kind with this outcome.
    pub(super) async fn logged(&self, kind: &str, outcome: &str) {
        let is_it = |line: &Value| {
            line["event"] == "stream.session"
                && line["stream.kind"] == kind
                && line["stream.outcome"] == outcome
        };
        let what = format!("{kind}: {outcome}");
        self.daemon.program().wait_line(&what, is_it).await;
    }

    /// The number of open files of the daemon and the shim.
    fn descriptors(&self) -> BTreeMap<&'static str, usize> {
        let count = |pid: i32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
            open.count()
        };
        let daemon = self.daemon.program().pid().as_raw();
        BTreeMap::from([
            ("daemon", count(daemon)),
            ("shim", count(self.shim().as_raw())),
        ])
    }

    /// Memory of the daemon and the shim, in bytes.
    pub(super) fn memory(&self) -> usize {
        let resident = |pid: i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
            let line = status.lines().find(|line| line.starts_with("VmRSS:"));
            let line = line.expect("resident memory");
            let number = line.split_whitespace().nth(1).expect("a number");
            number.parse::<usize>().expect("a number") << 10
        };
        resident(self.daemon.program().pid().as_raw()) + resident(self.shim().as_raw())
    }

    /// The number of open sessions in the metrics.
    pub(super) async fn open(&self) -> f64 {
        let scrape = self.daemon.program().scrape().await;
        scrape.metric("criscope_stream_sessions").sum()
    }

    /// Waits until this number of sessions are open.
    pub(super) async fn are_open(&self, count: usize) {
        until_true(&format!("{count} open sessions"), async || {
            self.open().await == count as f64
        })
        .await;
    }

    /// The number of open sessions of this pod on the live page.
    pub(super) async fn told(&self) -> usize {
        let live = self.daemon.program().json("/").await;
        let told = live["sessions"].as_array().expect("a list").iter();
        told.filter(|it| it["pod"] == "sessions").count()
    }

    pub(super) async fn no_session_is_left(&self) {
        until_true("the end of all sessions", async || {
            self.open().await == 0.0 && self.told().await == 0
        })
        .await;
    }

    /// Waits until no session has left a process, a descriptor, or a metric.
    pub(super) async fn is_quiet(&self) {
        self.no_session_is_left().await;
        let what = format!("only {:?} to run", self.idle);
        until_true(&what, async || self.processes() == self.idle).await;
        until_true(&format!("descriptors as in {:?}", self.quiet), async || {
            let now = self.descriptors();
            now.iter().all(|(of, count)| *count <= self.quiet[of])
        })
        .await;
    }

    pub(super) async fn end(self) {
        self.kubelet.end(&self.pod).await;
        self.daemon.assert_clean();
    }
}
