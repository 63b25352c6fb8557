//! Scans of a simulated `/proc`, and of real processes.

mod blocked;
mod order;
mod owners;
mod real;
mod running;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::clock::{self, ClockReading};
use super::observations::{Observation, WorkKind};
use super::proc::ProcFs;
use super::scan::{ProcessScanner, ScanResult};
use super::upstream::Upstream;
use criscope_cri::Method;
use criscope_cri::call::Call;
use criscope_cri::subject::{PodIdentity, Subject};

const CANARY: &str = "hunter2";

/// A `/proc` with the first process and a runtime's daemon.
struct Node {
    dir: TempDir,
}

/// The daemon's socket.
const SOCKET: &str = "/run/containerd/containerd.sock";

/// Number of the daemon's process.
const DAEMON: u32 = 100;

fn ticks_now() -> u64 {
    let now = ClockReading::now().expect("clock").boot;
    u64::try_from(now.as_nanos() / clock::tick().as_nanos()).expect("small")
}

impl Node {
    fn new() -> Self {
        let node = Self {
            dir: tempfile::tempdir().expect("dir"),
        };
        node.add(1, "systemd", 0, 1);
        node.add(DAEMON, "containerd", 1, 50);
        node
    }

    fn path(&self, pid: u32) -> PathBuf {
        self.dir.path().join(pid.to_string())
    }

    fn add(&self, pid: u32, comm: &str, ppid: u32, start: u64) {
        fs::create_dir_all(self.path(pid)).expect("dir");
        let zeros = "0 ".repeat(17);
        let text = format!("{pid} ({comm}) S {ppid} {zeros}{start} 0 0\n");
        fs::write(self.path(pid).join("stat"), text).expect("stat");
        self.environ(pid, "PATH=/bin\0");
        self.cmdline(pid, &[comm]);
    }

    fn environ(&self, pid: u32, text: impl AsRef<[u8]>) {
        fs::write(self.path(pid).join("environ"), text).expect("environ");
    }

    fn cmdline(&self, pid: u32, args: &[&str]) {
        let mut text = args.join("\0");
        text.push('\0');
        fs::write(self.path(pid).join("cmdline"), text).expect("cmdline");
    }

    /// A CNI plugin that has just started.
    fn plugin(&self, pid: u32, name: &str, ppid: u32, verb: &str, sandbox: &str, pod: &str) {
        self.add(pid, name, ppid, ticks_now());
        self.environ(
            pid,
            format!(
                "SECRET={CANARY}\0CNI_COMMAND={verb}\0CNI_CONTAINERID={sandbox}\0\
                 CNI_ARGS=K8S_POD_NAMESPACE=shop;X={CANARY};K8S_POD_NAME={pod};K8S_POD_UID=uid-{pod}\0"
            ),
        );
        symlink(format!("/opt/cni/bin/{name}"), self.path(pid).join("exe")).expect("exe");
    }

    fn runtime(&self, pid: u32, ppid: u32, args: &[&str]) {
        self.add(pid, "runc", ppid, ticks_now());
        self.cmdline(pid, args);
    }

    fn end(&self, pid: u32) {
        fs::remove_dir_all(self.path(pid)).expect("remove");
    }

    fn scanner(&self) -> ProcessScanner {
        let mut scanner = ProcessScanner::new(ProcFs::new(self.dir.path()));
        assert!(scanner.sees_others());
        scanner.set_upstreams(vec![Upstream {
            backend: "main".into(),
            socket: SOCKET.into(),
            pid: Some(DAEMON),
            is_containerd: true,
        }]);
        scanner
    }
}

/// A call that has just arrived, for this pod, sandbox and container.
fn call(seq: u64, method: Method, pod: &str, ids: [Option<&str>; 2]) -> Arc<Call> {
    let mut call = Call::example(method);
    call.seq = seq;
    let identity = PodIdentity {
        namespace: "shop".into(),
        name: pod.into(),
        uid: format!("uid-{pod}").into(),
        attempt: 0,
    };
    let subject = Subject {
        pod: Some(Arc::new(identity)),
        sandbox_id: ids[0].map(Arc::from),
        container_id: ids[1].map(Arc::from),
        ..Subject::default()
    };
    call.subject.set(subject).expect("once");
    Arc::new(call)
}

