//! Exec, attach and port-forward into real containers, by clients that are many, lazy, or gone: what they may cost, and that
//! nothing of them stays.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criscope::cri::v1;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, Pod, idle, shell};
use crate::harness::{leaks, until};
use crate::streaming::client::{Client, forwarding, lazy, open};

/// The transports that clients use today.
const WAYS: [(&str, &str); 2] = [
    ("spdy", "v4.channel.k8s.io"),
    ("websocket", "v5.channel.k8s.io"),
];

/// Sessions that are begun at the same time: each is a call of runc.
const AT_ONCE: usize = 8;

/// Sends back what it gets, to as many as come.
const ECHO: &str = "nc -ll -p 8080 -e /bin/cat & trap 'exit 0' TERM; sleep 1000000 & wait";

/// A pod with one container, and what it costs without any session.
struct Node {
    daemon: Daemon,
    kubelet: Kubelet,
    pod: Pod,
    container: String,
    quiet: BTreeMap<&'static str, usize>,
    idle: Vec<String>,
}

impl Node {
    async fn with(config: v1::ContainerConfig) -> Self {
        let daemon = Daemon::new().await;
        let kubelet = Kubelet::of(&daemon).await;
        let pod = kubelet.plain_pod("sessions").await;
        let container = kubelet.launch(&pod, config).await;
        let mut node = Self {
            daemon,
            kubelet,
            pod,
            container,
            quiet: BTreeMap::new(),
            idle: Vec::new(),
        };
        // What is made once, for the first of its kind.
        kubelet_says_hello(&node).await;
        let client = Client::connect(&node.exec("true", "oe").await, WAYS[0], "oe").await;
        client.finish().await;
        node.nobody_is_left().await;
        node.idle = node.processes();
        node.quiet = node.descriptors();
        node
    }

    /// The URL of a script, with the streams of these letters, and a terminal for `t`.
    async fn exec(&self, script: &str, streams: &str) -> String {
        let request = v1::ExecRequest {
            container_id: self.container.clone(),
            cmd: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            tty: streams.contains('t'),
            stdin: streams.contains('i'),
            stdout: streams.contains('o'),
            stderr: streams.contains('e'),
        };
        let answer = self.kubelet.runtime.clone().exec(request).await;
        answer.expect("Exec").into_inner().url
    }

    async fn attach(&self, streams: &str) -> String {
        let request = v1::AttachRequest {
            container_id: self.container.clone(),
            stdin: streams.contains('i'),
            tty: false,
            stdout: streams.contains('o'),
            stderr: streams.contains('e'),
        };
        let answer = self.kubelet.runtime.clone().attach(request).await;
        answer.expect("Attach").into_inner().url
    }

    async fn forward(&self) -> String {
        let request = v1::PortForwardRequest {
            pod_sandbox_id: self.pod.id.clone(),
            port: vec![],
        };
        let answer = self.kubelet.runtime.clone().port_forward(request).await;
        answer.expect("PortForward").into_inner().url
    }

    /// What runs in the container, besides what runs there always: the arguments, in order.
    fn processes(&self) -> Vec<String> {
        let all = leaks::processes(self.daemon.name()).into_iter();
        let inside = all.map(|(_, what)| what.trim().to_owned());
        let mut inside: Vec<_> = inside
            .filter(|what| !what.contains("criscope-shim"))
            .collect();
        inside.sort();
        inside
    }

    fn shim(&self) -> i32 {
        let all = leaks::processes(self.daemon.name());
        let shim = all.iter().find(|(_, what)| what.contains("criscope-shim"));
        shim.expect("a shim").0
    }

    /// Open files of the daemon and the shim.
    fn descriptors(&self) -> BTreeMap<&'static str, usize> {
        let count = |pid: i32| {
            let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
            open.count()
        };
        let daemon = self.daemon.program().pid().as_raw();
        BTreeMap::from([("daemon", count(daemon)), ("shim", count(self.shim()))])
    }

    /// Memory of the daemon and the shim, in bytes.
    fn memory(&self) -> usize {
        let resident = |pid: i32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
            let line = status.lines().find(|line| line.starts_with("VmRSS:"));
            let line = line.expect("resident memory");
            let number = line.split_whitespace().nth(1).expect("a number");
            number.parse::<usize>().expect("a number") << 10
        };
        resident(self.daemon.program().pid().as_raw()) + resident(self.shim())
    }

    /// Sessions that are open, as the metrics say.
    async fn open(&self) -> f64 {
        let scrape = self.daemon.program().scrape().await;
        scrape.metric("criscope_stream_sessions").sum()
    }

    /// Sessions of our pod that are open, as the front page tells.
    async fn told(&self) -> usize {
        let (_, text) = self.daemon.program().get("/?format=json").await;
        let live: Value = serde_json::from_str(&text).expect("json");
        let told = live["sessions"].as_array().expect("a list").iter();
        told.filter(|it| it["pod"] == "sessions").count()
    }

    async fn nobody_is_left(&self) {
        until("the end of all sessions", || async {
            (self.open().await == 0.0 && self.told().await == 0).then_some(())
        })
        .await;
    }

    /// Nothing of any session is left: no process, no descriptor, no session that counts as open.
    async fn is_quiet(&self) {
        self.nobody_is_left().await;
        let what = format!("only {:?} to run", self.idle);
        until(&what, || async {
            (self.processes() == self.idle).then_some(())
        })
        .await;
        until(&format!("descriptors as in {:?}", self.quiet), || async {
            let now = self.descriptors();
            let back = now.iter().all(|(of, count)| *count <= self.quiet[of]);
            back.then_some(())
        })
        .await;
    }

    async fn end(self) {
        self.kubelet.end(&self.pod).await;
        self.daemon.assert_clean();
    }
}

