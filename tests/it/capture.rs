//! `criscope capture`, and what other machines read in it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;

use crate::commands::printed;
use crate::harness::pods::{self, Kubelet, Manner, Manners};
use crate::prelude::*;
use criscope::cri::status::Code;

async fn run(args: &[&str], admin: &str) -> Output {
    let mut command = Command::new(crate::CRISCOPE);
    command
        .args(args)
        .env("CRISCOPE_ADMIN", admin)
        .env("LC_ALL", "C");
    command.stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("joined").expect("run")
}

/// Standard output and error; it has to end well.
async fn done(args: &[&str], admin: &str) -> (String, String) {
    let output = run(args, admin).await;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {err}");
    (out, err)
}

fn socket(proxy: &Proxy) -> String {
    format!("unix://{}", proxy.admin_socket().display())
}

fn first(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// A headline without the times that go on.
fn still(line: &str) -> &str {
    line.split(" (").next().unwrap_or_default()
}

struct Rig {
    fake: Fake,
    proxy: Proxy,
    dir: TempDir,
}

/// A node with a pod that is up, one that cannot start, and one that hangs.
async fn node() -> (Rig, Kubelet) {
    let (fake, dir) = (Fake::new(), tempfile::tempdir().expect("dir"));
    let manners = Manners::of(&fake);
    let config = format!(
        "[story]\nquiet = \"300ms\"\nstate_dir = {:?}\n",
        dir.path().join("state")
    );
    let start = Start::before(crate::CRISCOPE, &fake).config(&config);
    let proxy = start.ready().await;
    let kubelet = Kubelet::before(&proxy).await;
    kubelet.start("up", true).await.expect("a pod");
    manners.set("CreateContainer", Manner::Fails(Code::Internal));
    let failing = kubelet.sandbox("failing").await.expect("a sandbox");
    kubelet.container(&failing, 0).await;
    manners.set("RunPodSandbox", Manner::Hangs);
    (Rig { fake, proxy, dir }, kubelet)
}

impl Rig {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until the journal has a line with this.
    async fn journaled(&self, text: &str) {
        let path = self.dir.path().join("state/journal.jsonl");
        until_true("the line in the journal", async || {
            let lines = fs::read_to_string(&path).unwrap_or_default();
            lines.contains(text)
        })
        .await;
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_says_the_same() {
    let (rig, kubelet) = node().await;
    let hanging = kubelet.client().start(pods::run("hanging")).await;
    until_true("it takes long", async || {
        let (status, story) = rig.proxy.get("/debug/pods/shop/hanging?format=json").await;
        status == 200 && story.contains("waiting ")
    })
    .await;
    rig.journaled("CreateContainer").await;
    let file = rig.file("a.tar.gz");
    let (out, _) = done(&["capture", "-o", text(&file)], &socket(&rig.proxy)).await;
    assert_eq!(out.trim(), text(&file));
    let mode = fs::metadata(&file).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut live = Vec::new();
    for pod in ["shop/up", "shop/failing"] {
        live.push((pod, printed(&rig.proxy, &["explain", pod]).await));
    }
    drop(hanging);
    let Rig { proxy, fake, dir } = rig;
    drop((proxy, fake));
    // Nothing of the node is left but the file.
    let from = text(&file);
    for (pod, live) in live {
        let (there, note) = done(&["explain", pod, "--from", from], "127.0.0.1:1").await;
        assert_eq!(still(first(&there)), still(first(&live)));
        assert!(
            note.contains("capture of ") && !note.contains("journal alone"),
            "{note}"
        );
    }
    let (hanging, _) = done(&["explain", "shop/hanging", "--from", from], "").await;
    assert!(first(&hanging).starts_with("waiting "), "{hanging}");
    let (listed, _) = done(&["pods", "--from", from, "-o", "json"], "").await;
    for pod in ["up", "failing", "hanging"] {
        assert!(listed.contains(&format!("\"name\": \"{pod}\"")), "{listed}");
    }
    let (calls, _) = done(&["calls", "--from", from], "").await;
    assert!(
        calls.contains("RunPodSandbox") && calls.contains("hanging"),
        "{calls}"
    );
    let unknown = run(&["explain", "shop/hangin", "--from", from], "").await;
    let unknown = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.contains("did you mean shop/hanging?"), "{unknown}");
    in_a_browser(from).await;
    drop(dir);
}

/// `criscope view`
async fn in_a_browser(file: &str) {
    let mut command = Command::new(crate::CRISCOPE);
    command.args(["view", file, "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("run");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("an address");
    let (address, _) = line
        .trim_start_matches("http://")
        .split_once('/')
        .expect("a page");
    for (page, said) in [
        ("/debug/pods", "shop/</span>failing"),
        ("/debug/pods/shop/failing", "cannot create app: "),
        ("/metrics", "criscope_rpc_total"),
        ("/debug/config", "story.state_dir"),
    ] {
        let body = page_of(address, page).await;
        assert!(body.contains(said), "{page}: {body}");
    }
    let pid = Pid::from_raw(child.id().try_into().expect("pid"));
    kill(pid, Signal::SIGTERM).expect("signal");
    let mut child = child;
    assert!(
        tokio::task::spawn_blocking(move || child.wait())
            .await
            .expect("joined")
            .expect("ended")
            .success()
    );
}

async fn page_of(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connect");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("read");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_daemon_it_has_the_journal() {
    let (rig, _) = node().await;
    rig.journaled("CreateContainer").await;
    let live = printed(&rig.proxy, &["explain", "shop/failing"]).await;
    let one = rig.file("one.tar.gz");
    let args = [
        "capture",
        "-o",
        text(&one),
        "--pod",
        "shop/up",
        "--since",
        "1h",
    ];
    done(&args, &socket(&rig.proxy)).await;
    // The port is for everybody.
    let port = format!("127.0.0.1:{}", rig.proxy.admin_port());
    let refused = run(&["capture", "-o", text(&rig.file("no"))], &port).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("as root"),
        "{said}"
    );
    let Rig { proxy, fake, dir } = rig;
    drop((proxy, fake));

    let (listed, note) = done(&["pods", "--from", text(&one)], "").await;
    assert!(
        listed.contains("up") && !listed.contains("failing"),
        "{listed}"
    );
    assert!(note.contains("of pod shop/up"), "{note}");
    let config = dir.path().join("criscope.toml");
    let state = dir.path().join("state");
    let settings = format!(
        "[story]\nstate_dir = {state:?}\n[backends.a]\nkind = \"upstream\"\nendpoint = \"unix:///run/a.sock\"\n"
    );
    fs::write(&config, settings).expect("written");
    let file = dir.path().join("left.tar.gz");
    let args = ["capture", "-o", text(&file), "--config", text(&config)];
    let (_, said) = done(&args, "127.0.0.1:1").await;
    assert!(said.contains("criscope is not running"), "{said}");
    let (there, note) = done(&["explain", "shop/failing", "--from", text(&file)], "").await;
    assert_eq!(still(first(&there)), still(first(&live)));
    assert!(note.contains("journal alone"), "{note}");
    let missing = run(&["calls", "--from", text(&file)], "").await;
    assert!(!missing.status.success());
}