fn observations_of(found: &ScanResult, seq: u64) -> Vec<Observation> {
    let calls = found.calls.iter();
    calls
        .filter(|(s, _)| *s == seq)
        .flat_map(|(_, observations)| observations.clone())
        .collect()
}

fn names(found: &ScanResult, seq: u64) -> Vec<String> {
    observations_of(found, seq)
        .iter()
        .map(Observation::phrase)
        .collect()
}

#[test]
fn a_plugin_is_found_for_the_pod_it_works_for() {
    let node = Node::new();
    let calls = [
        call(1, Method::RunPodSandbox, "cart", [None; 2]),
        call(2, Method::RunPodSandbox, "till", [None; 2]),
    ];
    node.plugin(200, "calico", DAEMON, "ADD", "s1", "cart");
    node.plugin(201, "calico-ipam", 200, "ADD", "s1", "cart");
    node.add(202, "iptables", 201, ticks_now());
    node.plugin(210, "bridge", DAEMON, "ADD", "s2", "till");
    let mut scanner = node.scanner();
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(
        names(&found, 1),
        ["in the CNI plugin calico (calico-ipam/iptables)"]
    );
    assert_eq!(names(&found, 2), ["in the CNI plugin bridge"]);
    let new: Vec<_> = found
        .new
        .iter()
        .map(|(seq, work, name)| (*seq, *work, &**name))
        .collect();
    assert_eq!(
        new,
        [(1, WorkKind::Cni, "calico"), (2, WorkKind::Cni, "bridge")]
    );
    assert!(!format!("{scanner:?} {found:?}").contains(CANARY));

    // In sequence, in the order in which they began, without duplicates.
    node.end(202);
    node.end(201);
    node.end(200);
    node.plugin(203, "portmap", DAEMON, "ADD", "s1", "cart");
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(
        names(&found, 1),
        [
            "in the CNI plugin calico (calico-ipam/iptables)",
            "in the CNI plugin portmap"
        ]
    );
    assert_eq!(found.new.len(), 1);
    let [first, second] = &observations_of(&found, 1)[..] else {
        panic!("two")
    };
    assert!(first.last_seen < second.last_seen);
    assert!(first.began >= calls[0].started_at);
}

#[test]
fn what_was_learnt_from_a_plugin_helps_to_know_the_runtime() {
    let node = Node::new();
    let calls = [
        call(1, Method::RunPodSandbox, "cart", [None; 2]),
        call(2, Method::RunPodSandbox, "till", [None; 2]),
        call(3, Method::StartContainer, "bank", [Some("s3"), Some("c3")]),
    ];
    let mut scanner = node.scanner();
    node.plugin(200, "calico", DAEMON, "ADD", "s1", "cart");
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 1).len(), 1);
    node.end(200);
    let now = ticks_now();
    // Both sandboxes are created at the same time; one id is known by now, so the process belongs to the other.
    for (pid, id) in [(300, "s1"), (310, "s2"), (320, "c3")] {
        let bundle = format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}");
        node.add(pid, "containerd-shim", 1, now);
        node.cmdline(
            pid,
            &[
                "containerd-shim-runc-v2",
                "-namespace",
                "k8s.io",
                "-id",
                id,
                "-address",
                SOCKET,
            ],
        );
        node.runtime(
            pid + 1,
            pid,
            &[
                "runc", "--root", "/run/x", "create", "--bundle", &bundle, id,
            ],
        );
    }
    node.add(302, "runc:[2:INIT]", 301, now);
    node.add(312, "nvidia-ctk", 311, now);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 1)[1], "in the OCI runtime runc (create)");
    assert_eq!(
        names(&found, 2),
        ["in the OCI runtime runc (create/nvidia-ctk)"]
    );
    assert_eq!(names(&found, 3), ["in the OCI runtime runc (create)"]);
}

