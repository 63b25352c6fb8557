//! A local user without rights, beside running pods of every kind: nothing of the runtime's directories is open to them.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;

use super::stage::Stage;
use crate::prelude::*;

use crate::harness::daemon::VOLUME;
use crate::harness::packages::{busybox, file};
use crate::runtime::crun::crun;

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// Root of the pod with a user namespace, on the node.
const MAPPED_ROOT: u32 = 300_000;

/// Prints `r`, `w` or `x` and the path for everything that may be read, written, or executed (entered, for a directory).
const PROBE: &str = r#"while IFS= read -r path; do
for right in r w x; do [ -$right "$path" ] && echo "$right $path"; done; done; true"#;

/// Everything in a directory, with the directory, except links: they lead out of it.
fn everything(dir: &Path, into: &mut Vec<PathBuf>) {
    into.push(dir.to_owned());
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => everything(&entry.path(), into),
            Ok(kind) if !kind.is_symlink() => into.push(entry.path()),
            _ => {}
        }
    }
}

/// What a user of the node may do with these paths.
fn rights_of(user: u32, paths: &[PathBuf]) -> BTreeSet<String> {
    let mut shell = Command::new(busybox())
        .args(["sh", "-c", PROBE])
        .uid(user)
        .gid(user)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = shell.stdin.take().expect("piped");
    let text: String = paths
        .iter()
        .map(|path| format!("{}\n", path.display()))
        .collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = shell.wait_with_output().expect("output");
    writer
        .join()
        .expect("no panic")
        .expect("all paths are read");
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).expect("text");
    output.lines().map(str::to_owned).collect()
}

/// What a user may do in ROOT and STATE.
fn rights_in(daemon: &Daemon, user: u32) -> BTreeSet<String> {
    let control = daemon.root().join("control");
    fs::write(&control, "").expect("a file for everybody");
    let mut paths = vec![control.clone()];
    for dir in [daemon.root().join("root"), daemon.state().join("state")] {
        everything(&dir, &mut paths);
    }
    assert!(paths.len() > 50, "{paths:?}");
    let mut rights = rights_of(user, &paths);
    // The directories above are open: the result is that of ROOT and STATE themselves.
    let found = rights.remove(&format!("r {}", control.display()));
    assert!(found, "{user} cannot read {}", control.display());
    rights
}

async fn daemon() -> Daemon {
    file("/usr/bin/containerd-shim-runc-v2", "containerd");
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let crun = crun(&daemon);
    daemon.configure(&format!(
        "[runtime.handlers.crun]\npath = {crun:?}\n\
         [runtime.handlers.shim]\nruntime_type = \"io.containerd.runc.v2\"\npath = {:?}\n",
        oci_runtime()
    ));
    daemon.start().await;
    daemon
}

