//! The agent as in its pod, with uid and gid of the manifests, in front of a daemon that is no stand-in: over the socket for agents, with
//! the permissions that the daemon gives it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::agent::{AGENT, free_address, get};
use crate::api::Api;
use crate::plugin::PLUGIN;
use crate::support::{run, until};

/// The file of the configuration, for the process that becomes the daemon.
const CONFIG: &str = "CRISCOPE_TEST_DAEMON_CONFIG";

/// The user and the group of the pod.
const AGENT_ID: u32 = 65_532;
const NOBODY: u32 = 65_534;

/// Becomes the daemon where a test starts this program again; nothing to do otherwise.
#[test]
fn becomes_the_daemon() {
    let Some(config) = std::env::var_os(CONFIG) else {
        return;
    };
    let arguments = ["criscope", "serve", "--config"].map(Into::into);
    let result = criscope::cli::run(arguments.into_iter().chain([config]));
    assert!(result.is_ok(), "{result:?}");
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon without a runtime behind it, and a program that every user can execute.
struct Node {
    dir: tempfile::TempDir,
    daemon: Option<Running>,
}

impl Node {
    async fn start() -> Self {
        assert!(rustix::process::geteuid().is_root(), "needs root");
        let dir = tempfile::tempdir().expect("a directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("opened");
        fs::copy(AGENT, dir.path().join("criscope-agent")).expect("copied");
        let at = |name: &str| format!("unix://{}", dir.path().join(name).display());
        let config = dir.path().join("criscope.toml");
        let text = format!(
            "[server]\nlisten = {:?}\n[admin]\nlisten = \"off\"\nagent_socket = {:?}\n\
             [backends.none]\nkind = \"upstream\"\nendpoint = {:?}\n",
            at("criscope.sock"),
            at("agent/criscope.sock"),
            at("none.sock")
        );
        fs::write(&config, text).expect("written");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "real_daemon::becomes_the_daemon", "--nocapture"])
            .env(CONFIG, &config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let daemon = Some(Running(command.spawn().expect("started")));
        let node = Self { dir, daemon };
        until("the socket for agents", async || {
            node.socket().exists().then_some(())
        })
        .await;
        node
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("agent/criscope.sock")
    }

    fn address(&self) -> String {
        format!("--daemon=unix://{}", self.socket().display())
    }

    /// The program as a user with a group of the same number.
    fn program(&self, id: u32) -> Command {
        let mut command = Command::new(self.dir.path().join("criscope-agent"));
        command
            .uid(id)
            .gid(id)
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    fn check(&self, id: u32, expect: &str) -> (bool, String) {
        let mut command = self.program(id);
        command.args(["check", expect, &self.address()]);
        let output: Output = command.output().expect("run");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_of_a_pod_reads_the_daemon_over_its_socket() {
    let (api, node) = (Api::start().await, Node::start().await);
    let kubeconfig = api.kubeconfig("agent");
    let readable = node.dir.path().join("kubeconfig");
    let text = fs::read_to_string(&kubeconfig).expect("read");
    let ca = node.dir.path().join("ca.crt");
    fs::copy(&api.ca, &ca).expect("copied");
    let ours = |path: &Path| path.display().to_string();
    fs::write(&readable, text.replace(&ours(&api.ca), &ours(&ca))).expect("written");
    let address = free_address();
    let mut command = node.program(AGENT_ID);
    command
        .args(["serve", "--node=node-1", "--events=true"])
        .arg(format!("--listen={address}"))
        .arg(node.address())
        .env("KUBECONFIG", &readable);
    let _agent = Running(command.spawn().expect("started"));
    until("the agent", async || {
        tokio::net::TcpStream::connect(address).await.ok()
    })
    .await;
    let (status, metrics) = get(
        address,
        "/metrics",
        &[("authorization", "Bearer prometheus")],
    )
    .await;
    assert_eq!(status.as_u16(), 200, "{metrics}");
    assert!(metrics.contains("criscope_build_info"), "{metrics}");
    // There is no runtime.
    let (status, text) = get(address, "/readyz", &[]).await;
    assert_eq!((status.as_u16(), &*text), (503, "criscope is not ready\n"));
    // Through the API server, with the rights of a user.
    api.add_pod("criscope", "criscope-1", Some("node-1"), Some(address));
    let output = run(PLUGIN, &["pods", "-A"], &api.kubeconfig("alice")).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.is_empty(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readiness_of_an_installer_is_that_of_the_node() {
    let mut node = Node::start().await;
    until("an answer", async || {
        let (ok, text) = node.check(AGENT_ID, "--expect=ready");
        assert!(!ok, "there is no runtime");
        text.contains("criscope is not ready (503").then_some(())
    })
    .await;
    let (ok, text) = node.check(AGENT_ID, "--expect=absent");
    assert!(!ok && text.contains("still runs"), "{text}");
    // Whoever may not connect does not take it for absent.
    for expect in ["--expect=ready", "--expect=absent"] {
        let (ok, text) = node.check(NOBODY, expect);
        assert!(!ok && text.contains("Permission denied"), "{text}");
    }
    drop(node.daemon.take());
    let (ok, text) = node.check(AGENT_ID, "--expect=absent");
    assert!(ok, "{text}");
    assert!(!node.check(AGENT_ID, "--expect=ready").0);
}
