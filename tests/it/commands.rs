//! Commands that query a running criscope.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};

use crate::prelude::*;

fn command(proxy: &Proxy, args: &[&str]) -> Command {
    let mut command = Command::new(crate::CRISCOPE);
    command
        .args(args)
        .env(
            "CRISCOPE_ADMIN",
            format!("127.0.0.1:{}", proxy.admin_port()),
        )
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    command
}

/// Runs it to completion, off the fake runtime's thread.
pub(crate) async fn output(proxy: &Proxy, args: &[&str]) -> Output {
    let mut command = command(proxy, args);
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("joined").expect("run")
}

/// Returns the output of a command that must succeed.
pub(crate) async fn printed(proxy: &Proxy, args: &[&str]) -> String {
    let output = output(proxy, args).await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the errors of a command that must exit with 1.
pub(crate) async fn complaint(proxy: &Proxy, args: &[&str]) -> String {
    let output = output(proxy, args).await;
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    String::from_utf8(output.stderr).expect("text")
}

fn run_pod(name: &str) -> Call {
    pods::run(name).with("grpc-timeout", "60S")
}

#[tokio::test]
async fn a_pod_that_does_not_start_is_explained() {
    let fake = Fake::new();
    fake.on(|_| script::error(2, "no network: %1B[31m cni plugin not initialized"));
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    assert_eq!(client.call(run_pod("web-1")).await.code(), 2);
    until_true("its story", async || {
        proxy.get("/debug/pods/shop/web-1").await.0 == 200
    })
    .await;

    for args in [
        ["explain", "shop/web-1"].as_slice(),
        &["explain", "pod/web-1", "-n", "shop"],
        &[
            "explain",
            "web-1",
            "--namespace",
            "shop",
            "--uid",
            "uid-web-1",
            "--all",
        ],
    ] {
        let text = printed(&proxy, args).await;
        assert!(text.contains("RunPodSandbox failed"), "{text}");
        assert!(text.contains("UNKNOWN: no network:"), "{text}");
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text:?}");
        let first = text.lines().next().expect("a first line");
        assert!(first.contains("no CNI configuration is loaded"), "{first}");
        assert!(text.contains("cni plugin not initialized"), "{text}");
    }
    let json = printed(&proxy, &["explain", "shop/web-1", "--json"]).await;
    let json: Value = serde_json::from_str(&json).expect("json");
    assert_eq!(json["episodes"][0]["calls"][0]["code"], "UNKNOWN");

    let table = printed(&proxy, &["pods", "--failed"]).await;
    assert!(table.contains("shop/web-1"), "{table}");
    let none = printed(&proxy, &["pods", "--namespace", "other"]).await;
    assert_eq!(none, "No pod in namespace other; 1 pod is known.\n");
    let json = printed(&proxy, &["pods", "--json", "--slowest", "1"]).await;
    let json: Value = serde_json::from_str(&json).expect("json");
    assert_eq!(json["episodes"].as_array().map(Vec::len), Some(1));

    let error = complaint(&proxy, &["explain", "shop/web1"]).await;
    assert!(error.contains("no record of pod shop/web1"), "{error}");
    assert!(error.contains("did you mean shop/web-1?"), "{error}");
    let error = complaint(&proxy, &["explain", "shop/web-1", "--uid", "another"]).await;
    assert!(error.contains("no record of pod"), "{error}");
}

/// A proxy in front of a runtime without network, after three attempts for each of these pods.
async fn failing(fake: &Fake, names: &[&str]) -> Proxy {
    fake.on(|_| script::error(2, "cni plugin not initialized"));
    let proxy = Proxy::before(crate::CRISCOPE, fake).await;
    let client = proxy.client().await;
    for name in names.iter().cycle().take(3 * names.len()) {
        assert_eq!(client.call(run_pod(name)).await.code(), 2);
    }
    until("their stories", || async {
        let (_, json) = proxy.get("/debug/pods?format=json&by=pod").await;
        let json: Value = serde_json::from_str(&json).ok()?;
        let pods = json["pods"].as_array()?;
        let seen: u64 = pods.iter().filter_map(|it| it["failures"].as_u64()).sum();
        (seen == 3 * names.len() as u64).then_some(())
    })
    .await;
    proxy
}

