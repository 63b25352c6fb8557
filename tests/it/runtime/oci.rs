//! OCI specifications, and the command line of the OCI runtime, with real runc. Needs root, runc and busybox-static.

use std::collections::HashSet;

use crate::harness::executable::copy_program;
use crate::harness::packages::file;
use crate::prelude::*;
use criscope::runtime::oci::runtime::failure_of;
use criscope::runtime::oci::spec::{
    self, CgroupDriver, CgroupVersion, ImageConfig, Machine, NodeFacts, Request, SandboxFacts,
    UserDatabase,
};
use criscope::runtime::oci::{OciError, OciRuntime};
use criscope::runtime::sections::{Handler, PodDefaults};
use criscope::settings::value::default_capabilities;

/// A bundle on disk with busybox, and a runtime whose state is beside it. Deletes its container on drop.
struct Bundle {
    folder: TempDir,
    runtime: OciRuntime,
    id: String,
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let _gone = Command::new(&self.runtime.path)
            .arg("--root")
            .arg(&self.runtime.root)
            .args(["delete", "--force", &self.id])
            .output();
    }
}

impl Bundle {
    fn new(name: &str, change: impl FnOnce(&mut v1::ContainerConfig)) -> Self {
        let folder = tempfile::tempdir().expect("there");
        let rootfs = folder.path().join("rootfs");
        for directory in ["bin", "proc", "sys", "dev", "tmp"] {
            fs::create_dir_all(rootfs.join(directory)).expect("there");
        }
        let busybox = file("/bin/busybox", "busybox-static");
        copy_program(&busybox, &rootfs.join("bin/busybox"));
        let id = format!("criscope-test-{name}-{}", std::process::id());
        let mut container = v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata::default()),
            command: words("/bin/busybox sleep 60"),
            linux: Some(v1::LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources {
                    oom_score_adj: -997,
                    memory_limit_in_bytes: 64 << 20,
                    ..Default::default()
                }),
                security_context: Some(v1::LinuxContainerSecurityContext {
                    namespace_options: Some(v1::NamespaceOption {
                        pid: v1::NamespaceMode::Container as i32,
                        ..Default::default()
                    }),
                    seccomp: Some(v1::SecurityProfile::default()),
                    no_new_privs: true,
                    readonly_rootfs: true,
                    masked_paths: vec!["/proc/kcore".to_owned()],
                    ..Default::default()
                }),
            }),
            ..Default::default()
        };
        change(&mut container);
        let pod = v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata::default()),
            // No parent: the runtime removes the only cgroup it creates.
            linux: None,
            ..Default::default()
        };
        let built = spec::build(&Request {
            id: &id,
            pod: &pod,
            container: &container,
            image: &ImageConfig::default(),
            rootfs: &rootfs,
            users: &UserDatabase::default(),
            node: &facts(),
            sandbox: &SandboxFacts::default(),
            handler: &Handler::defaults("runc"),
            host: &Machine,
            cdi: &spec::cdi::Registry::default(),
            hooks: &spec::hooks::Registry::default(),
        })
        .expect("there");
        let json = serde_json::to_vec_pretty(&built.spec).expect("there");
        fs::write(folder.path().join("config.json"), json).expect("there");
        let runtime = OciRuntime::new("runc", folder.path().join("state"));
        Self {
            folder,
            runtime,
            id,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn create(&self) -> Result<(), OciError> {
        run(&self.runtime, "create", &[], self.folder.path(), &self.id).await
    }
}

/// Runs `create` or `exec` as the shim of a pod does, in the bundle, which gets the files for the pid and the log.
pub(super) async fn run(
    runtime: &OciRuntime,
    verb: &'static str,
    words: &[&str],
    bundle: &Path,
    id: &str,
) -> Result<(), OciError> {
    let [log, pid] = ["log", "pid"].map(|file| bundle.join(format!("{verb}-{file}")));
    let null = std::process::Stdio::null;
    let mut command = tokio::process::Command::new(&runtime.path);
    command
        .arg("--root")
        .arg(&runtime.root)
        .arg("--log")
        .arg(&log);
    command.args(["--log-format", "json", verb]).args(words);
    command.arg("--pid-file").arg(pid).arg(id);
    // The process of the container keeps these streams.
    command.stdin(null()).stdout(null()).stderr(null());
    let status = command.current_dir(bundle).status().await.expect("started");
    if status.success() {
        return Ok(());
    }
    Err(failure_of(verb, id, &status.to_string(), &log, b""))
}

