//! What is left of a command of ExecSync after its timeout: none of the processes that it has started, and all others.

use criscope::cri::v1::{self, NamespaceMode};

use super::super::crun::node_with_crun;
use crate::harness::kubelet::LIMIT;
use crate::prelude::*;

/// Scripts that do not end, and how many processes of each sleep for this many seconds, their mark.
const SCRIPTS: [(&str, &str, usize); 7] = [
    ("children", "sleep MARK & sleep MARK & wait", 2),
    ("a session", "busybox setsid sleep MARK & sleep MARK", 2),
    (
        "orphans",
        "(sleep MARK &); (sleep MARK > /dev/null 2>&1 &); sleep MARK",
        3,
    ),
    ("a daemon", "(busybox setsid sleep MARK &); sleep MARK", 2),
    (
        "signals that are ignored",
        "trap '' TERM HUP INT; sh -c \"trap '' TERM HUP INT; sleep MARK; sleep MARK\" & sleep MARK",
        2,
    ),
    (
        "groups",
        "set -m; sleep MARK & (sleep MARK & sleep MARK) & wait",
        3,
    ),
    (
        "families",
        "for i in 1 2 3; do busybox setsid sh -c '(busybox setsid sleep MARK &); (sleep MARK &); sleep MARK; :' & done; wait",
        9,
    ),
];

/// The timeout of each in seconds: all of their processes are there before.
const TIMEOUT: i64 = 15;

/// The processes on the node with this argument.
fn with_argument(argument: &str) -> usize {
    let all = fs::read_dir("/proc").expect("proc").flatten();
    let all = all.filter(|entry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut arguments = arguments.split(|byte| *byte == 0);
        arguments.any(|one| one == argument.as_bytes())
    });
    all.count()
}

async fn left(argument: &str, count: usize) {
    until_true(&format!("{count} processes of {argument}"), async || {
        with_argument(argument) == count
    })
    .await;
}

fn script(text: &str) -> Vec<String> {
    ["/bin/sh", "-c", text].map(str::to_owned).to_vec()
}

/// Numbers that no other process has as its argument.
struct Marks(String);

impl Marks {
    fn new(daemon: &Daemon) -> Self {
        let digits = daemon.name().chars().filter(char::is_ascii_digit);
        Self(digits.collect())
    }

    fn mark(&self, number: usize) -> String {
        format!("9{}{number:02}", self.0)
    }
}

async fn run(kubelet: &Kubelet, handler: &str, mode: NamespaceMode) -> (Pod, String) {
    let mut config = kubelet.pod_config("commands");
    let options = pod_namespaces(&mut config);
    options.pid = mode.into();
    let pod = kubelet.run_with(config, handler).await;
    let mut container = idle("main");
    let options = &mut security(&mut container).namespace_options;
    options.get_or_insert_default().pid = mode.into();
    let id = kubelet.launch(&pod, container).await;
    (pod, id)
}

async fn nothing_is_left(daemon: &Daemon, handler: &str, mode: NamespaceMode) {
    let kubelet = Kubelet::of(daemon).await;
    let marks = Marks::new(daemon);
    let (pod, id) = run(&kubelet, handler, mode).await;
    let sibling = kubelet
        .launch(&pod, shell("sibling", "sleep 1000000"))
        .await;
    // A command that has ended in time may leave a daemon, and one that runs beside is not ended.
    let (kept, beside) = (marks.mark(90), marks.mark(91));
    let said = kubelet
        .exec(
            &id,
            &format!("sleep {kept} > /dev/null 2>&1 & echo started"),
        )
        .await;
    assert_eq!(said.out, "started");
    let (other, container) = (kubelet.clone(), id.clone());
    let wait = format!(
        "(sleep {beside} &); sleep {beside} & until [ -e /go ]; do sleep 0.05; done; kill $!; echo on"
    );
    let parallel =
        tokio::spawn(async move { other.try_exec(&container, script(&wait), LIMIT).await });
    left(&beside, 2).await;
    let mut calls = Vec::new();
    for (number, (what, text, count)) in SCRIPTS.iter().enumerate() {
        let mark = marks.mark(number);
        let (other, container) = (kubelet.clone(), id.clone());
        let text = script(&text.replace("MARK", &mark));
        let call = async move { other.try_exec(&container, text, TIMEOUT).await };
        calls.push((what, mark, *count, tokio::spawn(call)));
    }
    for (_, mark, count, _) in &calls {
        left(mark, *count).await;
    }
    for (what, mark, _, call) in calls {
        let error = call.await.expect("a task").err().expect("it does not end");
        assert_eq!(error.code(), Code::DeadlineExceeded, "{what}: {error}");
        left(&mark, 0).await;
    }
    let others = (with_argument(&kept), with_argument(&beside));
    assert_eq!(others, (1, 2), "{handler} {}", mode.as_str_name());
    for id in [&id, &sibling] {
        let is_running = kubelet.status(id).await.state() == v1::ContainerState::ContainerRunning;
        assert!(is_running, "{handler} {}", mode.as_str_name());
    }
    kubelet.says(&id, "echo > /go").await;
    let said = parallel.await.expect("a task").expect("ExecSync");
    let out = String::from_utf8(said.stdout).expect("text");
    assert_eq!((out.trim(), said.exit_code), ("on", 0));
    kubelet.end(&pod).await;
    left(&kept, 0).await;
    left(&beside, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_times_out_leaves_no_processes() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    for mode in [
        NamespaceMode::Container,
        NamespaceMode::Pod,
        NamespaceMode::Node,
    ] {
        nothing_is_left(&daemon, "", mode).await;
    }
    daemon.assert_clean();
}

/// crun starts a command from a process that ends: the command does not lead its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_of_crun_that_times_out_leaves_no_processes() {
    let (daemon, _) = node_with_crun().await;
    for mode in [NamespaceMode::Container, NamespaceMode::Pod] {
        nothing_is_left(&daemon, "crun", mode).await;
    }
    daemon.assert_clean();
}

/// Whoever has asked for the command is not there any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_caller_or_daemon_is_gone_leaves_no_processes() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    let marks = Marks::new(&daemon);
    let kubelet = Kubelet::of(&daemon).await;
    let (pod, id) = run(&kubelet, "", NamespaceMode::Container).await;
    for number in [0, 1] {
        let mark = marks.mark(number);
        let kubelet = Kubelet::of(&daemon).await;
        let text = format!("(sleep {mark} &); busybox setsid sleep {mark} & wait");
        let container = id.clone();
        let call =
            tokio::spawn(async move { kubelet.try_exec(&container, script(&text), LIMIT).await });
        left(&mark, 2).await;
        match number {
            0 => call.abort(),
            _ => {
                daemon.kill();
                let done = call.await.expect("a task");
                assert!(done.is_err(), "the daemon is gone");
                daemon.start().await;
            }
        }
        left(&mark, 0).await;
    }
    let kubelet = Kubelet::of(&daemon).await;
    let said = tokio::time::timeout(Duration::from_secs(60), kubelet.says(&id, "echo on")).await;
    assert_eq!(said.expect("in time"), "on");
    daemon.end(&kubelet, [&pod]).await;
}
