//! criscope-shim with the real runc: needs root, runc and a static busybox. What it leaves behind is an error.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope::runtime::process::{
    Attach, Create, Error, Event, Exec, Exit, Fate, Kill, Launch, Output, Resize, Runtime, Shim,
    Stdio, Target, Verb, account,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

/// A pod's directory with its shim. Dropped, everything in it is ended.
struct Pod {
    dir: tempfile::TempDir,
    shim: Shim,
    shim_pid: u32,
}

impl Drop for Pod {
    fn drop(&mut self) {
        for (id, fate) in account(&self.path("state")).expect("records") {
            let runc = |args: &[&str]| {
                let mut command = std::process::Command::new("runc");
                let _ = command
                    .arg("--root")
                    .arg(self.path("runc"))
                    .args(args)
                    .arg(&id)
                    .output();
            };
            runc(&["delete", "--force"]);
            let _ = fate;
        }
        // A direct child of nobody: the pid is that of our shim, or of nothing any more.
        if fs::read(format!("/proc/{}/cmdline", self.shim_pid))
            .is_ok_and(|line| holds(&line, self.dir.path()))
        {
            let _ = kill(Pid::from_raw(self.shim_pid as i32), Signal::SIGKILL);
        }
    }
}

fn holds(cmdline: &[u8], path: &Path) -> bool {
    String::from_utf8_lossy(cmdline).contains(&path.display().to_string())
}

impl Pod {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let state = dir.path().join("state");
        fs::create_dir(&state).expect("state");
        let program = PathBuf::from(env!("CARGO_BIN_EXE_criscope-shim"));
        let shim = Shim::launch(&Launch {
            program,
            dir: state,
            cgroups: Vec::new(),
        })
        .await
        .expect("shim");
        let shim_pid = shim.state().await.expect("state").pid;
        Self {
            dir,
            shim,
            shim_pid,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn runtime(&self) -> Runtime {
        let argv = ["runc".to_owned(), "--root".to_owned(), self.text("runc")];
        Runtime {
            argv: argv.to_vec(),
            timeout_ms: 20_000,
            ..Runtime::default()
        }
    }

    fn verb(&self, id: &str) -> Verb {
        Verb {
            id: id.into(),
            runtime: self.runtime(),
        }
    }

    fn bundle(&self, id: &str, script: &str, tty: bool, memory: Option<u64>) -> String {
        let bundle = self.path(id);
        let bin = bundle.join("rootfs/bin");
        fs::create_dir_all(&bin).expect("bin");
        for dir in ["proc", "dev", "tmp"] {
            fs::create_dir(bundle.join("rootfs").join(dir)).expect("dir");
        }
        fs::copy("/usr/bin/busybox", bin.join("busybox")).expect("busybox");
        for applet in ["sh", "cat", "sleep", "dd", "stty", "tail", "head"] {
            symlink("busybox", bin.join(applet)).expect("applet");
        }
        let limit = memory.map_or(
            json!({}),
            |limit| json!({"memory": {"limit": limit, "swap": limit}}),
        );
        let name = self
            .dir
            .path()
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        let spec = json!({
            "ociVersion": "1.0.2",
            "process": process(script, tty),
            "root": {"path": "rootfs"},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"]},
            ],
            "linux": {
                "cgroupsPath": format!("/criscope-shim-test{name}-{id}"),
                "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}],
                "resources": limit,
            },
        });
        fs::write(bundle.join("config.json"), spec.to_string()).expect("config");
        bundle.display().to_string()
    }

    async fn create(&self, id: &str, script: &str, stdio: Stdio) -> u32 {
        let bundle = self.bundle(id, script, stdio.tty, None);
        let create = Create {
            id: id.into(),
            bundle,
            stdio,
            runtime: self.runtime(),
        };
        self.shim.create(create).await.expect("create")
    }

    /// Creates, starts and waits for the end of a script.
    async fn run(&self, id: &str, script: &str) -> Exit {
        let mut events = self.shim.events();
        let stdio = Stdio {
            log: self.text(&format!("{id}.log")),
            ..Stdio::default()
        };
        self.create(id, script, stdio).await;
        self.shim.start(self.verb(id)).await.expect("start");
        exit(&mut events, id, "").await
    }

