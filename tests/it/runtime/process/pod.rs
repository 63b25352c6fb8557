//! A pod's directory with its shim, and helpers for tests.

use std::os::unix::fs::symlink;

use criscope::runtime::shim_client::{
    Attach, Attached, Create, Error, Event, Exec, Exit, Input, Kill, Launch, Output, Runtime, Shim,
    Stdio, Target, TaskShim, Verb, exit_records,
};

use crate::harness;
use crate::harness::executable::copy_program;
use crate::harness::packages::file;
use crate::prelude::*;

/// A pod's directory. Dropping it kills all its processes.
pub(super) struct Ground {
    dir: TempDir,
    shim_pid: u32,
    /// What runs the containers if not runc.
    task: Option<TaskShim>,
}

/// A pod, and a connection to its shim.
pub(super) struct Pod {
    pub(super) shim: Shim,
    ground: Ground,
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Unreadable records are no reason to let the shim live.
        let known = exit_records(&self.path("state")).unwrap_or_default();
        for id in known.keys() {
            let mut command = Command::new("runc");
            let _ = command
                .arg("--root")
                .arg(self.path("runc"))
                .args(["delete", "--force", id])
                .output();
        }
        // Not our child: the pid is that of our shim, or may have been reused.
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

impl Ground {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a shim for it.
    pub(super) async fn launch(&self) -> Result<Shim, Error> {
        Shim::launch(&Launch {
            program: PathBuf::from(crate::SHIM),
            dir: self.path("state"),
            cgroups: Vec::new(),
        })
        .await
    }

    /// Connects to its shim.
    pub(super) async fn connect(self) -> Pod {
        let shim = Shim::connect(&self.path("state")).await.expect("connect");
        Pod { shim, ground: self }
    }

    /// The name that its cgroups and mounts contain.
    fn name(&self) -> String {
        let name = self.dir.path().file_name().expect("name");
        name.to_string_lossy().into_owned()
    }
}

impl Pod {
    pub(super) async fn new() -> Self {
        Self::with(None).await
    }

    /// With the containers run by this shim of containerd.
    pub(super) async fn with(task: Option<TaskShim>) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir(dir.path().join("state")).expect("state");
        let mut ground = Ground {
            dir,
            shim_pid: 0,
            task,
        };
        let shim = ground.launch().await.expect("shim");
        ground.shim_pid = shim.state().await.expect("state").pid;
        Self { shim, ground }
    }

    /// Closes the connection, like a daemon killed by SIGKILL.
    pub(super) fn leave(self) -> Ground {
        self.ground
    }

