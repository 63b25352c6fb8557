//! Containers that containerd's shim for runc runs, with criscope-shim between it and the daemon.

mod alone;
mod pids;
mod stats;

use criscope::runtime::shim_client::{
    Create, Error, Event, Exec, Exit, Kill, Resize, Stdio, TaskShim, Update,
};
use criscope_wire::Any;
use criscope_wire::task::RuncOptions;
use prost::Message as _;

use super::pod::{Pod, exit, has_ended, read, target, until};
use crate::harness::packages::file;
use crate::prelude::*;

/// The id of the sandbox container, which names the socket of the containerd shim: unique on the machine.
fn new_id() -> String {
    let dir = tempfile::tempdir().expect("a unique name");
    let name = dir.path().file_name().expect("a name").to_string_lossy();
    format!("s{}", name.trim_start_matches('.'))
}

fn spec(sandbox: &str) -> TaskShim {
    let program = file("/usr/bin/containerd-shim-runc-v2", "containerd");
    TaskShim {
        program: program.display().to_string(),
        namespace: "criscope-test".to_owned(),
        sandbox: sandbox.to_owned(),
        options: options(&root(sandbox)),
    }
}

/// runc's state, apart from that of other tests.
fn root(sandbox: &str) -> PathBuf {
    std::env::temp_dir().join(format!("{sandbox}-runc"))
}

/// The options of containerd's shim for runc, in an `Any`.
fn options(root: &Path) -> Vec<u8> {
    let options = RuncOptions {
        root: root.display().to_string(),
        ..RuncOptions::default()
    };
    let any = Any {
        type_url: "containerd.runc.v1.Options".to_owned(),
        value: options.encode_to_vec(),
    };
    any.encode_to_vec()
}

/// A pod with a sandbox container.
async fn pod() -> (Pod, String) {
    let sandbox = new_id();
    let pod = Pod::with(Some(spec(&sandbox))).await;
    create(&pod, &sandbox, "exec sleep 1000", Stdio::default(), None).await;
    pod.shim.start(pod.verb(&sandbox)).await.expect("start");
    (pod, sandbox)
}

/// Creates a container with the annotations of a container of the pod.
async fn create(pod: &Pod, id: &str, script: &str, stdio: Stdio, memory: Option<u64>) -> u32 {
    let bundle = pod.bundle(id, script, stdio.tty, memory);
    annotate(pod, Path::new(&bundle), id);
    let create = Create {
        id: id.into(),
        bundle,
        stdio,
        runtime: pod.runtime(),
    };
    pod.shim.create(create).await.expect("create")
}

fn annotate(pod: &Pod, bundle: &Path, id: &str) {
    let sandbox = pod.runtime().task.expect("a containerd shim").sandbox;
    let path = bundle.join("config.json");
    let text = fs::read(&path).expect("a specification");
    let mut spec: Value = serde_json::from_slice(&text).expect("JSON");
    let kind = if id == sandbox {
        "sandbox"
    } else {
        "container"
    };
    spec["annotations"] = json!({
        "io.kubernetes.cri.container-type": kind,
        "io.kubernetes.cri.sandbox-id": sandbox,
    });
    fs::write(&path, spec.to_string()).expect("written");
}

/// Kills the sandbox container and ends the pod; nothing may be left.
async fn end(pod: Pod, sandbox: &str, ids: &[&str]) {
    let shims = containerd_shims(sandbox);
    let mut ids = ids.to_vec();
    ids.push(sandbox);
    pod.end(&ids).await;
    is_gone(sandbox, shims).await;
}

/// Where the containerd shim of a sandbox listens.
fn socket(pod: &Pod, sandbox: &str) -> PathBuf {
    let address = fs::read_to_string(pod.path(&format!("{sandbox}/address")));
    let address = address.expect("an address");
    let socket = address.strip_prefix("unix://").expect("a socket");
    assert!(Path::new(socket).exists(), "{socket}");
    socket.into()
}

/// Waits for the end of the containerd shim, which leaves no container.
async fn is_gone(sandbox: &str, shims: Vec<u32>) {
    for pid in shims {
        until(|| has_ended(pid)).await;
    }
    let containers = root(sandbox).join("criscope-test");
    assert!(containers.is_dir(), "its options were not used");
    let left = fs::read_dir(&containers).expect("runc's state").count();
    assert_eq!(left, 0, "containers are left");
    fs::remove_dir_all(root(sandbox)).expect("removed");
}

/// The processes of the containerd shim of a sandbox.
fn containerd_shims(sandbox: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc");
    let pids = processes.filter_map(|one| one.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("containerd-shim-runc-v2") && line.contains(sandbox)
    })
    .collect()
}

