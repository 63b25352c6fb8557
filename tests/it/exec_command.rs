//! `criscope exec`, with the built-in runtime, with a real containerd, and through the proxy in front of it.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::process::Child;

use nix::sys::termios::{LocalFlags, tcgetattr};

use crate::commands::terminal;
use crate::containerd::Node;
use crate::containerd::pod::{make, sandbox_config, unmake};
use crate::prelude::*;
use crate::streaming::tls::certificate;

fn exec(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crate::CRISCOPE);
    command.arg("exec").arg("--endpoint").arg(socket).args(args);
    command
}

async fn done(mut command: Command, input: &'static [u8]) -> Output {
    let run = move || {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut stdin = child.stdin.take().expect("a pipe");
        let writer = std::thread::spawn(move || {
            // A command that does not read may have ended.
            let _ = stdin.write_all(input);
        });
        let output = child.wait_with_output().expect("ended");
        writer.join().expect("written");
        output
    };
    let run = tokio::task::spawn_blocking(run);
    soon("the end of exec", run).await.expect("joined")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Outputs, exit code and input of commands, with these flags.
async fn commands_run(socket: &Path, flags: &[&str], target: &str, is_sync: bool) {
    let with = |more: &[&'static str], script: &'static str| {
        let args = [flags, more, &[target, "--", "/bin/sh", "-c", script]].concat();
        exec(socket, &args)
    };
    let both = done(with(&[], "echo to out; echo to err >&2; exit 7"), b"").await;
    let said = (text(&both.stdout), text(&both.stderr), both.status.code());
    let wanted = ("to out\n".to_owned(), "to err\n".to_owned(), Some(7));
    assert_eq!(said, wanted, "{flags:?}");
    let good = done(with(&[], "exit 0"), b"").await;
    assert_eq!(good.status.code(), Some(0), "{}", text(&good.stderr));
    if is_sync {
        return;
    }
    // More than any buffer in between, and its end is seen.
    let large: &'static [u8] = vec![b'x'; 3 << 20].leak();
    let echoed = done(with(&["-i"], "cat; echo the end >&2"), large).await;
    assert!(echoed.stdout == large, "{} bytes", echoed.stdout.len());
    assert_eq!(text(&echoed.stderr), "the end\n");
    // Without -i there is no input.
    let ignored = done(with(&[], "cat"), b"not for the command").await;
    assert_eq!(
        (text(&ignored.stdout), ignored.status.code()),
        (String::new(), Some(0))
    );
}

async fn is_refused(socket: &Path, args: &[&str], why: &str) {
    let output = done(exec(socket, args), b"").await;
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
    assert!(errors.contains(why), "{args:?}: {errors}");
}

/// A session in a terminal of the test.
struct InTerminal {
    child: Child,
    screen: File,
    slave: File,
    shown: Arc<Mutex<String>>,
}

impl InTerminal {
    /// The terminal is the controlling one, so that its size is told by a signal.
    fn start(socket: &Path, target: &str, script: &str) -> Self {
        let (screen, slave) = terminal();
        let exec = exec(socket, &["-it", target, "--", "/bin/sh", "-c", script]);
        let copy = || slave.try_clone().expect("a copy");
        // The end of a session leader resets its terminal: the mode is compared before.
        let leader = r#"before=$(stty -g); "$@"; code=$?; [ "$before" = "$(stty -g)" ] || exit 99; exit $code"#;
        let mut command = Command::new(program("setsid", "util-linux"));
        command.args(["--ctty", "--wait", "sh", "-c", leader, "sh"]);
        command.arg(exec.get_program()).args(exec.get_args());
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = command.spawn().expect("started");
        let shown = Arc::<Mutex<String>>::default();
        let (mut reader, all) = (screen.try_clone().expect("a copy"), Arc::clone(&shown));
        // Ends with the last of the slaves.
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            loop {
                match reader.read(&mut bytes) {
                    Ok(n) => lock(&all).push_str(&text(&bytes[..n])),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        });
        Self {
            child,
            screen,
            slave,
            shown,
        }
    }

    async fn shows(&self, wanted: &str) {
        until_true(wanted, async || lock(&self.shown).contains(wanted)).await;
    }

    fn types(&mut self, keys: &str) {
        self.screen.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits for the output of a trap. The shell runs it once a read returns; the signal may arrive right before a read.
    async fn traps(&mut self, wanted: &str) {
        until(wanted, || {
            self.types("\r");
            let is_shown = lock(&self.shown).contains(wanted);
            async move { is_shown.then_some(()) }
        })
        .await;
    }

    fn has_size(&self, rows: &str, columns: &str) {
        let status = Command::new(program("stty", "coreutils"))
            .args(["rows", rows, "cols", columns])
            .stdin(self.slave.try_clone().expect("a copy"))
            .status();
        assert!(status.expect("stty").success());
    }

    fn is_raw(&self) -> bool {
        let mode = tcgetattr(&self.slave).expect("a terminal");
        !mode.local_flags.contains(LocalFlags::ICANON)
    }

    /// The process of criscope.
    fn pid(&self) -> Pid {
        let leader = self.child.id();
        let path = format!("/proc/{leader}/task/{leader}/children");
        let children = std::fs::read_to_string(path).expect("children");
        Pid::from_raw(children.trim().parse().expect("one child"))
    }

    /// Waits for the end and returns the exit code; 99 if the mode of the terminal is not that of the begin.
    async fn ended(mut self) -> Option<i32> {
        let child = &mut self.child;
        let status = until("the end of the session", || {
            let status = child.try_wait().expect("a child");
            async move { status }
        })
        .await;
        status.code()
    }
}

async fn a_terminal_works(socket: &Path, target: &str) {
    // A signal, as of the first size, interrupts a read.
    let script = "trap 'echo interrupted' INT; trap 'echo size: $(stty size)' WINCH; stty size; echo ready; \
        while :; do read line; case $line in [0-9]*) exit $line;; ?*) echo line: $line;; esac; done";
    let mut session = InTerminal::start(socket, target, script);
    session.shows("24 100").await;
    session.shows("ready").await;
    until_true("raw mode", async || session.is_raw()).await;
    session.types("hello\r");
    session.shows("line: hello").await;
    // One signal after the other: an interrupt would also end the `stty` of the other trap.
    session.has_size("30", "90");
    session.traps("size: 30 90").await;
    session.types("\u{3}");
    session.traps("interrupted").await;
    session.types("9\r");
    assert_eq!(session.ended().await, Some(9));

    // A signal from outside.
    let session = InTerminal::start(socket, target, "echo ready; sleep 1000");
    session.shows("ready").await;
    until_true("raw mode", async || session.is_raw()).await;
    kill(session.pid(), Signal::SIGTERM).expect("sent");
    assert_eq!(session.ended().await, Some(128 + 15));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_containers_of_the_built_in_runtime() {
    let (daemon, kubelet, pod) = node_with_pod("user").await;
    let socket = daemon.socket();
    let container = kubelet.launch(&pod, idle("app")).await;
    for flags in [&[][..], &["--transport", "websocket"]] {
        commands_run(&socket, flags, &container, false).await;
    }
    commands_run(&socket, &["--sync"], "test/user/app", true).await;
    a_terminal_works(&socket, "test/user").await;
    is_refused(
        &socket,
        &["test/user/no", "--", "ls"],
        "no running container",
    )
    .await;
    is_refused(&socket, &[&container, "--", "/no/such"], "/no/such").await;
    let late = ["--sync", "--timeout", "1s", &container, "sleep", "100"];
    is_refused(&socket, &late, "ExecSync: DEADLINE_EXCEEDED").await;
    kubelet.stop(&container, 0).await;
    is_refused(&socket, &[&container[..9], "--", "ls"], "is not running").await;
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_in_containers_of_containerd() {
    let node = Node::new().await;
    let (pod, container) = make(&node.kubelet, &sandbox_config(&node.containerd)).await;
    for socket in [node.proxy.socket(), node.containerd.socket()] {
        commands_run(&socket, &[], &container[..12], false).await;
        commands_run(&socket, &["--sync"], &container, true).await;
        a_terminal_works(&socket, "shop/web/app").await;
        // This containerd has version 4 of the protocol, which cannot end the input.
        let websocket = ["--transport", "websocket", &container, "--", "ls"];
        is_refused(
            &socket,
            &websocket,
            "hint: the runtime may speak another --transport",
        )
        .await;
    }
    unmake(&node.kubelet, &pod, &container).await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_tls_is_verified() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = certificate(dir.path());
    let containerd = Containerd::with_tls(&files).await;
    let socket = containerd.socket();
    let kubelet = Kubelet::of_containerd(&containerd).await;
    let (pod, container) = make(&kubelet, &sandbox_config(&containerd)).await;
    let ca = files.cert.to_str().expect("a path");
    let flags = ["--tls-ca", ca, "--tls-server-name", "127.0.0.1"];
    commands_run(&socket, &flags, &container, false).await;
    is_refused(&socket, &[&container, "ls"], "TLS to 127.0.0.1").await;
    let name = ["--tls-server-name", "other.example", &container, "ls"];
    let other = [&["--tls-ca", ca][..], &name[..]].concat();
    is_refused(&socket, &other, "certificate").await;
    unmake(&kubelet, &pod, &container).await;
    crate::containerd::end(containerd);
}
