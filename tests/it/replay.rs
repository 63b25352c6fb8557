//! `criscope capture --requests` and `criscope replay`, with fake runtimes.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use criscope::cri::status::Code;
use flate2::read::GzDecoder;
use tokio::process::Command;

use crate::harness::pods::{Kubelet, Manner, Manners};
use crate::prelude::*;

/// Must not be in a capture without requests. An argument of a probe.
const SECRET: &str = "kwyjibozq";

pub(crate) async fn run(args: &[&str], admin: &str) -> Output {
    let mut command = Command::new(crate::CRISCOPE);
    command.args(args).env("CRISCOPE_ADMIN", admin);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command.output().await.expect("run")
}

pub(crate) fn said(output: &Output) -> String {
    let both = [&*output.stdout, &*output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A recording in progress.
pub(crate) struct Recording(tokio::process::Child);

impl Recording {
    /// Returns when requests are recorded.
    pub(crate) async fn begin(proxy: &Proxy, file: &Path) -> Self {
        let mut command = Command::new(crate::CRISCOPE);
        command.args(["capture", "--requests", "--for", "10m", "-o"]);
        command.arg(file);
        let socket = format!("unix://{}", proxy.admin_socket().display());
        command.env("CRISCOPE_ADMIN", socket).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("run");
        proxy.wait_event("requests.recorded").await;
        Self(child)
    }

    /// Ends it as Ctrl-C does.
    pub(crate) async fn end(mut self) {
        use nix::sys::signal::{Signal, kill};
        let pid = self.0.id().expect("runs").try_into().expect("a pid");
        kill(Pid::from_raw(pid), Signal::SIGINT).expect("signal");
        assert!(self.0.wait().await.expect("ended").success());
    }
}

async fn proxy(fake: &Fake, dir: &Path) -> Proxy {
    let config = format!("[story]\nstate_dir = {:?}\n", dir.join("state"));
    Start::before(crate::CRISCOPE, fake)
        .config(&config)
        .ready()
        .await
}

async fn life(kubelet: &Kubelet) {
    let pod = kubelet.sandbox("web").await.expect("a sandbox");
    let container = kubelet.container(&pod, 0).await.expect("a container");
    let probe = requests::exec_sync(&container, vec![SECRET.into()], 1);
    kubelet.call("ExecSync", &probe).await;
    kubelet.ask(&container).await;
    kubelet.ask("older-than-the-recording").await;
    kubelet.stop(&pod).await;
}

/// The unpacked archive, as it is.
fn unpacked(file: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(file).expect("a file");
    GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .expect("unpacked");
    bytes
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

async fn json(file: &str, target: &str) -> (bool, Value) {
    let args = [
        "replay", file, "--to", target, "--speed", "100", "-o", "json",
    ];
    let output = run(&args, "").await;
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|_| panic!("{}", said(&output)));
    (output.status.success(), report)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_is_replayed_and_a_failure_of_the_target_found() {
    let (fake, dir) = (Fake::new(), tempfile::tempdir().expect("dir"));
    Manners::of(&fake);
    let proxy = proxy(&fake, dir.path()).await;
    let kubelet = Kubelet::before(&proxy).await;
    let file = dir.path().join("a.tar.gz");
    let recording = Recording::begin(&proxy, &file).await;
    // One at a time.
    let wish = r#"{"for_ms":1000,"max_bytes":1000}"#;
    let (status, _) = proxy.by_socket("POST", "/debug/requests", wish).await;
    assert_eq!(status, 409);
    life(&kubelet).await;
    recording.end().await;
    let mode = fs::metadata(&file).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let bytes = unpacked(&file);
    assert!(contains(&bytes, "requests.jsonl holds secrets"));

    let target = Fake::new();
    let manners = Manners::of(&target);
    let (file, to) = (
        file.to_str().expect("utf-8"),
        target.path().display().to_string(),
    );
    let (equal, report) = json(file, &to).await;
    assert!(equal, "{report:#}");
    assert_eq!(report["different"], Value::Array(Vec::new()));
    let unknown = &report["skipped"]["about objects older than the recording"];
    assert_eq!(unknown, 1, "{report:#}");
    let methods: Vec<_> = report["methods"].as_array().expect("rows").iter().collect();
    for method in ["RunPodSandbox", "CreateContainer", "RemovePodSandbox"] {
        assert!(
            methods.iter().any(|row| row["method"] == method),
            "{method}"
        );
    }

    manners.set("CreateContainer", Manner::Fails(Code::NotFound));
    let (equal, report) = json(file, &to).await;
    assert!(!equal);
    let different = report["different"].as_array().expect("calls");
    assert_eq!(different.len(), 1, "{report:#}");
    assert_eq!(different[0]["method"], "CreateContainer");
    assert_eq!(different[0]["pod"], "shop/web");
    assert_eq!(different[0]["recorded"], "OK");
    assert_eq!(different[0]["replayed"], "NOT_FOUND");
    let not_made = &report["skipped"]["about objects that the target did not make"];
    assert_eq!(not_made, 3, "start, probe and status: {report:#}");
    let table = run(&["replay", file, "--to", &to, "--speed", "100"], "").await;
    let table = said(&table);
    assert!(
        table.contains("CreateContainer  shop/web  OK -> NOT_FOUND"),
        "{table}"
    );
    let unused = dir.path().join("unused.sock").display().to_string();
    let gone = said(&run(&["replay", file, "--to", &unused], "").await);
    assert!(gone.contains("cannot connect"), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_without_requests_has_none() {
    let (fake, dir) = (Fake::new(), tempfile::tempdir().expect("dir"));
    Manners::of(&fake);
    let proxy = proxy(&fake, dir.path()).await;
    let kubelet = Kubelet::before(&proxy).await;
    life(&kubelet).await;
    let socket = format!("unix://{}", proxy.admin_socket().display());
    let file = dir.path().join("plain.tar.gz");
    let plain = file.to_str().expect("utf-8");
    let made = run(&["capture", "-o", plain], &socket).await;
    assert!(made.status.success(), "{}", said(&made));
    let bytes = unpacked(&file);
    assert!(!contains(&bytes, SECRET) && !contains(&bytes, "requests.jsonl"));
    // To standard output, as for a pipe: the file, and nothing else.
    let piped = run(&["capture", "-o", "-"], &socket).await;
    assert!(piped.status.success(), "{}", said(&piped));
    fs::write(&file, &piped.stdout).expect("written");
    assert!(contains(&unpacked(&file), "manifest.json"));
    assert!(piped.stderr.is_empty(), "{piped:?}");
    let to = fake.path().display().to_string();
    let refused = run(&["replay", plain, "--to", &to], "").await;
    assert!(!refused.status.success());
    assert!(said(&refused).contains("has no requests"), "{refused:?}");

    // The port is for everybody, and the bounds are those of the daemon.
    let port = format!("127.0.0.1:{}", proxy.admin_port());
    let args = ["capture", "--requests", "--for", "1s", "-o", plain];
    let refused = said(&run(&args, &port).await);
    assert!(refused.contains("as root"), "{refused}");
    let args = ["capture", "--requests", "--for", "2h", "-o", plain];
    let refused = said(&run(&args, &socket).await);
    assert!(refused.contains("between 1 ms and 3600 s"), "{refused}");
    let usage = run(&["capture", "--requests"], &socket).await;
    assert_eq!(usage.status.code(), Some(64), "a recording has an end");
    // Its reader is gone without a word; the recording ends by itself.
    let wish = r#"{"for_ms":300,"max_bytes":1000000}"#;
    let (status, _) = proxy.by_socket("POST", "/debug/requests", wish).await;
    assert_eq!(status, 201);
    // Its time is over after 300 ms.
    tokio::time::sleep(Duration::from_millis(400)).await;
    let (status, part) = proxy.by_socket("POST", "/debug/requests/take", "").await;
    assert!(status == 200 && part.contains("\"over\":true"), "{part}");
}