/// Calls are answered, and commands run.
async fn kubelet_says_hello(node: &Node) {
    let list = v1::ListContainersRequest::default();
    let list = node.kubelet.runtime.clone().list_containers(list).await;
    assert_eq!(
        list.expect("ListContainers").into_inner().containers.len(),
        1
    );
    assert_eq!(
        node.kubelet.says(&node.container, "echo hello").await,
        "hello"
    );
}

/// A text that no other has, longer than any pipe or socket holds.
fn text(number: usize) -> Vec<u8> {
    format!("session {number};").into_bytes().repeat(20_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_sessions_at_once_do_not_mix() {
    const EXECS: usize = 180;
    const FORWARDS: usize = 20;
    let node = Arc::new(Node::with(shell("main", ECHO)).await);
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut begun = JoinSet::new();
    for number in 0..EXECS {
        let (node, turns) = (Arc::clone(&node), Arc::clone(&turns));
        begun.spawn(async move {
            let _turn = turns.acquire().await;
            let script = format!("echo up; cat; exit {}", number % 100);
            let url = node.exec(&script, "io").await;
            let client = Client::connect(&url, WAYS[number % 2], "io").await;
            assert_eq!(client.output(3).await, b"up\n");
            (number, client)
        });
    }
    let execs = begun.join_all().await;
    let mut forwards = Vec::new();
    for number in 0..FORWARDS {
        let mut spdy = forwarding(&node.forward().await).await;
        let (_, data) = open(&mut spdy, 0, 8080).await;
        spdy.send(data, b"up", false).await;
        let came = |got: &crate::streaming::spdy::Got| (got.data == b"up").then_some(());
        spdy.wait(data, came).await;
        forwards.push((number, spdy, data));
    }
    assert_eq!(node.open().await, (EXECS + FORWARDS) as f64);
    until("all of them to be told", || async {
        (node.told().await == EXECS + FORWARDS).then_some(())
    })
    .await;
    kubelet_says_hello(&node).await;

    // They all talk, and end, at the same time.
    let mut ends = JoinSet::new();
    for (number, mut client) in execs {
        ends.spawn(async move {
            for piece in text(number).chunks(30_000) {
                client.send(0, piece).await;
            }
            client.end_input().await;
            let said = client.finish().await;
            let whole = [&b"up\n"[..], &text(number)].concat();
            assert!(
                said.out == whole,
                "session {number}: {} bytes",
                said.out.len()
            );
            let (status, code) = (said.error, format!("\"{}\"", number % 100));
            match number % 100 {
                0 => assert_eq!(status, r#"{"status":"Success"}"#),
                _ => assert!(status.contains(&code), "session {number}: {status}"),
            }
        });
    }
    for (number, mut spdy, data) in forwards {
        ends.spawn(async move {
            for piece in text(number).chunks(30_000) {
                spdy.send(data, piece, false).await;
            }
            spdy.send(data, b"", true).await;
            let got = spdy.end(data).await;
            let whole = [&b"up"[..], &text(number)].concat();
            assert!(
                got.data == whole,
                "forward {number}: {} bytes",
                got.data.len()
            );
        });
    }
    while let Some(ended) = ends.join_next().await {
        ended.expect("a session that ends well");
    }
    node.is_quiet().await;
    kubelet_says_hello(&node).await;
    Arc::into_inner(node).expect("all have ended").end().await;
}

/// What a client may leave lying about, at the most: a few MiB, whatever it does.
const EACH: usize = 4 << 20;

/// Longer than the shim waits for somebody who attaches and does not read.
const PAUSE: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_stops_reading_loses_nothing_and_costs_little() {
    const LENGTH: usize = 48 << 20;
    let node = Node::with(idle("main")).await;
    let before = node.memory();
    let mut clients = Vec::new();
    for way in WAYS.into_iter().cycle().take(6) {
        let script = format!(
            "/bin/busybox dd if=/dev/zero bs=65536 count={} 2>/dev/null; exit 7",
            LENGTH >> 16
        );
        clients.push(lazy(&node.exec(&script, "o").await, way).await);
    }
    until("the commands to run", || async {
        let all = node.processes();
        let run = all
            .iter()
            .filter(|what| what.starts_with("/bin/busybox dd"));
        (run.count() == clients.len()).then_some(())
    })
    .await;
    // Meanwhile everybody else goes on.
    let since = Instant::now();
    while since.elapsed() < PAUSE {
        kubelet_says_hello(&node).await;
        let url = node.exec("cat", "io").await;
        let mut other = Client::connect(&url, WAYS[0], "io").await;
        other.send(0, b"to and fro").await;
        assert_eq!(other.output(10).await, b"to and fro");
        other.end_input().await;
        other.finish().await;
        let more = node.memory().saturating_sub(before);
        assert!(more < clients.len() * EACH, "{more} bytes more");
    }
    for mut client in clients {
        client.begin_to_read();
        let said = client.finish().await;
        assert_eq!(said.out.len(), LENGTH);
        assert!(said.error.contains("\"7\""), "{}", said.error);
    }
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_leaves_nothing() {
    let node = Node::with(shell("main", ECHO)).await;
    for way in WAYS {
        // One that writes for ever, read by nobody; one that waits for input; a terminal with something in front.
        let writes = lazy(&node.exec("/bin/busybox yes", "o").await, way).await;
        let reads = Client::connect(&node.exec("echo up; cat", "io").await, way, "io").await;
        let shows = node.exec("echo up; sleep 54321", "iot").await;
        let shows = Client::connect(&shows, way, "iot").await;
        for client in [&reads, &shows] {
            assert_eq!(&client.output(3).await[..2], b"up");
        }
        until("all to run", || async {
            let all = node.processes();
            let there = |name: &str| all.iter().any(|what| what.contains(name));
            (there("yes") && there("54321")).then_some(())
        })
        .await;
        let mut forward = forwarding(&node.forward().await).await;
        let (_, data) = open(&mut forward, 0, 8080).await;
        forward.send(data, b"up", false).await;
        let came = |got: &crate::streaming::spdy::Got| (got.data == b"up").then_some(());
        forward.wait(data, came).await;
        let attached = Client::connect(&node.attach("oe").await, way, "oe").await;
        assert_eq!(node.open().await, 5.0);
        drop((writes, reads, shows, forward, attached));
        node.is_quiet().await;
    }
    kubelet_says_hello(&node).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_vanishes_behind_input_that_nobody_takes_leaves_nothing() {
    // Neither the container nor the commands read a byte.
    let mut config = idle("main");
    config.stdin = true;
    let node = Node::with(config).await;
    let mut clients = JoinSet::new();
    let mut count = 0;
    for way in WAYS {
        let sleeps = (node.exec("echo up; sleep 54321", "io").await, "io");
        let shows = (node.exec("echo up; sleep 54321", "iot").await, "iot");
        let attached = (node.attach("io").await, "io");
        for (url, streams) in [sleeps, shows, attached] {
            count += 1;
            clients.spawn(async move {
                let mut client = Client::connect(&url, way, streams).await;
                client.fill().await;
                client
            });
        }
    }
    let clients = clients.join_all().await;
    assert_eq!(node.open().await, f64::from(count));
    drop(clients);
    node.nobody_is_left().await;
    kubelet_says_hello(&node).await;
    // A terminal was hung up; without one a command runs on, and sees no more than the end of its input.
    until("only those without a terminal to run", || async {
        let all = node.processes();
        let left = all.iter().filter(|what| what.ends_with("sleep 54321"));
        (left.count() == WAYS.len()).then_some(())
    })
    .await;
    for (pid, what) in leaks::processes(node.daemon.name()) {
        if what.trim().ends_with("sleep 54321") {
            signal::kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
        }
    }
    node.is_quiet().await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_gets_all_that_its_container_wrote_before_it_ended() {
    // It writes until nobody takes more, and has ended when its clients begin to read.
    let line = "all of it".repeat(100);
    let script = format!(
        "until [ -e /go ]; do sleep 0.1; done; /bin/busybox yes {line:?} & sleep 3; kill -9 $!"
    );
    let node = Node::with(shell("main", &script)).await;
    let mut clients = Vec::new();
    for way in WAYS {
        clients.push(lazy(&node.attach("o").await, way).await);
    }
    until("all to be attached", || async {
        (node.open().await == clients.len() as f64).then_some(())
    })
    .await;
    node.kubelet.says(&node.container, "touch /go").await;
    let status = node.kubelet.ended(&node.container).await;
    tokio::time::sleep(PAUSE).await;
    let log = fs::read_to_string(&status.log_path).expect("log");
    let mut logged = String::new();
    for line in log.lines() {
        // A time, a stream, whether it is a whole line (F), and text.
        let parts: Vec<_> = line.splitn(4, ' ').collect();
        logged.push_str(parts[3]);
        logged.push_str(if parts[2] == "F" { "\n" } else { "" });
    }
    for mut client in clients {
        client.begin_to_read();
        let said = client.finish().await;
        assert_eq!(said.error, r#"{"status":"Success"}"#);
        assert!(said.out.len() > 1 << 20, "{} bytes", said.out.len());
        assert!(
            said.out == logged.as_bytes(),
            "{} bytes of {}",
            said.out.len(),
            logged.len()
        );
    }
    node.nobody_is_left().await;
    node.end().await;
}