pub(super) fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Facts of this machine, as far as the test relies on them.
pub(super) fn facts() -> NodeFacts {
    let own = fs::read_to_string("/proc/self/oom_score_adj").expect("there");
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    NodeFacts {
        cgroup_version: if v2 {
            CgroupVersion::V2
        } else {
            CgroupVersion::V1
        },
        cgroup_driver: CgroupDriver::Cgroupfs,
        swap_accounting: false,
        hugetlb: false,
        kernel: (6, 1),
        arch: std::env::consts::ARCH,
        seccomp: true,
        apparmor: false,
        apparmor_default: Err("it is off".to_owned()),
        selinux: false,
        recursive_read_only: true,
        default_capabilities: default_capabilities(),
        all_capabilities: Vec::new(),
        oom_score_adj_floor: Some(own.trim().parse().expect("there")),
        pids_limit: 0,
        policy: PodDefaults::default(),
    }
}

#[tokio::test]
async fn runc_runs_the_whole_lifecycle_of_a_specification() {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let bundle = Bundle::new("life", |_| {});
    let (runtime, id) = (&bundle.runtime, bundle.id.as_str());
    bundle.create().await.expect("there");
    assert_eq!(runtime.state(id).await.expect("there").status, "created");
    let again = bundle.create().await.expect_err("refused");
    assert!(matches!(again, OciError::AlreadyExists { .. }), "{again:?}");
    runtime.start(id).await.expect("there");
    let state = runtime.state(id).await.expect("there");
    assert_eq!(state.status, "running");
    let pid = fs::read_to_string(bundle.path("create-pid")).expect("there");
    assert_eq!(pid.trim(), state.pid.to_string());
    let status = fs::read_to_string(format!("/proc/{}/status", state.pid)).expect("there");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    assert!(
        status.contains("CapBnd:\t00000000a80425fb"),
        "the default capabilities: {status}"
    );
    let twice = runtime.start(id).await.expect_err("refused");
    assert!(matches!(twice, OciError::WrongState { .. }), "{twice:?}");

    let resources = v1::LinuxContainerResources {
        memory_limit_in_bytes: 32 << 20,
        ..Default::default()
    };
    let resources = spec::container_resources(&resources, &facts()).expect("there");
    runtime.update(id, &resources).await.expect("there");

    runtime.kill(id, 9, false).await.expect("there");
    until_true("the end of the container", async || {
        let state = runtime.state(id).await.expect("there");
        state.status == "stopped"
    })
    .await;
    let dead = runtime.kill(id, 15, false).await.expect_err("refused");
    assert!(matches!(dead, OciError::NotRunning { .. }), "{dead:?}");
    runtime.delete(id, false).await.expect("there");
    let gone = runtime.state(id).await.expect_err("refused");
    assert!(matches!(gone, OciError::NotFound { .. }), "{gone:?}");
    runtime.delete(id, true).await.expect("there");
}

#[tokio::test]
async fn a_process_is_executed_with_the_privileges_of_its_container() {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let bundle = Bundle::new("exec", |_| {});
    let (runtime, id) = (&bundle.runtime, bundle.id.as_str());
    bundle.create().await.expect("there");
    runtime.start(id).await.expect("there");
    let json = fs::read(bundle.path("config.json")).expect("there");
    let spec: oci_spec::runtime::Spec = serde_json::from_slice(&json).expect("there");
    let process = spec::exec_process(&spec, words("/bin/busybox sleep 61"), false).expect("there");
    fs::write(
        bundle.path("process.json"),
        serde_json::to_vec(&process).expect("there"),
    )
    .expect("there");
    let words = ["--detach", "--process", "process.json"];
    run(runtime, "exec", &words, bundle.folder.path(), id)
        .await
        .expect("executed");
    let pid = fs::read_to_string(bundle.path("exec-pid")).expect("there");
    let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).expect("there");
    assert!(status.contains("CapBnd:\t00000000a80425fb"), "{status}");
    runtime.delete(id, true).await.expect("there");
}