#[tokio::test]
async fn pods_are_chosen_by_name_namespace_and_state() {
    let fake = Fake::new();
    let long = "recommendation-engine-canary-".repeat(4) + "7d4b9c6f5-x2x9k";
    let proxy = failing(&fake, &["web-1", "db-1", &long]).await;
    let rows = async |args: &[&str]| {
        let table = printed(&proxy, &[&["pods"], args].concat()).await;
        table.lines().count() - 1
    };
    assert_eq!(rows(&[]).await, 3, "one row per pod, not per attempt");
    assert_eq!(rows(&["-A"]).await, 3);
    assert_eq!(rows(&["-n", "shop", "--state", "failing"]).await, 3);
    assert_eq!(rows(&["web"]).await, 1);
    assert_eq!(rows(&["shop/db-1"]).await, 1);
    assert_eq!(rows(&["--slowest", "2"]).await, 2);
    assert_eq!(rows(&["--state", "gone,ok"]).await, 0, "a single line");

    let wide = printed(&proxy, &["pods", "-o", "wide"]).await;
    assert!(wide.contains(&long) && wide.contains("uid-web-1"), "{wide}");
    let json = printed(&proxy, &["pods", "web", "-o", "json"]).await;
    let json: Value = serde_json::from_str(&json).expect("json");
    let pod = &json["pods"][0];
    assert_eq!(
        (&pod["name"], &pod["state"]),
        (&"web-1".into(), &"failing".into())
    );
    assert_eq!((&json["known"], &pod["failures"]), (&3.into(), &3.into()));
    let yaml = printed(&proxy, &["pods", "web", "-o", "yaml"]).await;
    assert!(
        yaml.contains("state: failing") && yaml.contains("name: web-1"),
        "{yaml}"
    );
    let story = printed(&proxy, &["explain", "shop/web-1", "-o", "yaml"]).await;
    assert!(story.contains("headline: ") && story.contains("method: RunPodSandbox"));

    // The width, as watch(1) sets it.
    for columns in ["60", "80", "120"] {
        let mut command = command(&proxy, &["pods"]);
        command.env("COLUMNS", columns);
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = run.await.expect("joined").expect("run");
        let table = String::from_utf8(output.stdout).expect("text");
        let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= columns.parse().ok(), "{columns}: {table}");
        assert!(
            table.contains("-x2x9k") && words.contains("no CNI configuration is loaded"),
            "{table}"
        );
    }

    let said = printed(&proxy, &["explain", "shop/web-1"]).await;
    assert!(
        said.contains("3 tries, ") && said.contains("RunPodSandbox failed 3 times"),
        "{said}"
    );
    assert_eq!(
        said.matches("UNKNOWN: ").count(),
        1,
        "the last one in full: {said}"
    );
    let error = complaint(&proxy, &["explain", "web"]).await;
    assert!(error.contains("did you mean shop/web-1?"), "{error}");
}

#[tokio::test]
async fn empty_results_are_stated() {
    let (_fake, proxy) = proxied().await;
    let text = printed(&proxy, &["pods"]).await;
    assert_eq!(
        text,
        "No pod has been started, restarted or stopped through this criscope yet, and its runtimes list none.\n"
    );
    let text = printed(&proxy, &["calls"]).await;
    assert!(text.contains("No call is in flight.") && text.contains("No call has ended yet."));
    assert_eq!(printed(&proxy, &["calls", "--json"]).await, "[]\n");
    let error = complaint(&proxy, &["explain", "web"]).await;
    assert!(error.contains("no record of pod default/web"), "{error}");
}

#[tokio::test]
async fn connection_errors_have_a_hint() {
    let fake = Fake::new();
    let start = crate::harness::proxy::Start::before(crate::CRISCOPE, &fake);
    let proxy = start.config("[admin]\ndebug = false\n").ready().await;
    for args in [["pods"].as_slice(), &["explain", "a/b"], &["calls"]] {
        let error = complaint(&proxy, args).await;
        assert!(error.contains("has no /debug/"), "{error}");
        assert!(
            error.contains("hint: the configuration may have admin.debug = false"),
            "{error}"
        );
        let away = [args, &["--admin", "127.0.0.1:1"]].concat();
        let error = complaint(&proxy, &away).await;
        assert!(error.contains("cannot connect to 127.0.0.1:1"), "{error}");
        assert!(error.contains("hint: is criscope running"), "{error}");
    }
}

/// A pseudoterminal of 24 lines and 100 columns: the master, and the slave for a program. Both are close-on-exec,
/// because a child of another test would keep them open.
pub(crate) fn terminal() -> (File, File) {
    let both = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = posix_openpt(both).expect("a terminal");
    grantpt(&master).expect("granted");
    unlockpt(&master).expect("unlocked");
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NOCTTY.bits());
    let slave = options
        .open(ptsname_r(&master).expect("a name"))
        .expect("open");
    let status = Command::new(program("stty", "coreutils"))
        .args(["rows", "24", "cols", "100"])
        .stdin(slave.try_clone().expect("a copy"))
        .status();
    assert!(status.expect("start stty").success());
    (File::from(OwnedFd::from(master)), slave)
}

/// Runs a command in a terminal, ends it by Ctrl-C once it has shown `shop/web-1` this many times, and returns what it wrote.
async fn watched(proxy: &Proxy, args: &[&str], times: usize) -> String {
    let (mut screen, terminal) = terminal();
    let mut child = command(proxy, args)
        .stdout(terminal)
        .spawn()
        .expect("started");
    let pid = Pid::from_raw(child.id().try_into().expect("pid"));
    let reading = tokio::task::spawn_blocking(move || {
        let (mut text, mut bytes, mut told) = (String::new(), [0; 4096], false);
        loop {
            match screen.read(&mut bytes) {
                Ok(0) => break,
                Ok(n) => text.push_str(&String::from_utf8_lossy(&bytes[..n])),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The slave is closed (EIO).
                Err(_) => break,
            }
            if !told && text.matches("shop/web-1").count() >= times {
                told = true;
                kill(pid, Signal::SIGINT).expect("signal");
            }
        }
        text
    });
    let text = reading.await.expect("joined");
    let status = child.wait().expect("waited");
    assert!(status.success(), "{status}: {text}");
    text
}