#[test]
fn what_fits_several_calls_is_attributed_to_none() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let two = [
        call(1, Method::RunPodSandbox, "cart", [None; 2]),
        call(2, Method::RunPodSandbox, "till", [None; 2]),
    ];
    node.runtime(300, DAEMON, &["runc", "create", "unknown"]);
    let found = scanner.scan(&two).expect("scan");
    assert!(found.calls.is_empty() && found.new.is_empty(), "{found:?}");
    // With one call there is no doubt.
    let found = scanner.scan(&two[1..]).expect("scan");
    assert_eq!(names(&found, 2), ["in the OCI runtime runc (create)"]);
}

#[test]
fn commands_that_no_call_makes_are_left_out() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [
        call(1, Method::StopContainer, "cart", [Some("s1"), Some("c1")]),
        call(2, Method::CreateContainer, "till", [Some("s2"), None]),
    ];
    // A probe of a container that is being stopped; an unrelated version command; a container that died by itself.
    node.runtime(300, DAEMON, &["runc", "exec", "c1"]);
    node.runtime(301, DAEMON, &["runc", "--version"]);
    node.runtime(302, DAEMON, &["runc", "delete", "c9"]);
    // A plugin older than the call, and one below a shim.
    node.plugin(303, "calico", DAEMON, "DEL", "s1", "cart");
    node.add(303, "calico", DAEMON, 60);
    let found = scanner.scan(&calls).expect("scan");
    assert!(found.calls.is_empty(), "{found:?}");
    node.runtime(304, DAEMON, &["runc", "kill", "c1", "15"]);
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 1), ["in the OCI runtime runc (kill)"]);
}

#[test]
fn the_end_of_a_sandbox_is_told_from_that_of_its_containers() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [
        call(1, Method::StopPodSandbox, "cart", [Some("s1"), None]),
        call(2, Method::StopContainer, "cart", [Some("s1"), Some("c1")]),
    ];
    node.add(150, "containerd-shim", 1, 70);
    node.cmdline(150, &["containerd-shim-runc-v2", "-id", "s1"]);
    node.runtime(300, 150, &["runc", "kill", "c1"]);
    node.runtime(301, 150, &["runc", "kill", "c2"]);
    node.plugin(302, "bridge", DAEMON, "DEL", "s1", "cart");
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(
        names(&found, 1),
        ["in the OCI runtime runc (kill)", "in the CNI plugin bridge"]
    );
    assert_eq!(names(&found, 2), ["in the OCI runtime runc (kill)"]);
}

#[test]
fn a_number_that_changes_hands_is_another_process() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    node.plugin(300, "calico", DAEMON, "ADD", "s1", "cart");
    let before = scanner.scan(&calls).expect("scan");
    node.end(300);
    node.add(300, "logger", 1, ticks_now() + 1);
    let after = scanner.scan(&calls).expect("scan");
    assert_eq!(
        observations_of(&before, 1)[0],
        observations_of(&after, 1)[0],
        "not seen again"
    );
    node.end(300);
    node.plugin(300, "bridge", DAEMON, "ADD", "s1", "cart");
    node.add(300, "bridge", DAEMON, ticks_now() + 2);
    node.environ(300, "CNI_COMMAND=ADD\0CNI_CONTAINERID=s1\0");
    let after = scanner.scan(&calls).expect("scan");
    assert_eq!(
        names(&after, 1),
        ["in the CNI plugin calico", "in the CNI plugin bridge"]
    );
}

#[test]
fn a_process_that_changes_its_program_is_looked_at_again() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    // A fork of the daemon, then a plugin in the middle of exec, then the plugin.
    let start = ticks_now();
    node.add(300, "containerd", DAEMON, start);
    assert!(scanner.scan(&calls).expect("scan").calls.is_empty());
    node.add(300, "bridge", DAEMON, start);
    node.environ(300, "");
    assert!(scanner.scan(&calls).expect("scan").calls.is_empty());
    node.environ(
        300,
        "CNI_COMMAND=ADD\0CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart\0",
    );
    let found = scanner.scan(&calls).expect("scan");
    assert_eq!(names(&found, 1), ["in the CNI plugin bridge"]);
}