    pub(super) fn shim_pid(&self) -> u32 {
        self.ground.shim_pid
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.ground.path(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn runtime(&self) -> Runtime {
        let argv = ["runc".to_owned(), "--root".to_owned(), self.text("runc")];
        Runtime {
            argv: argv.to_vec(),
            timeout_ms: PATIENCE.as_millis().try_into().expect("small"),
            task: self.ground.task.clone(),
            ..Runtime::default()
        }
    }

    pub(super) fn verb(&self, id: &str) -> Verb {
        Verb {
            id: id.into(),
            runtime: self.runtime(),
        }
    }

    pub(super) fn bundle(&self, id: &str, script: &str, tty: bool, memory: Option<u64>) -> String {
        let bundle = self.path(id);
        let bin = bundle.join("rootfs/bin");
        fs::create_dir_all(&bin).expect("bin");
        for dir in ["proc", "dev", "tmp"] {
            fs::create_dir(bundle.join("rootfs").join(dir)).expect("dir");
        }
        let busybox = file("/usr/bin/busybox", "busybox-static");
        copy_program(&busybox, &bin.join("busybox"));
        for applet in ["sh", "cat", "sleep", "dd", "stty", "tail", "head"] {
            symlink("busybox", bin.join(applet)).expect("applet");
        }
        let limit = memory.map_or(
            json!({}),
            |limit| json!({"memory": {"limit": limit, "swap": limit}}),
        );
        let name = self.ground.name();
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

    pub(super) async fn create(&self, id: &str, script: &str, stdio: Stdio) -> u32 {
        let bundle = self.bundle(id, script, stdio.tty, None);
        let create = Create {
            id: id.into(),
            bundle,
            stdio,
            runtime: self.runtime(),
        };
        self.shim.create(create).await.expect("create")
    }

    /// Creates and starts a container with this script and a memory limit in bytes, without a log.
    pub(super) async fn start(&self, id: &str, script: &str, memory: u64) {
        let create = Create {
            id: id.into(),
            bundle: self.bundle(id, script, false, Some(memory)),
            runtime: self.runtime(),
            ..Create::default()
        };
        self.shim.create(create).await.expect("create");
        self.shim.start(self.verb(id)).await.expect("start");
    }

    /// Creates and starts a container with this script, and waits until it exits.
    pub(super) async fn run(&self, id: &str, script: &str) -> Exit {
        let mut events = self.shim.events();
        self.create(id, script, self.logged(id)).await;
        self.shim.start(self.verb(id)).await.expect("start");
        exit(&mut events, id, "").await
    }

    pub(super) fn log(&self, id: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(&format!("{id}.log"))).expect("log");
        text.lines()
            .map(|line| line.split_once(' ').expect("time").1.to_owned())
            .collect()
    }

    /// Attaches to everything of a process.
    pub(super) async fn attach(&self, id: &str, exec: &str) -> (Attached, Input) {
        let attached = self.shim.attach(everything(id, exec)).await;
        attached.expect("attach")
    }

    /// A process that runs this script in a container, and whose output is kept.
    pub(super) fn exec(&self, target: Target, script: &str, stdio: Stdio) -> Exec {
        let process = process(script, stdio.tty).to_string();
        fs::write(self.path("exec.json"), process).expect("process");
        Exec {
            target,
            process: self.text("exec.json"),
            stdio: Stdio {
                hold: true,
                ..stdio
            },
            runtime: self.runtime(),
        }
    }

    /// Only a log.
    pub(super) fn logged(&self, id: &str) -> Stdio {
        Stdio {
            log: self.text(&format!("{id}.log")),
            ..Stdio::default()
        }
    }

    /// Sends SIGKILL to an exec of the container `a`, or with an empty name to its init; with `all` to all of its processes.
    pub(super) async fn kill(&self, exec: &str, all: bool) {
        let kill = Kill {
            target: target("a", exec),
            signal: 9,
            all,
        };
        self.shim.kill(kill).await.expect("kill");
    }

    pub(super) async fn end(self, ids: &[&str]) {
        for id in ids {
            self.shim.delete(self.verb(id)).await.expect("delete");
        }
        self.shim.shutdown(false).await.expect("shutdown");
        let left: Vec<_> = fs::read_dir(self.path("state"))
            .expect("state")
            .map(|e| e.expect("entry").file_name())
            .collect();
        assert_eq!(left, ["shim.lock"], "files left");
        let name = self.ground.name();
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
        until(|| has_ended(self.shim_pid())).await;
    }
}

/// Returns whether a process is gone, or a zombie waiting for the machine's init.
pub(super) fn has_ended(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
}

pub(super) fn process(script: &str, tty: bool) -> Value {
    json!({"args": ["/bin/sh", "-c", script], "cwd": "/", "env": ["PATH=/bin"], "terminal": tty, "user": {"uid": 0, "gid": 0}})
}

pub(super) fn target(id: &str, exec: &str) -> Target {
    Target {
        container: id.into(),
        exec: exec.into(),
    }
}

pub(super) fn everything(id: &str, exec: &str) -> Attach {
    Attach {
        target: target(id, exec),
        stdin: true,
        stdout: true,
        stderr: true,
    }
}

pub(super) async fn exit(
    events: &mut tokio::sync::broadcast::Receiver<Event>,
    id: &str,
    exec: &str,
) -> Exit {
    let wait = async {
        loop {
            if let Event::Exit(exit) = events.recv().await.expect("events")
                && exit.target == target(id, exec)
            {
                return exit;
            }
        }
    };
    harness::soon("an exit", wait).await
}

pub(super) async fn until(mut done: impl FnMut() -> bool) {
    harness::until("a condition", || std::future::ready(done().then_some(()))).await;
}

/// Reads stdout until it has `wanted`, or everything if that is empty.
pub(super) async fn read(attached: &mut Attached, wanted: &str) -> (String, String) {
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
    harness::soon(&format!("{wanted:?}"), read).await;
    (out, err)
}