#[tokio::test]
async fn watching_calls_restores_the_screen() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, Step::Hang]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let _call = client.start(run_pod("web-1")).await;
    fake.wait_count(1).await;

    // Two frames.
    let text = watched(&proxy, &["calls", "--interval", "100ms"], 2).await;
    assert!(text.starts_with("\u{1b}[?1049h\u{1b}[?25l"), "{text:?}");
    assert!(text.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{text:?}");
    assert!(text.contains("1 in flight"), "{text:?}");
}

#[tokio::test]
async fn watching_pods_updates_their_times() {
    let fake = Fake::new();
    let proxy = failing(&fake, &["web-1"]).await;
    let text = watched(&proxy, &["pods", "-w"], 3).await;
    let rows: std::collections::BTreeSet<_> = text
        .lines()
        .filter(|line| line.contains("shop/web-1"))
        .collect();
    assert!(rows.len() >= 3, "the time changes: {rows:?}");
    assert!(
        text.contains("The only pod cannot start: 1 CNI."),
        "{text:?}"
    );
    assert!(text.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{text:?}");
}

#[tokio::test]
async fn status_and_version_report_the_daemon_and_its_runtime() {
    let (fake, proxy) = proxied().await;
    let text = printed(&proxy, &["version"]).await;
    let [client, server, runtime] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    assert_eq!(client.replace("Client", "Server"), server);
    assert!(runtime.starts_with("Runtime: "), "{runtime}");
    let text = printed(&proxy, &["version", "-o", "json"]).await;
    let versions: Value = serde_json::from_str(&text).expect("json");
    assert_eq!(versions["client"], versions["server"]);
    let text = printed(&proxy, &["version", "--client"]).await;
    assert_eq!(text.lines().count(), 1, "{text}");

    let text = printed(&proxy, &["status"]).await;
    assert!(text.starts_with("ok    criscope  0."), "{text}");
    assert!(text.contains("\nok    backend   "), "{text}");
    assert!(text.contains("pods      no pod was started"), "{text}");
    drop(fake);
    until_true("the backend is down", async || {
        let output = output(&proxy, &["status", "-o", "json"]).await;
        let report: Value = serde_json::from_slice(&output.stdout).expect("json");
        let down = report["level"] == "fail";
        assert_eq!(report["backends"][0]["up"], !down, "{report}");
        assert_eq!(output.status.code(), Some(i32::from(down)));
        down
    })
    .await;
}

#[tokio::test]
async fn without_a_daemon_the_version_of_the_client_is_printed() {
    let dead = ["version", "--admin", "127.0.0.1:1"];
    let run =
        tokio::task::spawn_blocking(move || Command::new(crate::CRISCOPE).args(dead).output());
    let output = run.await.expect("joined").expect("run");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.starts_with(b"Client:  criscope "));
    assert!(
        output
            .stderr
            .starts_with(b"error: cannot connect to 127.0.0.1:1")
    );
}

#[test]
fn habits_of_kubectl_get_a_hint() {
    let output = Command::new(crate::CRISCOPE).arg("get").output();
    let output = output.expect("run");
    assert_eq!(output.status.code(), Some(64));
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(
        text.ends_with("hint: criscope pods, criscope explain NAMESPACE/POD\n"),
        "{text}"
    );
}

#[tokio::test]
async fn the_commands_read_over_the_socket_too() {
    let (_fake, proxy) = proxied().await;
    let socket = format!("unix://{}", proxy.admin_socket().display());
    let text = printed(&proxy, &["calls", "--once", "--admin", &socket]).await;
    assert!(text.contains(&socket), "{text}");
    printed(&proxy, &["pods", "--admin", &socket]).await;
}

#[test]
fn the_version_names_the_commit_that_was_built() {
    let output = |command: &mut Command| {
        let output = command.output().ok().filter(|o| o.status.success())?;
        Some(String::from_utf8(output.stdout).expect("text"))
    };
    let printed = output(Command::new(crate::CRISCOPE).arg("--version"));
    let printed = printed.expect("criscope --version");
    let root = env!("CARGO_MANIFEST_DIR");
    let commit = match option_env!("CRISCOPE_COMMIT") {
        Some(commit) => Some(commit.to_owned()),
        // A source archive has no commit.
        None if !Path::new(root).join(".git").exists() => None,
        None => output(Command::new("git").args(["-C", root, "rev-parse", "HEAD"])),
    };
    let commit = commit.filter(|commit| !commit.is_empty());
    let commit = commit.map_or_else(String::new, |commit| format!(" ({:.12})", commit.trim()));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(printed, format!("criscope {version}{commit}\n"));
}
