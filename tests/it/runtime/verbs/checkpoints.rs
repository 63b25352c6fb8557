//! CheckpointContainer: what is in an archive, and what is left when none can be made.

mod criu;
mod interrupted;
mod lock;
mod log;
mod node;
mod pods;

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use tokio::task::JoinHandle;

use super::full_disk::Disk;
use crate::prelude::*;

/// An OCI runtime whose `checkpoint` writes files of CRIU when the gate is open; all other verbs are real. CRIU itself depends on
/// the kernel.
struct Dumps {
    gate: PathBuf,
    out: PathBuf,
}

impl Dumps {
    async fn start() -> (Daemon, Kubelet, Self) {
        let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
        let this = Self {
            gate: daemon.root().join("gate"),
            out: daemon.root().join("out"),
        };
        fs::create_dir(&this.gate).expect("gate");
        fs::create_dir(&this.out).expect("out");
        let script = format!(
            r#"#!/bin/sh
verb= help= images= work= before=
for word; do
    case $before in --image-path) images=$word ;; --work-path) work=$word ;; esac
    case $word in checkpoint) verb=$word ;; --help) help=yes ;; esac
    before=$word
done
[ "$verb" = checkpoint ] || exec '{runc}' "$@"
[ -z "$help" ] || exit 0
cd '{gate}' || exit 1
echo x >> dumped
until [ -e open ]; do sleep 0.02; done
if [ -e lock ]; then
    [ ! -e log ] || cp log "$work/dump.log"
    nsenter --net="$(cat lock)" iptables-restore -w --noflush < rules || exit 3
    kill -9 $$
fi
if [ -e fail ]; then
    printf '(0.1) Error (criu/a.c:1): told to fail\n(0.2) Error (criu/b.c:1): Dumping FAILED.\n' > "$work/dump.log"
    echo 'criu failed' >&2
    exit 1
fi
echo inventory > "$images/inventory.img"
echo log > "$work/dump.log"
echo stats > "$work/stats-dump"
"#,
            runc = oci_runtime().display(),
            gate = this.gate.display(),
        );
        let dumps = daemon.add_program("dumps", &script);
        daemon.add_program("criu", "#!/bin/sh\nexit 1\n");
        let path = std::env::var("PATH").expect("a path");
        let own = daemon.root().join("bin");
        daemon.env("PATH", &format!("{}:{path}", own.display()));
        daemon.set_runtime("enable_criu = true\n");
        daemon.set_second(&dumps);
        let kubelet = daemon.serve().await;
        (daemon, kubelet, this)
    }

    fn set(&self, what: &str) {
        fs::write(self.gate.join(what), "").expect("gate");
    }

    async fn entered(&self) {
        let dumped = self.gate.join("dumped");
        until_true("a dump", async || dumped.exists()).await;
    }

    fn archive(&self) -> PathBuf {
        self.out.join("c.tar")
    }

    /// The files in the directory of archives.
    fn left(&self) -> Vec<String> {
        let names = fs::read_dir(&self.out).expect("out").flatten();
        let names = names.map(|entry| entry.file_name().into_string().expect("text"));
        names.collect()
    }
}

async fn checkpoint(kubelet: &Kubelet, id: &str, to: &Path, timeout: i64) -> Result<(), Status> {
    let request = v1::CheckpointContainerRequest {
        container_id: id.to_owned(),
        location: to.display().to_string(),
        timeout,
    };
    let mut runtime = kubelet.runtime.clone();
    runtime.checkpoint_container(request).await?;
    Ok(())
}

/// A checkpoint under way.
fn begin(kubelet: &Kubelet, id: &str, to: &Path, timeout: i64) -> JoinHandle<Result<(), Status>> {
    let (kubelet, id, to) = (kubelet.clone(), id.to_owned(), to.to_owned());
    tokio::spawn(async move { checkpoint(&kubelet, &id, &to, timeout).await })
}

/// A running container in a pod of the handler `second`.
async fn running(kubelet: &Kubelet, config: v1::ContainerConfig) -> String {
    let name = config.metadata.clone().unwrap_or_default().name;
    let pod = kubelet.run_with(kubelet.pod_config(&name), "second").await;
    kubelet.launch(&pod, config).await
}

/// The record of a container, and the names in its directory.
fn record(daemon: &Daemon, id: &str) -> (Value, Vec<String>) {
    let dir = daemon.root().join("root/containers").join(id);
    let text = fs::read(dir.join("record.json")).expect("a record");
    let names = fs::read_dir(&dir).expect("a directory").flatten();
    let names = names.map(|entry| entry.file_name().into_string().expect("text"));
    (
        serde_json::from_slice(&text).expect("json"),
        names.collect(),
    )
}

/// Waits until nothing is left to be undone of an attempt.
async fn ended(daemon: &Daemon, id: &str) {
    until_true("the end of the checkpoint", async || {
        let (record, _) = record(daemon, id);
        record.get("checkpoint").is_none()
    })
    .await;
}