/// Runs a pod of every kind without a user namespace, each with a container.
async fn pods(kubelet: &Kubelet) -> Vec<Pod> {
    let mut pods = Vec::new();
    for handler in ["", "crun", "shim"] {
        let config = kubelet.pod_config(&format!("plain-{handler}"));
        let pod = kubelet.try_run(config, handler).await.expect("a pod");
        kubelet.launch(&pod, idle("main")).await;
        pods.push(pod);
    }
    let mut shared = kubelet.pod_config("shared");
    pod_namespaces(&mut shared).pid = v1::NamespaceMode::Pod.into();
    let mut privileged = kubelet.pod_config("privileged");
    let linux = privileged.linux.get_or_insert_default();
    linux.security_context.get_or_insert_default().privileged = true;
    for config in [shared, privileged, kubelet.host_network_config("host")] {
        let mut main = idle("main");
        let sandbox = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.clone());
        let sandbox = sandbox.expect("a security context");
        let context = security(&mut main);
        context.namespace_options = sandbox.namespace_options;
        context.privileged = sandbox.privileged;
        let pod = kubelet.run(config).await;
        kubelet.launch(&pod, main).await;
        pods.push(pod);
    }
    pods
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_user_enters_and_reads_nothing() {
    let stage = Stage::of(daemon().await).await;
    let (daemon, kubelet) = (&stage.daemon, &stage.kubelet);
    let mut pods = stage.withstands(pods(kubelet)).await;
    assert_eq!(rights_in(daemon, NOBODY), BTreeSet::new());

    // Root in a pod with a user namespace is another user of the node, who has to reach the root file system of the pod.
    let users = Some(v1::UserNamespace {
        mode: v1::NamespaceMode::Pod.into(),
        uids: vec![ids()],
        gids: vec![ids()],
    });
    let mut containers = Vec::new();
    for handler in ["", "crun"] {
        let mut config = kubelet.pod_config(&format!("mapped-{handler}"));
        pod_namespaces(&mut config)
            .userns_options
            .clone_from(&users);
        let pod = kubelet.try_run(config, handler).await.expect("a pod");
        let mut main = idle("main");
        let context = security(&mut main);
        let options = context.namespace_options.get_or_insert_default();
        options.userns_options.clone_from(&users);
        containers.push(kubelet.launch(&pod, main).await);
        pods.push(pod);
    }
    let root = daemon.root().join("root");
    let all = root.join("containers");
    let passable = [&root, &all].map(|dir| format!("x {}", dir.display()));
    assert_eq!(rights_in(daemon, NOBODY), BTreeSet::from(passable.clone()));
    let own: Vec<_> = containers.iter().map(|id| all.join(id)).collect();
    let others: Vec<_> = rights_in(daemon, MAPPED_ROOT)
        .into_iter()
        .filter(|right| !passable.contains(right))
        .filter(|right| {
            !own.iter()
                .any(|dir| Path::new(&right[2..]).starts_with(dir))
        })
        .collect();
    assert!(others.is_empty(), "{others:?}");
    for pod in &pods {
        kubelet.end(pod).await;
    }
    stage.end().await;
}

fn ids() -> v1::IdMapping {
    v1::IdMapping {
        host_id: MAPPED_ROOT,
        container_id: 0,
        length: 65_536,
    }
}

/// Runs a program of the node as `nobody`.
fn run(program: &Path) -> io::Result<()> {
    let status = Command::new(program)
        .arg0("busybox")
        .arg("true")
        .uid(NOBODY)
        .gid(NOBODY)
        .status()?;
    assert!(status.success(), "{}: {status}", program.display());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_a_file_of_a_pod_is_executed_by_no_one() {
    let stage = Stage::new().await;
    let (daemon, kubelet) = (&stage.daemon, &stage.kubelet);
    let pod = kubelet.plain_pod("setuid").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let files = ["hostname", "hosts", "resolv.conf"];
    let plant = |path: &str| format!("cat /bin/busybox > {path} && busybox chmod 4755 {path}");
    for name in files {
        kubelet.says(&id, &plant(&format!("/etc/{name}"))).await;
    }
    kubelet.says(&id, &plant("/dev/shm/planted")).await;
    kubelet
        .says(&id, &plant(&format!("{VOLUME}/planted")))
        .await;

    let open = daemon.root().join("open");
    fs::copy(busybox(), &open).expect("a program for everybody");
    run(&open).expect("others are executed");
    let sandbox = daemon.root().join("root/sandboxes").join(&pod.id);
    let mut planted: Vec<_> = files.iter().map(|name| sandbox.join(name)).collect();
    planted.push(
        daemon
            .state()
            .join("state/pods")
            .join(&pod.id)
            .join("shm/planted"),
    );
    let container = daemon.root().join("root/containers").join(&id);
    planted.push(container.join("rootfs/bin/busybox"));
    for program in planted {
        assert!(program.exists(), "{}", program.display());
        let error = run(&program).expect_err("a planted program was executed");
        assert_eq!(
            error.kind(),
            io::ErrorKind::PermissionDenied,
            "{}",
            program.display()
        );
    }
    // Nor does it work in the pod, or in another container that mounts the file.
    let mounts = kubelet.says(&id, "cat /proc/self/mountinfo").await;
    for name in [
        "/etc/hostname",
        "/etc/hosts",
        "/etc/resolv.conf",
        "/dev/shm",
    ] {
        let line = mounts
            .lines()
            .find(|line| line.split(' ').nth(4) == Some(name));
        let options = line
            .and_then(|line| line.split(' ').nth(5))
            .expect("a mount");
        for option in ["nosuid", "nodev", "noexec"] {
            assert!(
                options.split(',').any(|each| each == option),
                "{name}: {options}"
            );
        }
    }
    kubelet.end(&pod).await;
    stage.end().await;
}
