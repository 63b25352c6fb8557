//! A restart under systemd hands over: calls and sessions go on in the old process, and the next one serves new ones.

use std::os::unix::net::UnixListener;

use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixDatagram;
use tokio::task::JoinHandle;

use crate::harness::client::Open;
use crate::harness::fake::Seen;
use crate::prelude::*;
use crate::service_manager::{Manager, activated};

const UPGRADE: &str = "POST PATH HTTP/1.1\r\nHost: node:10250\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
    Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\
    X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// systemd with the socket of a node, and the runtime behind criscope.
struct ManagedNode {
    dir: TempDir,
    listener: UnixListener,
    manager: Manager,
    admin: u16,
    fake: Fake,
    config: String,
    /// Ends the pulls.
    pulled: CancellationToken,
    echo: JoinHandle<()>,
}

impl Drop for ManagedNode {
    fn drop(&mut self) {
        self.echo.abort();
    }
}

impl ManagedNode {
    async fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("cri.sock")).expect("bound");
        let notify = UnixDatagram::bind(dir.path().join("notify")).expect("bound");
        let (url, echo) = echo_server().await;
        let (fake, pulled) = (Fake::new(), CancellationToken::new());
        fake.node().add_pod("old", "5a4db0", "c0ffee");
        let gate = pulled.clone();
        fake.on(move |head| match head.uri.path().rsplit('/').next() {
            Some("PullImage") => {
                let mut steps = script::empty();
                steps.insert(1, Step::Wait(gate.clone()));
                steps
            }
            Some("RunPodSandbox") => script::ok(&[encode(&v1::RunPodSandboxResponse {
                pod_sandbox_id: "sandbox".into(),
            })]),
            Some("GetContainerEvents") => vec![Step::Read, script::head(), Step::Hang],
            Some("Exec") => script::ok(&[encode(&v1::ExecResponse {
                url: format!("{url}/exec/T0ken"),
            })]),
            Some("PortForward") => script::ok(&[encode(&v1::PortForwardResponse {
                url: format!("{url}/portforward/T0ken"),
            })]),
            _ => script::empty(),
        });
        Self {
            dir,
            listener,
            manager: Manager(notify),
            admin: free_port(),
            fake,
            config: config.to_owned(),
            pulled,
            echo,
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("cri.sock")
    }

    /// Starts a process as systemd does, and waits until it is ready.
    async fn start(&self) -> Proxy {
        let notify = self.dir.path().join("notify");
        let start = Start::before(crate::CRISCOPE, &self.fake)
            .listen(&self.socket())
            .admin(self.admin)
            .config(&self.config)
            .env("NOTIFY_SOCKET", &notify.display().to_string());
        let proxy = activated(start, self.listener.try_clone().expect("cloned"))
            .ready()
            .await;
        while !self.manager.next_state().await.contains("READY=1") {}
        proxy
    }

    /// Does what the unit does in a restart before the next process is started.
    async fn begin_restart(&self, old: &Proxy) {
        old.signal(Signal::SIGWINCH);
        let state = self.manager.next_state().await;
        let pid = state.trim().strip_prefix("MAINPID=").expect("a process");
        kill(
            Pid::from_raw(pid.parse().expect("a number")),
            Signal::SIGTERM,
        )
        .expect("it runs");
    }

    async fn client(&self) -> Client {
        Client::connect(&self.socket()).await
    }

    /// The number of lines of this kind in the journal that contain these words.
    fn journaled(&self, kind: &str, words: &str) -> usize {
        let journal = self.dir.path().join("cri.state/journal.jsonl");
        let journal = fs::read_to_string(journal).unwrap_or_default();
        let kind = format!("{{\"{kind}\"");
        let lines = journal.lines();
        lines
            .filter(|line| line.starts_with(&kind) && line.contains(words))
            .count()
    }
}

impl ManagedNode {
    /// Waits until so many pulls have ended in the journal.
    async fn wait_journaled(&self, pulls: usize) {
        until_true("pulls in the journal", || async {
            self.journaled("call", "PullImage") == pulls
        })
        .await;
    }
}

/// Answers each upgrade, and then returns the bytes it gets.
async fn echo_server() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let serving = tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(tcp.read_u8().await.expect("a head"));
                }
                tcp.write_all(SWITCHING.as_bytes()).await.expect("sent");
                let (mut read, mut write) = tcp.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    (url, serving)
}

async fn pull(client: &Client, pod: &str) -> Open {
    let pull = requests::pull_for("docker.io/library/app:1", pods::config(pod));
    client.start(Call::image("PullImage", encode(&pull))).await
}