#[tokio::test]
async fn containers_have_logs_and_exit_codes() {
    let (pod, sandbox) = pod().await;
    let mut events = pod.shim.events();
    assert_eq!(containerd_shims(&sandbox).len(), 1, "one for the pod");
    let script =
        "echo out; echo err >&2; head -c 200000 /dev/zero | tr '\\0' x; echo; printf tail; exit 7";
    create(&pod, "a", script, pod.logged("a"), None).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let ended = exit(&mut events, "a", "").await;
    assert_eq!((ended.code, ended.oom_kills), (7, 0));
    assert_eq!(ended.unobserved, "");
    // The log is complete when the exit is told.
    let log = pod.log("a");
    assert!(log.contains(&"stderr F err".to_owned()), "{log:?}");
    let out = log.iter().filter(|line| line.starts_with("stdout "));
    assert_eq!(
        out.clone().next_back().map(String::as_str),
        Some("stdout P tail")
    );
    let bytes: usize = out.map(|line| line.matches('x').count()).sum();
    assert_eq!(bytes, 200_000);
    assert_eq!(containerd_shims(&sandbox).len(), 1, "one for the pod");
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn execs_attach_and_signals() {
    let (pod, sandbox) = pod().await;
    let mut events = pod.shim.events();
    let stdio = Stdio {
        stdin: true,
        stdin_once: true,
        ..pod.logged("a")
    };
    create(&pod, "a", "cat", stdio, None).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let run = |name: &str, script: &str, tty: bool| {
        let stdio = Stdio {
            stdin: true,
            tty,
            ..Stdio::default()
        };
        pod.exec(target("a", name), script, stdio)
    };
    let exec = run("e1", "cat; echo err >&2; exit 9", false);
    pod.shim.exec(exec).await.expect("exec");
    let (mut attached, mut input) = pod.attach("a", "e1").await;
    input.write(b"hello").await.expect("input");
    input.end().await.expect("end");
    let said = read(&mut attached, "").await;
    assert_eq!(said, ("hello".to_owned(), "err\n".to_owned()));
    assert_eq!(exit(&mut events, "a", "e1").await.code, 9);

    // A terminal, whose size is that of the client.
    let exec = run("e2", "read line; stty size; exit 3", true);
    pod.shim.exec(exec).await.expect("exec");
    let (mut attached, mut input) = pod.attach("a", "e2").await;
    let resize = Resize {
        target: target("a", "e2"),
        width: 132,
        height: 43,
    };
    pod.shim.resize(resize).await.expect("resize");
    input.write(b"\n").await.expect("input");
    read(&mut attached, "43 132").await;
    assert_eq!(exit(&mut events, "a", "e2").await.code, 3);

    let exec = run("e3", "sleep 1000", false);
    pod.shim.exec(exec).await.expect("exec");
    signal(&pod, ("a", "e3"), Signal::SIGKILL)
        .await
        .expect("kill");
    assert_eq!(exit(&mut events, "a", "e3").await.code, 137);
    let late = signal(&pod, ("a", "e3"), Signal::SIGKILL).await;
    assert!(matches!(late, Err(Error::NotFound(_))), "{late:?}");
    let exec = run("e4", "true", false);
    let exec = Exec {
        target: target("none", "e4"),
        ..exec
    };
    let none = pod.shim.exec(exec).await;
    assert!(matches!(none, Err(Error::NotFound(_))), "{none:?}");

    // The container's own input ends, and it with it.
    let (mut attached, mut input) = pod.attach("a", "").await;
    input.write(b"one\n").await.expect("input");
    read(&mut attached, "one").await;
    input.end().await.expect("end");
    assert_eq!(exit(&mut events, "a", "").await.code, 0);
    assert_eq!(pod.log("a"), ["stdout F one"]);
    end(pod, &sandbox, &["a"]).await;
}

async fn signal(pod: &Pod, (id, exec): (&str, &str), signal: Signal) -> Result<(), Error> {
    let kill = Kill {
        target: target(id, exec),
        signal: signal as i32,
        all: false,
    };
    pod.shim.kill(kill).await
}

#[tokio::test]
async fn resources_are_changed() {
    let (pod, sandbox) = pod().await;
    create(&pod, "a", "sleep 1000", pod.logged("a"), Some(64 << 20)).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let update = Update {
        id: "a".to_owned(),
        resources: json!({"memory": {"limit": 32 << 20, "swap": 32 << 20}})
            .to_string()
            .into_bytes(),
        timeout_ms: 30_000,
    };
    pod.shim.update(update).await.expect("update");
    let pid = pod.shim.state().await.expect("state");
    let pid = pid.processes.iter().find(|one| one.target.container == "a");
    let pid = pid.expect("the container").pid;
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("cgroups");
    let memory = cgroups.lines().find_map(|line| line.split_once(":memory:"));
    let limit = match memory {
        Some((_, path)) => format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"),
        None => {
            let path = cgroups.trim().trim_start_matches("0::");
            format!("/sys/fs/cgroup{path}/memory.max")
        }
    };
    let limit = fs::read_to_string(limit).expect("a limit");
    assert_eq!(limit.trim(), (32 << 20).to_string());
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn oom_kills_are_counted() {
    let (pod, sandbox) = pod().await;
    let mut events = pod.shim.events();
    let script = "x=a; while :; do x=$x$x; done";
    create(&pod, "a", script, pod.logged("a"), Some(16 << 20)).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let ended = exit(&mut events, "a", "").await;
    assert_eq!((ended.code, ended.oom_kills), (137, 1));
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn a_daemon_that_was_away_learns_of_exits() {
    let (pod, sandbox) = pod().await;
    let script = "until [ -e /end ]; do sleep 0.05; done; echo done; exit 5";
    create(&pod, "a", script, pod.logged("a"), None).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let end_file = pod.path("a/rootfs/end");
    let ground = pod.leave();
    fs::write(end_file, "").expect("end");
    let record = ground.path("state/a.exit");
    until(|| record.exists()).await;
    let pod = ground.connect().await;
    let state = pod.shim.state().await.expect("state");
    let known = state.processes.iter().find(|p| p.target.container == "a");
    let ended = known.and_then(|p| p.exit.as_ref()).expect("an exit");
    assert_eq!(ended.code, 5);
    assert_eq!(pod.log("a"), ["stdout F done"]);
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn the_end_of_the_containerd_shim_ends_its_containers() {
    let (pod, sandbox) = pod().await;
    let socket = socket(&pod, &sandbox);
    let mut events = pod.shim.events();
    let pid = create(&pod, "a", "sleep 1000", pod.logged("a"), None).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    for shim in containerd_shims(&sandbox) {
        kill(Pid::from_raw(shim.cast_signed()), Signal::SIGKILL).expect("kill");
    }
    let mut ends: Vec<Exit> = Vec::new();
    while ends.len() < 2 {
        let event = soon("an exit", events.recv()).await;
        if let Ok(Event::Exit(exit)) = event {
            ends.push(exit);
        }
    }
    for ended in &ends {
        assert_eq!(ended.code, 137);
        let why = &ended.unobserved;
        assert!(why.starts_with("the containerd shim ended"), "{why}");
    }
    assert!(has_ended(pid), "it was killed before its exit was told");
    assert!(!socket.exists(), "its socket is left");
    let create = Create {
        id: "b".into(),
        bundle: pod.bundle("b", "true", false, None),
        runtime: pod.runtime(),
        ..Create::default()
    };
    let refused = pod.shim.create(create).await;
    assert!(
        matches!(refused, Err(Error::Precondition(_))),
        "{refused:?}"
    );
    end(pod, &sandbox, &["a"]).await;
}

#[tokio::test]
async fn a_containerd_shim_that_does_not_start_is_told() {
    for (program, words) in [
        ("/bin/false", ""),
        ("/no/such/containerd-shim-x-v1", "No such file"),
        ("/bin/echo", "has no socket"),
    ] {
        let sandbox = new_id();
        let task = TaskShim {
            program: program.to_owned(),
            ..spec(&sandbox)
        };
        let pod = Pod::with(Some(task)).await;
        let create = Create {
            id: sandbox.clone(),
            bundle: pod.bundle(&sandbox, "true", false, None),
            runtime: pod.runtime(),
            ..Create::default()
        };
        match pod.shim.create(create).await {
            Err(Error::Runtime(said)) => assert!(said.contains(words), "{program}: {said}"),
            other => panic!("{program}: {other:?}"),
        }
        let state = pod.shim.state().await.expect("state");
        assert!(state.processes.is_empty(), "{program}");
        pod.end(&[]).await;
    }
}

#[tokio::test]
async fn a_container_that_cannot_be_created_leaves_nothing() {
    let (pod, sandbox) = pod().await;
    let bundle = pod.bundle("a", "true", false, None);
    fs::write(Path::new(&bundle).join("config.json"), "{}").expect("a bad specification");
    let create = Create {
        id: "a".into(),
        bundle,
        stdio: pod.logged("a"),
        runtime: pod.runtime(),
    };
    let failed = pod.shim.create(create).await;
    assert!(matches!(failed, Err(Error::Runtime(_))), "{failed:?}");
    let state = pod.shim.state().await.expect("state");
    assert_eq!(state.processes.len(), 1, "the sandbox container");
    end(pod, &sandbox, &[]).await;
}

/// The pod is removed whatever runs in it.
#[tokio::test]
async fn a_forced_shutdown_leaves_nothing() {
    let (pod, sandbox) = pod().await;
    let pid = create(&pod, "a", "sleep 1000", pod.logged("a"), None).await;
    pod.shim.start(pod.verb("a")).await.expect("start");
    let shims = containerd_shims(&sandbox);
    let shim = pod.shim_pid();
    let socket = socket(&pod, &sandbox);
    pod.shim.shutdown(true).await.expect("shutdown");
    until(|| has_ended(shim) && has_ended(pid)).await;
    is_gone(&sandbox, shims).await;
    assert!(!socket.exists(), "its socket is left");
}