#[tokio::test]
async fn a_missing_command_has_its_own_error() {
    assert!(nix::unistd::geteuid().is_root(), "this test needs root");
    let bundle = Bundle::new("missing", |container| {
        container.command = words("/bin/nothing")
    });
    let error = bundle.create().await.expect_err("refused");
    assert!(matches!(error, OciError::Command { .. }), "{error:?}");
}

#[tokio::test]
async fn runtimes_report_their_versions() {
    for (path, features) in [("runc", true), ("crun", false)] {
        let runtime = OciRuntime::new(path, "/tmp/criscope-none");
        let version = runtime.version().await.expect("there");
        assert_eq!(version.name, path);
        assert!(version.spec.starts_with("1."), "{version:?}");
        match runtime.features().await {
            Ok(told) => assert!(told["ociVersionMax"].is_string(), "{told}"),
            Err(OciError::Unsupported { .. }) => assert!(!features, "{path} has the verb"),
            Err(other) => panic!("{other}"),
        }
        let gone = runtime
            .state("criscope-no-such")
            .await
            .expect_err("refused");
        assert!(
            matches!(gone, OciError::NotFound { .. }),
            "{path}: {gone:?}"
        );
    }
}

/// An OCI runtime that is a shell script.
fn script(folder: &Path, text: &str) -> OciRuntime {
    let path = folder.join("runtime");
    executable(&path, &format!("#!/bin/sh\n{text}\n"));
    OciRuntime::new(path, folder)
}

/// The processes whose command line contains a word.
fn running(word: &str) -> HashSet<String> {
    let entries = fs::read_dir("/proc").expect("there").flatten();
    let line = |entry: &fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    entries
        .filter(|entry| String::from_utf8_lossy(&line(entry)).contains(word))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

async fn none_left(word: &str) {
    until_true(&format!("the end of {word}"), async || {
        running(word).is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_runtime_that_hangs_is_killed_with_its_children() {
    let folder = tempfile::tempdir().expect("there");
    // The same test may run concurrently.
    let [first, second] = ["71.25", "72.25"].map(|time| format!("{time}{}", std::process::id()));
    let mut runtime = script(folder.path(), &format!("sleep {first} & sleep {first}"));
    runtime.limit = Duration::from_millis(300);
    let error = runtime.start("c").await.expect_err("refused");
    assert!(
        matches!(error, OciError::Timeout { verb: "start", .. }),
        "{error:?}"
    );
    none_left(&first).await;

    let runtime = script(folder.path(), &format!("sleep {second} & sleep {second}"));
    // The call is cancelled once both processes run.
    let both = until_true("the runtime and its child", async || {
        running(&format!("sleep\0{second}\0")).len() == 2
    });
    tokio::select! {
        ended = runtime.start("c") => panic!("it must hang: {ended:?}"),
        () = both => {}
    }
    none_left(&second).await;
}

#[tokio::test]
async fn output_is_bounded_and_a_child_that_holds_the_streams_does_not_stall() {
    let folder = tempfile::tempdir().expect("there");
    let flood = script(
        folder.path(),
        "head -c 8000000 /dev/zero | tr '\\0' x >&2; exit 1",
    );
    let error = flood.start("c").await.expect_err("refused").to_string();
    assert!(error.len() < 1200, "{} bytes", error.len());
    // It runs longer than any call may take: a call that waited for it would fail.
    let word = format!("7200.{}", std::process::id());
    let holder = script(folder.path(), &format!("sleep {word} & exit 0"));
    holder.start("c").await.expect("there");
    // It may not have called execve yet. A successful call kills nothing.
    let left = until("the child", || async { running(&word).into_iter().next() });
    let pid = Pid::from_raw(left.await.parse().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("kill");
    none_left(&word).await;
}