    fn log(&self, id: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{id}.log"))).expect("log");
        text.lines()
            .map(|line| line.split_once(' ').expect("time").1.to_owned())
            .collect()
    }

    async fn end(self, ids: &[&str]) {
        for id in ids {
            self.shim.delete(self.verb(id)).await.expect("delete");
        }
        self.shim.shutdown(false).await.expect("shutdown");
        let left: Vec<_> = fs::read_dir(self.path("state"))
            .expect("state")
            .map(|e| e.expect("entry").file_name())
            .collect();
        assert_eq!(left, ["shim.lock"], "files left");
        let name = self
            .dir
            .path()
            .file_name()
            .expect("name")
            .to_string_lossy()
            .into_owned();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").expect("cgroups") {
            for group in fs::read_dir(hierarchy.expect("entry").path())
                .into_iter()
                .flatten()
            {
                let group = group
                    .expect("entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned();
                assert!(!group.contains(&name), "cgroup {group} is left");
            }
        }
        assert!(
            !fs::read_to_string("/proc/self/mounts")
                .expect("mounts")
                .contains(&name),
            "a mount is left"
        );
        until(|| has_ended(self.shim_pid)).await;
    }
}

/// Whether a process is gone, or waits for an init of the machine that reaps when it likes.
fn has_ended(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

fn process(script: &str, tty: bool) -> serde_json::Value {
    json!({"args": ["/bin/sh", "-c", script], "cwd": "/", "env": ["PATH=/bin"], "terminal": tty, "user": {"uid": 0, "gid": 0}})
}

fn target(id: &str, exec: &str) -> Target {
    Target {
        container: id.into(),
        exec: exec.into(),
    }
}

fn everything(id: &str, exec: &str) -> Attach {
    Attach {
        target: target(id, exec),
        stdin: true,
        stdout: true,
        stderr: true,
    }
}

async fn exit(events: &mut tokio::sync::broadcast::Receiver<Event>, id: &str, exec: &str) -> Exit {
    let wait = async {
        loop {
            if let Event::Exit(exit) = events.recv().await.expect("events")
                && exit.target == target(id, exec)
            {
                return exit;
            }
        }
    };
    timeout(PATIENCE, wait).await.expect("no exit")
}

async fn until(mut done: impl FnMut() -> bool) {
    let wait = async {
        while !done() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("never happened");
}

/// Reads stdout until it has `wanted`, or everything if that is empty.
async fn read(
    attached: &mut criscope::runtime::process::Attached,
    wanted: &str,
) -> (String, String) {
    let (mut out, mut err) = (String::new(), String::new());
    let mut open = 2;
    let read = async {
        while open > 0 && (wanted.is_empty() || !out.contains(wanted)) {
            match attached.next().await {
                Some(Output::Stdout(data) | Output::Stderr(data)) if data.is_empty() => open -= 1,
                Some(Output::Stdout(data)) => out.push_str(&String::from_utf8_lossy(&data)),
                Some(Output::Stderr(data)) => err.push_str(&String::from_utf8_lossy(&data)),
                None => break,
            }
        }
    };
    timeout(PATIENCE, read)
        .await
        .unwrap_or_else(|_| panic!("no {wanted:?}"));
    (out, err)
}

#[tokio::test]
async fn exit_codes_and_logs() {
    let pod = Pod::new().await;
    let ended = pod.run("a", "echo out; echo err >&2; head -c 20000 /dev/zero | tr '\\0' x; echo; printf tail; exit 7").await;
    assert_eq!((ended.code, ended.signal, ended.oom_kills), (7, 0, 0));
    // What has ended is logged in full before its end is told.
    let log = pod.log("a");
    assert!(log.contains(&"stderr F err".to_owned()), "{log:?}");
    let out: Vec<_> = log
        .iter()
        .filter_map(|line| line.strip_prefix("stdout "))
        .collect();
    assert_eq!(out.first(), Some(&"F out"));
    assert_eq!(out.last(), Some(&"P tail"));
    let state = pod.shim.state().await.expect("state");
    assert_eq!(state.processes[0].exit, Some(ended.clone()));
    let fates = account(&pod.path("state")).expect("fates");
    assert_eq!(
        fates["a"],
        Fate::Ended {
            code: 7,
            signal: 0,
            oom_kills: 0,
            at: ended.at
        }
    );
    assert!(matches!(
        pod.shim.start(pod.verb("b")).await,
        Err(Error::NotFound(_))
    ));
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_failed_create_says_why_and_leaves_nothing() {
    let pod = Pod::new().await;
    let create = Create {
        id: "a".into(),
        bundle: pod.text("none"),
        runtime: pod.runtime(),
        ..Create::default()
    };
    match pod.shim.create(create).await {
        Err(Error::Runtime(words)) => assert!(words.contains("none"), "{words}"),
        other => panic!("{other:?}"),
    }
    assert!(pod.shim.state().await.expect("state").processes.is_empty());
    pod.end(&[]).await;
}

#[tokio::test]
async fn two_attach_and_stdin_ends_once() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create(
        "a",
        "cat; echo over >&2",
        Stdio {
            stdin: true,
            stdin_once: true,
            ..Stdio::default()
        },
    )
    .await;
    let (mut first, mut input) = pod.shim.attach(everything("a", "")).await.expect("attach");
    let (mut second, _none) = pod
        .shim
        .attach(Attach {
            stdin: false,
            ..everything("a", "")
        })
        .await
        .expect("attach");
    pod.shim.start(pod.verb("a")).await.expect("start");
    let big = "0123456789abcdef".repeat(20_000);
    let (sent, one, two) = tokio::join!(
        async {
            input.write(big.as_bytes()).await?;
            input.end().await
        },
        read(&mut first, ""),
        read(&mut second, ""),
    );
    sent.expect("sent");
    assert_eq!((one.0.len(), one.0 == big), (big.len(), true));
    assert_eq!(one.1, "over\n");
    assert!(one == two, "both see the same");
    assert_eq!(exit(&mut events, "a", "").await.code, 0);
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_terminal() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    let stdio = Stdio {
        tty: true,
        stdin: true,
        log: pod.text("a.log"),
        ..Stdio::default()
    };
    pod.create("a", "read x; stty size; echo got $x; exit 3", stdio)
        .await;
    let (mut attached, mut input) = pod.shim.attach(everything("a", "")).await.expect("attach");
    pod.shim
        .resize(Resize {
            target: target("a", ""),
            width: 101,
            height: 37,
        })
        .await
        .expect("resize");
    pod.shim.start(pod.verb("a")).await.expect("start");
    input.write(b"it\n").await.expect("input");
    let (out, _) = read(&mut attached, "got it").await;
    assert!(out.contains("37 101\r\n"), "{out:?}");
    assert_eq!(exit(&mut events, "a", "").await.code, 3);
    assert!(
        pod.log("a").contains(&"stdout F got it".to_owned()),
        "{:?}",
        pod.log("a")
    );
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn execs_and_signals() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create("a", "sleep 1000", Stdio::default()).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    fs::write(
        pod.path("exec.json"),
        process("cat; echo err >&2; exit 9", false).to_string(),
    )
    .expect("process");
    let stdio = Stdio {
        hold: true,
        stdin: true,
        ..Stdio::default()
    };
    let exec = |name: &str| Exec {
        target: target("a", name),
        process: pod.text("exec.json"),
        stdio: stdio.clone(),
        runtime: pod.runtime(),
    };
    pod.shim.exec(exec("e1")).await.expect("exec");
    let (mut attached, mut input) = pod
        .shim
        .attach(everything("a", "e1"))
        .await
        .expect("attach");
    input.write(b"hello").await.expect("input");
    input.end().await.expect("end");
    assert_eq!(
        read(&mut attached, "").await,
        ("hello".to_owned(), "err\n".to_owned())
    );
    assert_eq!(exit(&mut events, "a", "e1").await.code, 9);
    pod.shim.forget(target("a", "e1")).await.expect("forget");

    pod.shim.exec(exec("e2")).await.expect("exec");
    pod.shim
        .kill(Kill {
            target: target("a", "e2"),
            signal: 9,
            all: false,
        })
        .await
        .expect("kill");
    assert_eq!(exit(&mut events, "a", "e2").await.code, 137);
    // What ends before anybody attaches is kept for who does.
    fs::write(
        pod.path("exec.json"),
        process("echo kept", false).to_string(),
    )
    .expect("process");
    pod.shim.exec(exec("e3")).await.expect("exec");
    exit(&mut events, "a", "e3").await;
    let (mut attached, _input) = pod
        .shim
        .attach(everything("a", "e3"))
        .await
        .expect("attach");
    assert_eq!(read(&mut attached, "").await.0, "kept\n");

    pod.shim
        .kill(Kill {
            target: target("a", ""),
            signal: 9,
            all: true,
        })
        .await
        .expect("kill");
    assert_eq!(exit(&mut events, "a", "").await.code, 137);
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn execs_that_end_together_are_kept_until_they_are_forgotten() {
    const MANY: usize = 80;
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create("a", "sleep 1000", Stdio::default()).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let script = "until [ -e /end ]; do sleep 0.1; done; echo kept";
    let exec = pod.path("exec.json");
    fs::write(&exec, process(script, false).to_string()).expect("process");
    for number in 0..MANY {
        let exec = Exec {
            target: target("a", &number.to_string()),
            process: pod.text("exec.json"),
            stdio: Stdio {
                hold: true,
                ..Stdio::default()
            },
            runtime: pod.runtime(),
        };
        pod.shim.exec(exec).await.expect("exec");
    }
    // Asked for while it runs, done when it has ended.
    pod.shim.forget(target("a", "0")).await.expect("forget");
    let known = || async { pod.shim.state().await.expect("state").processes.len() };
    assert_eq!(known().await, MANY + 1);
    fs::write(pod.path("a/rootfs/end"), "").expect("end");
    let mut left = MANY;
    while left > 0 {
        let event = timeout(PATIENCE, events.recv()).await.expect("an end");
        left -= usize::from(matches!(event, Ok(Event::Exit(_))));
    }
    assert_eq!(known().await, MANY);
    for number in 1..MANY {
        let name = number.to_string();
        let (mut attached, _input) = pod
            .shim
            .attach(everything("a", &name))
            .await
            .expect("what was kept");
        assert_eq!(read(&mut attached, "").await.0, "kept\n");
        pod.shim.forget(target("a", &name)).await.expect("forget");
    }
    assert_eq!(known().await, 1);
    pod.shim
        .kill(Kill {
            target: target("a", ""),
            signal: 9,
            all: true,
        })
        .await
        .expect("kill");
    exit(&mut events, "a", "").await;
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn killed_for_want_of_memory() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    let bundle = pod.bundle("a", "x=a; while :; do x=$x$x; done", false, Some(16 << 20));
    let create = Create {
        id: "a".into(),
        bundle,
        runtime: pod.runtime(),
        ..Create::default()
    };
    pod.shim.create(create).await.expect("create");
    pod.shim.start(pod.verb("a")).await.expect("start");
    let ended = exit(&mut events, "a", "").await;
    assert_eq!((ended.code, ended.oom_kills), (137, 1));
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_restarted_daemon_finds_what_happened_meanwhile() {
    let mut pod = Pod::new().await;
    let stdio = Stdio {
        log: pod.text("a.log"),
        ..Stdio::default()
    };
    pod.create("a", "echo before; sleep 0.3; echo after; exit 5", stdio)
        .await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    // All that a daemon killed with -9 leaves of itself is a closed connection.
    let state = pod.path("state");
    let program = PathBuf::from(env!("CARGO_BIN_EXE_criscope-shim"));
    let other = Shim::launch(&Launch {
        program,
        dir: state.clone(),
        cgroups: Vec::new(),
    })
    .await;
    assert!(
        matches!(other, Err(Error::Launch { .. })),
        "two shims: {other:?}"
    );
    let fates = state.clone();
    until(|| matches!(account(&fates).expect("fates")["a"], Fate::Ended { .. })).await;
    pod.shim = Shim::connect(&state).await.expect("connect");
    let found = pod.shim.state().await.expect("state");
    assert_eq!(
        found.processes[0].exit.as_ref().map(|exit| exit.code),
        Some(5)
    );
    assert_eq!(pod.log("a"), ["stdout F before", "stdout F after"]);
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_killed_shim_is_noticed_and_accounted_for() {
    let pod = Pod::new().await;
    assert_eq!(pod.run("a", "exit 4").await.code, 4);
    let pid = pod.create("b", "sleep 1000", Stdio::default()).await;
    pod.shim.start(pod.verb("b")).await.expect("start");
    let mut events = pod.shim.events();
    kill(Pid::from_raw(pod.shim_pid as i32), Signal::SIGKILL).expect("kill");
    let closed = timeout(PATIENCE, async { while events.recv().await.is_ok() {} }).await;
    closed.expect("not noticed");
    assert!(matches!(pod.shim.state().await, Err(Error::Gone { .. })));
    let fates = account(&pod.path("state")).expect("fates");
    assert!(
        matches!(fates["a"], Fate::Ended { code: 4, .. }),
        "{fates:?}"
    );
    assert!(
        matches!(fates["b"], Fate::Abandoned { pid: p, .. } if p == pid),
        "{fates:?}"
    );
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("kill");
    until(|| account(&pod.path("state")).expect("fates")["b"] == Fate::Unknown).await;
}

#[tokio::test]
async fn logs_are_reopened() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    let stdio = Stdio {
        log: pod.text("a.log"),
        stdin: true,
        stdin_once: true,
        ..Stdio::default()
    };
    pod.create("a", "cat", stdio).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let (mut attached, mut input) = pod.shim.attach(everything("a", "")).await.expect("attach");
    input.write(b"one\n").await.expect("input");
    read(&mut attached, "one").await;
    fs::rename(pod.path("a.log"), pod.path("old.log")).expect("rename");
    pod.shim.reopen_log(target("a", "")).await.expect("reopen");
    input.write(b"two\n").await.expect("input");
    read(&mut attached, "two").await;
    input.end().await.expect("end");
    exit(&mut events, "a", "").await;
    assert_eq!(
        (pod.log("old"), pod.log("a")),
        (vec!["stdout F one".into()], vec!["stdout F two".into()])
    );
    pod.end(&["a"]).await;
}

#[tokio::test]
async fn a_pid_namespace_has_an_init_that_goes_with_the_shim() {
    let pod = Pod::new().await;
    let init = pod.shim.pid_namespace(None).await.expect("namespace");
    assert_eq!(pod.shim.pid_namespace(None).await.expect("namespace"), init);
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).expect("link");
    assert_ne!(of(&init.to_string()), of("self"));
    pod.end(&[]).await;
    until(|| has_ended(init)).await;
}

/// Writes as long as somebody takes it, in pieces that go whole or not at all, and counts them in a file.
fn endless(count: &str) -> String {
    format!(
        "while dd if=/dev/zero bs={PIECE} count=1 2>/dev/null; do printf x >> /{count}; done; sleep 1000"
    )
}

const PIECE: usize = 4096;

#[tokio::test]
async fn the_last_output_waits_for_a_slow_reader_though_nothing_else_is_left() {
    let pod = Pod::new().await;
    let mut events = pod.shim.events();
    pod.create("a", &endless("a"), Stdio::default()).await;
    let mut attached = vec![pod.shim.attach(everything("a", "")).await.expect("attach")];
    pod.shim.start(pod.verb("a")).await.expect("start");
    fs::write(
        pod.path("exec.json"),
        process(&endless("e"), false).to_string(),
    )
    .expect("process");
    let exec = Exec {
        target: target("a", "e"),
        process: pod.text("exec.json"),
        stdio: Stdio {
            hold: true,
            ..Stdio::default()
        },
        runtime: pod.runtime(),
    };
    pod.shim.exec(exec).await.expect("exec");
    attached.push(pod.shim.attach(everything("a", "e")).await.expect("attach"));
    let root = pod.path("a/rootfs");
    let written = |name: &str| fs::metadata(root.join(name)).map_or(0, |file| file.len());
    // Until nobody takes more.
    let mut before = (0, 0);
    while before.0 == 0 || before.1 == 0 || before != (written("a"), written("e")) {
        before = (written("a"), written("e"));
        sleep(Duration::from_millis(500)).await;
    }
    let all = Kill {
        target: target("a", ""),
        signal: 9,
        all: true,
    };
    pod.shim.kill(all).await.expect("kill");
    exit(&mut events, "a", "").await;
    let written = ["a", "e"].map(|name| usize::try_from(written(name)).expect("few"));
    pod.end(&["a"]).await;
    for ((mut output, _input), count) in attached.into_iter().zip(written) {
        let got = read(&mut output, "").await.0.len();
        // The last piece may have gone without being counted.
        let whole = [count * PIECE, (count + 1) * PIECE];
        assert!(whole.contains(&got), "{got} bytes of {count} pieces");
    }
}