fn is_pull(seen: &Seen) -> bool {
    seen.uri.path().ends_with("PullImage")
}

async fn run_pod(client: &Client, pod: &str) {
    let run = requests::run_pod(pods::config(pod), "");
    let got = client
        .call(Call::runtime("RunPodSandbox", encode(&run)))
        .await;
    assert_eq!(got.code(), 0, "{}", got.text());
}

async fn exec_url(client: &Client) -> String {
    let exec = requests::exec("c0ffee", vec!["/bin/sh".into()], "io");
    let got = client.call(Call::runtime("Exec", encode(&exec))).await;
    assert_eq!(got.code(), 0, "{}", got.text());
    let answer = v1::ExecResponse::decode(&got.data[5..]);
    answer.expect("a message").url
}

async fn forward_url(client: &Client) -> String {
    let forward = requests::forward("5a4db0");
    let got = client
        .call(Call::runtime("PortForward", encode(&forward)))
        .await;
    assert_eq!(got.code(), 0, "{}", got.text());
    let answer = v1::PortForwardResponse::decode(&got.data[5..]);
    answer.expect("a message").url
}

async fn open_session(url: &str) -> TcpStream {
    let (authority, path) = cri_streaming::client::split_url(url).expect("a URL");
    let mut tcp = TcpStream::connect(authority).await.expect("connected");
    let head = UPGRADE.replace("PATH", path);
    tcp.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = vec![0; SWITCHING.len()];
    soon("an upgrade", tcp.read_exact(&mut answer))
        .await
        .expect("read");
    assert_eq!(answer, SWITCHING.as_bytes());
    tcp
}

/// Sends data and gets it back.
async fn say(session: &mut TcpStream, words: &str) {
    session.write_all(words.as_bytes()).await.expect("sent");
    let mut heard = vec![0; words.len()];
    soon("an echo", session.read_exact(&mut heard))
        .await
        .expect("read");
    assert!(heard == words.as_bytes(), "the bytes differ");
}

