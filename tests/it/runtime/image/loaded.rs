//! Images imported by `criscope load-image` and from the import directory, with and without the daemon.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;

use super::*;
use crate::harness::docker_registry::skopeo;

/// An empty node.
pub(super) struct Node(TempDir);

fn some(text: &str) -> Image {
    with_file(text.as_bytes())
}

impl Node {
    pub(super) fn new() -> Self {
        need_root();
        Self(tempfile::tempdir().expect("dir"))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn config(&self) -> String {
        let dir = self.0.path().display();
        let shim = crate::SHIM;
        format!(
            "[runtime]\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\nshim = \"{shim}\"\n\
             [runtime.cni]\nconf_dir = \"{dir}/net.d\"\ncache_dir = \"{dir}/cni\"\n"
        )
    }

    pub(super) fn archive(&self, file: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(file);
        fs::write(&path, bytes).expect("write");
        path
    }

    pub(super) async fn daemon(&self) -> Proxy {
        Start::new(crate::CRISCOPE)
            .config(&self.config())
            .serving()
            .await
    }

    /// Runs `criscope load-image` off the test's thread.
    pub(super) async fn load(&self, archives: &[&Path], stdin: Option<&Path>) -> Output {
        let config = self.archive("load.toml", self.config().as_bytes());
        let mut command = Command::new(crate::CRISCOPE);
        command.arg("load-image").arg("--config").arg(config);
        command.args(archives).stdin(match stdin {
            Some(path) => File::open(path).expect("open").into(),
            None => Stdio::null(),
        });
        let run = tokio::task::spawn_blocking(move || command.output());
        run.await.expect("joined").expect("run")
    }

    /// The names of all images; the daemon must have ended.
    pub(super) async fn names(&self) -> Vec<String> {
        let config = ImageStoreConfig::new(self.path("root").join("images"));
        let images = image_store::open(&config).await;
        assert!(images.problems().is_empty());
        let all = images.list(None).expect("list").into_iter();
        let mut names: Vec<_> = all.flat_map(|image| image.tags).collect();
        names.sort();
        names
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Loads one from a file, a compressed one from a pipe, and an invalid one in between.
async fn load_three(node: &Node) {
    let one = some("one");
    let good = node.archive("one.tar", &docker_archive("one:1", &one));
    let bad = node.archive("bad.tar", b"nothing");
    let zipped = node.archive("two.tar.gz", &gzip(&docker_archive("two:2", &some("two"))));
    let done = node
        .load(&[&good, &bad, Path::new("-")], Some(&zipped))
        .await;
    let (out, errors) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(1), "{errors}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}{errors}");
    assert_eq!(lines[0], format!("docker.io/library/one:1 {}", one.id()));
    assert!(
        lines[1].starts_with("docker.io/library/two:2 sha256:"),
        "{out}"
    );
    assert!(
        errors.contains("bad.tar") && !errors.contains("one.tar"),
        "{errors}"
    );
}

const BOTH: [&str; 2] = ["docker.io/library/one:1", "docker.io/library/two:2"];

#[tokio::test]
async fn archives_are_loaded_without_the_daemon() {
    let node = Node::new();
    load_three(&node).await;
    assert_eq!(node.names().await, BOTH);
    // Passable, since pods with user namespaces may have their root file systems below; the daemon closes it until one comes.
    let root = fs::metadata(node.path("root")).expect("root");
    assert_eq!(root.permissions().mode() & 0o7777, 0o711);
    // A process that holds the store without serving it is left alone.
    let config = ImageStoreConfig::new(node.path("root").join("images"));
    let mine = image_store::open(&config).await;
    let refused = node.load(&[&node.path("one.tar")], None).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(!refused.stderr.is_empty());
    drop(mine);
}

#[tokio::test]
async fn archives_are_loaded_by_the_daemon() {
    let node = Node::new();
    let daemon = node.daemon().await;
    daemon.wait_event("image.load.ready").await;
    load_three(&node).await;
    // As written by real tools.
    let docker = node.archive("plain.tar", &docker_archive("three:3", &some("three")));
    let oci = node.path("oci.tar");
    let (from, to) = (docker.display(), oci.display());
    skopeo(&[
        &format!("docker-archive:{from}"),
        &format!("oci-archive:{to}:quay.io/a/three:3"),
    ]);
    let done = node.load(&[&oci], None).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).starts_with("quay.io/a/three:3 sha256:"));
    daemon.stop().await;
    let names = node.names().await;
    assert_eq!(names[..2], BOTH);
    assert_eq!(names[2..], ["quay.io/a/three:3"]);
}

#[tokio::test]
async fn archives_in_the_directory_are_imported_as_they_appear() {
    let node = Node::new();
    let import = node.path("root").join("import");
    fs::create_dir_all(&import).expect("a folder");
    let early = import.join("early.tar");
    fs::write(&early, docker_archive("early:1", &some("early"))).expect("write");
    fs::write(import.join("bad.tar"), "bad").expect("write");
    let daemon = node.daemon().await;
    let taken = |name: &'static str| {
        let level = if name == "bad" { "warn" } else { "info" };
        daemon.wait_line(name, move |line| {
            let archive = line["archive"].as_str().unwrap_or_default();
            line["event"] == "image.import" && line["level"] == level && archive.contains(name)
        })
    };
    taken("early").await;
    taken("bad").await;
    let mut late = File::create(import.join("late.tar")).expect("create");
    late.write_all(&docker_archive("late:1", &some("late")))
        .expect("write");
    drop(late);
    taken("late").await;
    let log = daemon.stop().await;
    let told = log.iter().filter(|line| line.contains("bad.tar")).count();
    assert_eq!(told, 1, "once for each version of a file");
    assert_eq!(
        node.names().await,
        ["docker.io/library/early:1", "docker.io/library/late:1"]
    );
}

#[tokio::test]
async fn a_killed_daemon_reports_no_success() {
    let node = Node::new();
    let archive = node.archive("one.tar", &docker_archive("one:1", &some("one")));
    let start = Start::new(crate::CRISCOPE).config(&node.config());
    let daemon = start
        .env("CRISCOPE_CRASH_AT", "image.LayerUnpacked")
        .serving()
        .await;
    daemon.wait_event("image.load.ready").await;
    let done = node.load(&[&archive], None).await;
    assert_eq!(done.status.code(), Some(1));
    let (status, _) = daemon.ended().await;
    assert_eq!(status.signal(), Some(9));
    // Its socket still exists; the store is unlocked and intact.
    let done = node.load(&[&archive], None).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(node.names().await, ["docker.io/library/one:1"]);
}

#[tokio::test]
async fn a_proxy_has_no_images_of_its_own() {
    let archive = tempfile::NamedTempFile::new().expect("a file");
    let mut command = Command::new(crate::CRISCOPE);
    command.args(["load-image", "--upstream", "unix:///no/such"]);
    command.arg(archive.path());
    let done = tokio::time::timeout(
        Duration::from_secs(60),
        tokio::task::spawn_blocking(move || command.output()),
    );
    let done = done.await.expect("in time").expect("joined").expect("run");
    assert_eq!(done.status.code(), Some(1));
    assert!(
        text(&done.stderr).contains("built-in"),
        "{}",
        text(&done.stderr)
    );
}