#[test]
fn processes_that_vanish_or_lie_do_no_harm() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [call(1, Method::RunPodSandbox, "cart", [None; 2])];
    node.plugin(300, "calico", DAEMON, "ADD", "s1", "cart");
    fs::remove_file(node.path(300).join("environ")).expect("remove");
    node.plugin(301, "calico", DAEMON, "ADD", "s1", "cart");
    fs::write(node.path(301).join("stat"), "301 (calico").expect("stat");
    node.plugin(302, "calico", DAEMON, "ADD", "s1", "cart");
    node.environ(
        302,
        format!("HUGE={}\0CNI_COMMAND=ADD\0", CANARY.repeat(20_000)),
    );
    node.plugin(303, "calico", DAEMON, "ADD", "s1", "cart");
    node.environ(303, CANARY.repeat(20_000));
    // A cycle of parents.
    node.add(304, "a", 305, ticks_now());
    node.add(305, "b", 304, ticks_now());
    fs::create_dir(node.dir.path().join("sys")).expect("dir");
    fs::create_dir(node.dir.path().join("99999999999")).expect("dir");
    let found = scanner.scan(&calls).expect("scan");
    assert!(found.calls.is_empty(), "{found:?}");
    assert!(!format!("{scanner:?} {found:?}").contains(CANARY));
    scanner.rest();
    drop(node);
    assert!(scanner.scan(&calls).is_err(), "there is no /proc any more");
}

#[test]
fn calls_that_are_polls_need_no_look() {
    let node = Node::new();
    let mut scanner = node.scanner();
    node.plugin(300, "calico", DAEMON, "ADD", "s1", "cart");
    let poll = call(2, Method::ListContainers, "cart", [None; 2]);
    let found = scanner.scan(&[poll]).expect("scan");
    assert!(found.at.is_none() && found.calls.is_empty());
    // No plugin works for a pull.
    let pull = call(1, Method::PullImage, "cart", [None; 2]);
    let found = scanner.scan(&[pull]).expect("scan");
    assert!(found.at.is_some() && found.calls.is_empty(), "{found:?}");
}

#[test]
fn a_call_that_has_ended_is_forgotten() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let calls = [
        call(1, Method::RunPodSandbox, "cart", [None; 2]),
        call(2, Method::RunPodSandbox, "till", [None; 2]),
    ];
    node.plugin(300, "calico", DAEMON, "ADD", "s1", "cart");
    assert_eq!(scanner.scan(&calls).expect("scan").calls.len(), 1);
    // The plugin is still running.
    let found = scanner.scan(&calls[1..]).expect("scan");
    assert!(found.calls.is_empty(), "{found:?}");
}

#[test]
fn hidden_processes_are_noticed() {
    let empty = tempfile::tempdir().expect("dir");
    assert!(!ProcessScanner::new(ProcFs::new(empty.path())).sees_others());
}

#[test]
fn starts_are_exact_to_a_tick() {
    let node = Node::new();
    let mut scanner = node.scanner();
    let mut call = Call::example(Method::RunPodSandbox);
    // It was received ten seconds ago.
    let ago = Duration::from_secs(10);
    call.started -= ago;
    call.started_at -= ago;
    let entered = call.started_at;
    let calls = [Arc::new(call)];
    calls[0].subject.set(Subject::default()).expect("once");
    let two_seconds = 2 * 1_000_000_000 / u64::try_from(clock::tick().as_nanos()).expect("small");
    node.runtime(300, DAEMON, &["runc", "create", "x"]);
    node.add(300, "runc", DAEMON, ticks_now() - two_seconds);
    // The time this test has taken counts as part of its start.
    let late = calls[0].started.elapsed() - ago;
    node.cmdline(300, &["runc", "create", "x"]);
    let found = scanner.scan(&calls).expect("scan");
    let began = observations_of(&found, 0)[0]
        .began
        .duration_since(entered)
        .expect("after");
    let off = began.abs_diff(Duration::from_secs(8));
    assert!(off < Duration::from_millis(500) + late, "{began:?}");
}