fn calls(scrape: &Scrape, method: &str) -> f64 {
    let total = scrape.metric("criscope_rpc_total");
    total.with("method", method).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_sessions_go_on_in_the_old_process() {
    let node = ManagedNode::new("").await;
    let old = node.start().await;
    let client = node.client().await;
    let events = client.start(Call::plain("GetContainerEvents")).await;
    run_pod(&client, "web").await;
    let web = pull(&client, "web").await;
    let mut exec = open_session(&exec_url(&client).await).await;
    let mut forward = open_session(&forward_url(&client).await).await;
    let unused = exec_url(&client).await;
    say(&mut exec, "before").await;
    say(&mut forward, &"before".repeat(10_000)).await;
    node.fake.wait("the pull", is_pull).await;

    node.begin_restart(&old).await;
    // The old process serves until the next one is ready, which knows the calls in flight.
    let between = node.client().await;
    assert_eq!(between.call(Call::plain("Status")).await.code(), 0);
    assert_eq!(node.journaled("handed_over", "PullImage"), 1);
    let new = node.start().await;
    old.wait_line("the end of accepting", |line| {
        line["event"] == "handover.taken"
    })
    .await;
    say(&mut exec, "after").await;
    say(&mut forward, &"after".repeat(10_000)).await;
    let mut late = open_session(&unused).await;
    say(&mut late, "a URL of the old process").await;

    // The new process has the admin endpoint, and counts its own calls only.
    let fresh = node.client().await;
    run_pod(&fresh, "next").await;
    let scrape = new
        .wait_scrape("its own call", |scrape| {
            calls(scrape, "RunPodSandbox") == 1.0
        })
        .await;
    assert_eq!(calls(&scrape, "PullImage"), 0.0);
    let story = new.json("/debug/pods/shop/web").await;
    let shown = story["episodes"][0]["calls"].to_string();
    assert!(shown.contains("in_flight"), "the pull goes on: {story}");

    node.pulled.cancel();
    assert_eq!(soon("the pull", web.finish()).await.code(), 0);
    node.wait_journaled(1).await;
    let ended = until("the pull in the story", || async {
        let story = new.json("/debug/pods/shop/web").await;
        let shown = story["episodes"][0]["calls"].to_string();
        (!shown.contains("in_flight")).then_some(story)
    })
    .await;
    assert!(!ended.to_string().contains("criscope was down"), "{ended}");

    // Sessions alone keep the old process; streams of events do not.
    say(&mut exec, "still").await;
    for mut session in [exec, forward, late] {
        session.shutdown().await.expect("closed");
    }
    let (status, log) = old.ended().await;
    assert_eq!(status.code(), Some(0), "{log:?}");
    let got = soon("the end of the stream", events.finish()).await;
    assert!(got.broken.is_some(), "{got:?}");
    assert!(!log.join("\n").contains("drain.cut"), "{log:?}");
    assert_eq!(node.journaled("call", "PullImage"), 1, "once");
    assert_eq!(node.journaled("node", "criscope_down"), 0);
    let sessions = log.iter().filter(|line| line.contains("stream.session"));
    assert_eq!(sessions.count(), 3);
    let left = fs::read_dir(node.dir.path().join("cri.state")).expect("a directory");
    let left = left.filter(|entry| {
        let name = entry.as_ref().expect("an entry").file_name();
        name.to_string_lossy().contains("handover")
    });
    assert_eq!(left.count(), 0);
    new.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_process_may_hand_over_while_the_first_still_has_a_call() {
    let node = ManagedNode::new("").await;
    let first = node.start().await;
    let client = node.client().await;
    run_pod(&client, "web").await;
    let web = pull(&client, "web").await;
    node.fake.wait("the pull", is_pull).await;
    node.begin_restart(&first).await;
    let second = node.start().await;
    let client = node.client().await;
    run_pod(&client, "next").await;
    let next = pull(&client, "next").await;
    until("the second pull", || async {
        let (_, text) = second.get("/debug/calls?format=json").await;
        text.contains("PullImage").then_some(())
    })
    .await;
    node.begin_restart(&second).await;
    let third = node.start().await;
    node.pulled.cancel();
    for call in [web, next] {
        assert_eq!(soon("a pull", call.finish()).await.code(), 0);
    }
    for old in [first, second] {
        let (status, log) = old.ended().await;
        assert_eq!(status.code(), Some(0), "{log:?}");
    }
    assert_eq!(node.journaled("call", "PullImage"), 2);
    for pod in ["web", "next"] {
        until("the end of the pull", || async {
            let (_, story) = third
                .get(&format!("/debug/pods/shop/{pod}?format=json"))
                .await;
            (story.contains("PullImage") && !story.contains("in_flight")).then_some(())
        })
        .await;
    }
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_longer_than_the_bound_is_cut() {
    let node = ManagedNode::new("[server]\nhandover_timeout = \"2s\"\n").await;
    let old = node.start().await;
    let client = node.client().await;
    run_pod(&client, "web").await;
    let web = pull(&client, "web").await;
    let mut exec = open_session(&exec_url(&client).await).await;
    node.fake.wait("the pull", is_pull).await;
    node.begin_restart(&old).await;
    let new = node.start().await;
    let got = soon("the end of the pull", web.finish()).await;
    assert!(got.broken.is_some(), "{got:?}");
    let mut rest = Vec::new();
    let _ = soon("the end of the session", exec.read_to_end(&mut rest)).await;
    let (status, log) = old.ended().await;
    assert_eq!(status.code(), Some(0), "{log:?}");
    assert!(log.join("\n").contains("drain.cut"), "{log:?}");
    node.wait_journaled(1).await;
    node.pulled.cancel();
    new.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_the_processes_before_too() {
    let node = ManagedNode::new("[server]\ndrain_timeout = \"500ms\"\n").await;
    let old = node.start().await;
    let client = node.client().await;
    run_pod(&client, "web").await;
    let web = pull(&client, "web").await;
    node.fake.wait("the pull", is_pull).await;
    node.begin_restart(&old).await;
    let new = node.start().await;
    new.stop().await;
    let (status, log) = old.ended().await;
    assert_eq!(status.code(), Some(0), "{log:?}");
    assert!(soon("the pull", web.finish()).await.broken.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_not_started_again_goes_on_serving() {
    let node = ManagedNode::new("").await;
    let old = node.start().await;
    node.begin_restart(&old).await;
    let client = node.client().await;
    for _ in 0..3 {
        assert_eq!(client.call(Call::plain("Status")).await.code(), 0);
    }
    // Without systemd, or with a socket of its own, the signal says nothing: terminals send it.
    let plain = Proxy::before(crate::CRISCOPE, &node.fake).await;
    plain.signal(Signal::SIGWINCH);
    assert_eq!(
        plain
            .client()
            .await
            .call(Call::plain("Status"))
            .await
            .code(),
        0
    );
    assert_eq!(plain.get("/livez").await.0, 200);
    plain.stop().await;
    old.signal(Signal::SIGTERM);
    assert_eq!(old.ended().await.0.code(), Some(0));
}