/// Asserts that a container runs, and that nothing of an attempt is left.
async fn assert_untouched(daemon: &Daemon, kubelet: &Kubelet, id: &str) {
    assert_eq!(kubelet.says(id, "echo on").await, "on");
    let (record, names) = record(daemon, id);
    assert_eq!(record.get("checkpoint"), None);
    assert!(!names.contains(&"checkpoint".to_owned()), "{names:?}");
}

/// The files of a tar archive.
fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().expect("entries");
    let read = entries.map(|entry| {
        let mut entry = entry.expect("entry");
        let path = entry.path().expect("path").display().to_string();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("content");
        (path, content)
    });
    read.collect()
}

fn json(content: &[u8]) -> Value {
    serde_json::from_slice(content).expect("json")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_has_the_memory_the_files_and_the_log_of_a_container() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    dumps.set("open");
    let mut config = shell(
        "main",
        "echo said; busybox mkdir /tmp/new; echo kept > /tmp/new/file; busybox rm /bin/wget; trap 'exit 0' TERM; sleep 1000000 & wait",
    );
    let annotations = &mut config.annotations;
    annotations.insert("io.kubernetes.container.hash".to_owned(), "1".to_owned());
    let id = running(&kubelet, config).await;
    kubelet.logged(&id, "said").await;
    kubelet
        .says(&id, "until ! [ -e /bin/wget ]; do sleep 0.02; done")
        .await;
    let archive = dumps.archive();
    fs::write(&archive, vec![0; 1 << 20]).expect("an older one, which is replaced");
    checkpoint(&kubelet, &id, &archive, 0)
        .await
        .expect("CheckpointContainer");

    let mode = fs::metadata(&archive)
        .expect("an archive")
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert_eq!(dumps.left(), ["c.tar"]);
    assert_untouched(&daemon, &kubelet, &id).await;
    let found = files(&fs::read(&archive).expect("an archive"));
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "checkpoint/",
            "checkpoint/inventory.img",
            "config.dump",
            "container.log",
            "deleted.files",
            "dump.log",
            "rootfs-diff.tar",
            "spec.dump",
            "stats-dump",
            "status",
            "status.dump"
        ]
    );
    let config = json(&found["config.dump"]);
    assert_eq!(config["id"], id.as_str());
    assert_eq!(config["rootfsImageRef"].as_str().expect("an id").len(), 64);
    let status = json(&found["status.dump"]);
    assert_eq!(status["state"], v1::ContainerState::ContainerRunning as i32);
    let spec = json(&found["spec.dump"]);
    let kept = spec["annotations"]["io.kubernetes.cri-o.Annotations"].as_str();
    assert_eq!(kept, Some(r#"{"io.kubernetes.container.hash":"1"}"#));
    assert!(String::from_utf8_lossy(&found["container.log"]).ends_with("said\n"));
    assert_eq!(
        json(&found["deleted.files"]),
        serde_json::json!(["/bin/wget"])
    );
    assert_eq!(files(&found["rootfs-diff.tar"])["tmp/new/file"], b"kept\n");

    let scrape = daemon.program().scrape().await;
    for step in [
        "oci_pause",
        "oci_checkpoint",
        "checkpoint_files",
        "oci_resume",
        "checkpoint_archive",
    ] {
        let steps = scrape.metric("criscope_runtime_phase_duration_seconds_count");
        assert_eq!(steps.with("phase", step).sum(), 1.0, "{step}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    dumps.set("open");
    let id = running(&kubelet, idle("main")).await;
    let over = running(&kubelet, shell("over", "exit 3")).await;
    kubelet.ended(&over).await;
    let archive = dumps.archive();
    let directory = dumps.out.join("directory");
    fs::create_dir(&directory).expect("directory");
    for (id, to, timeout, code) in [
        ("absent", archive.as_path(), 0, Code::NotFound),
        (&over, &archive, 0, Code::FailedPrecondition),
        (&id, Path::new("relative"), 0, Code::InvalidArgument),
        (&id, Path::new(""), 0, Code::InvalidArgument),
        (&id, &directory, 0, Code::InvalidArgument),
        (&id, &dumps.out.join("none/c.tar"), 0, Code::InvalidArgument),
        (&id, &archive, -1, Code::InvalidArgument),
        (&id, &archive, i64::MAX, Code::InvalidArgument),
    ] {
        let error = checkpoint(&kubelet, id, to, timeout)
            .await
            .expect_err("refused");
        assert_eq!(error.code(), code, "{id} {}: {error}", to.display());
    }
    assert!(!dumps.gate.join("dumped").exists(), "nothing was dumped");

    let exec = [
        "/bin/sh",
        "-c",
        "echo x > /in; until [ -e /go ]; do sleep 0.02; done",
    ];
    let exec = exec.map(str::to_owned).to_vec();
    let (other, in_exec) = (kubelet.clone(), id.clone());
    let exec = tokio::spawn(async move { other.try_exec(&in_exec, exec, 0).await });
    kubelet
        .says(&id, "until [ -e /in ]; do sleep 0.02; done")
        .await;
    assert_refused(
        checkpoint(&kubelet, &id, &archive, 0).await,
        Code::FailedPrecondition,
        "1 running exec",
    );
    kubelet.says(&id, "echo x > /go").await;
    exec.await.expect("ended").expect("ExecSync");

    dumps.set("fail");
    assert_refused(
        checkpoint(&kubelet, &id, &archive, 0).await,
        Code::Unknown,
        "(criu/a.c:1): told to fail",
    );
    assert_untouched(&daemon, &kubelet, &id).await;
    fs::remove_file(dumps.gate.join("fail")).expect("gate");

    let disk = Disk::at(&directory);
    disk.fill();
    let full = directory.join("c.tar");
    let error = checkpoint(&kubelet, &id, &full, 0).await.expect_err("full");
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    assert!(!full.exists() && fs::read_dir(&directory).expect("disk").count() == 1);
    assert_untouched(&daemon, &kubelet, &id).await;
    drop(disk);

    fs::remove_file(dumps.gate.join("open")).expect("gate");
    let error = checkpoint(&kubelet, &id, &archive, 1)
        .await
        .expect_err("late");
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error}");
    // A dump that is killed would leave CRIU's code in the processes.
    assert_eq!(record(&daemon, &id).0["checkpoint"]["resume"], true);
    dumps.set("open");
    ended(&daemon, &id).await;
    assert_untouched(&daemon, &kubelet, &id).await;
    assert_eq!(dumps.left(), ["directory"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_or_the_verb_it_is_not_implemented() {
    let (mut daemon, kubelet, pod) = node_with_pod("off").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let archive = daemon.root().join("c.tar");
    assert_refused(
        checkpoint(&kubelet, &id, &archive, 0).await,
        Code::Unimplemented,
        "runtime.enable_criu",
    );

    daemon.kill();
    daemon.set_runtime("enable_criu = true\n");
    daemon.add_program("criu", "#!/bin/sh\nexit 1\n");
    let script = format!(
        "#!/bin/sh\nfor word; do [ \"$word\" != checkpoint ] || exit 1; done\nexec {} \"$@\"\n",
        oci_runtime().display()
    );
    let lacks = daemon.add_program("lacks", &script);
    daemon.set_second(&lacks);
    let own = daemon.root().join("bin");
    let path = std::env::var("PATH").expect("a path");
    daemon.env("PATH", &format!("{}:{path}", own.display()));
    let kubelet = daemon.serve().await;
    let id = running(&kubelet, idle("lacks")).await;
    assert_refused(
        checkpoint(&kubelet, &id, &archive, 0).await,
        Code::Unimplemented,
        "lacks",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_outlives_its_caller_and_not_its_daemon() {
    let (mut daemon, kubelet, dumps) = Dumps::start().await;
    let id = running(&kubelet, idle("main")).await;
    let archive = dumps.archive();
    let call = begin(&kubelet, &id, &archive, 0);
    dumps.entered().await;
    call.abort();
    // The container is paused now; a list is answered.
    soon("ListContainers", kubelet.containers()).await;
    dumps.set("open");
    until_true("the archive", async || archive.exists()).await;
    ended(&daemon, &id).await;
    assert_untouched(&daemon, &kubelet, &id).await;

    for file in [
        &archive,
        &dumps.gate.join("open"),
        &dumps.gate.join("dumped"),
    ] {
        fs::remove_file(file).expect("removed");
    }
    let call = begin(&kubelet, &id, &archive, 0);
    dumps.entered().await;
    let (written, _) = record(&daemon, &id);
    let draft = PathBuf::from(written["checkpoint"]["draft"].as_str().expect("a draft"));
    fs::write(&draft, "half").expect("as if it had been begun");
    daemon.kill();
    call.await.expect("ended").expect_err("the daemon is gone");
    daemon.start().await;
    // The dump still runs: its container stays paused until CRIU is done with it.
    assert_eq!(record(&daemon, &id).0["checkpoint"]["resume"], true);
    dumps.set("open");
    ended(&daemon, &id).await;
    let kubelet = Kubelet::of(&daemon).await;
    assert_untouched(&daemon, &kubelet, &id).await;
    assert_eq!(dumps.left(), [""; 0]);
    checkpoint(&kubelet, &id, &archive, 0)
        .await
        .expect("another one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_paused_before_stays_paused() {
    let (daemon, kubelet, dumps) = Dumps::start().await;
    dumps.set("open");
    let id = running(&kubelet, idle("main")).await;
    let root = daemon.state().join("state/oci/second");
    let runc = |verb: &str| {
        let mut command = Command::new(oci_runtime());
        let done = command.arg("--root").arg(&root).args([verb, &id]).output();
        String::from_utf8(done.expect(verb).stdout).expect("text")
    };
    runc("pause");
    checkpoint(&kubelet, &id, &dumps.archive(), 0)
        .await
        .expect("CheckpointContainer");
    let state: Value = json(runc("state").as_bytes());
    assert_eq!(state["status"], "paused");
    runc("resume");
    assert_untouched(&daemon, &kubelet, &id).await;
}
