//! `criscope export`, with and without the daemon.

use std::io::Read as _;
use std::process::Child;

use super::super::loaded::{Node, text};
use crate::runtime::image::*;

const NAME: &str = "docker.io/library/one:1";

fn command(node: &Node, arguments: &[&str]) -> Command {
    let config = node.archive("export.toml", node.config().as_bytes());
    let mut command = Command::new(crate::CRISCOPE);
    command.arg("export").arg("--config").arg(config);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs `criscope export` off the test's thread.
async fn export(node: &Node, arguments: &[&str]) -> Output {
    let mut command = command(node, arguments);
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("joined").expect("run")
}

/// Exports an image to a file and to a pipe, and what is not there.
async fn export_all(node: &Node) -> Vec<u8> {
    let file = node.path("out.tar");
    let path = file.display().to_string();
    let done = export(node, &["one:1", "-o", &path]).await;
    let (out, errors) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{errors}");
    assert!(out.starts_with(&format!("{NAME} sha256:")), "{out}");
    let archive = fs::read(&file).expect("an archive");
    let piped = export(node, &["one:1", "-o", "-"]).await;
    assert_eq!(text(&piped.stderr), out);
    assert!(piped.stdout == archive, "the same archive");
    let before = fs::read_dir(node.path(".")).expect("a folder").count();
    for place in [&file, &node.path("new.tar")] {
        let place = place.display().to_string();
        let failed = export(node, &["one:1", "two:2", "-o", &place]).await;
        assert_eq!(failed.status.code(), Some(1));
        let errors = text(&failed.stderr);
        assert!(errors.contains("two:2: not found"), "{errors}");
    }
    let after = fs::read_dir(node.path(".")).expect("a folder").count();
    assert_eq!(before, after);
    assert!(fs::read(&file).expect("the archive") == archive);
    let full = export(node, &["one:1", "-o", "/dev/full"]).await;
    assert_eq!(full.status.code(), Some(1));
    let errors = text(&full.stderr);
    assert!(errors.contains("No space left"), "{errors}");
    archive
}

#[tokio::test]
async fn images_are_exported_with_and_without_the_daemon() {
    let node = Node::new();
    let built = with_file(b"one");
    let one = node.archive("one.tar", &docker_archive("one:1", &built));
    assert!(node.load(&[&one], None).await.status.success());
    let without = export_all(&node).await;
    let daemon = node.daemon().await;
    daemon.wait_event("image.export.ready").await;
    let with = export_all(&node).await;
    assert!(with == without, "the same archive");
    daemon.stop().await;
    let other = Node::new();
    let loaded = other.load(&[&node.path("out.tar")], None).await;
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    assert_eq!(other.names().await, [NAME]);
    // A process that holds the store without serving it is left alone.
    let config = criscope_image::ImageStoreConfig::new(node.path("root").join("images"));
    let mine = image_store::open(&config).await;
    let refused = export(&node, &["one:1"]).await;
    assert_eq!(refused.status.code(), Some(1));
    drop(mine);
}

/// A node with an image that no pipe has room for.
async fn large() -> Node {
    let node = Node::new();
    let built = uncompressed(&json!({}), layer().file("f", &noise(1, 8 << 20)).end());
    let one = node.archive("one.tar", &docker_archive("one:1", &built));
    assert!(node.load(&[&one], None).await.status.success());
    node
}

/// An export into a pipe, of which only the beginning is read.
fn begun(node: &Node) -> Child {
    let mut command = command(node, &["one:1"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut beginning = [0; 512];
    let out = child.stdout.as_mut().expect("a pipe");
    out.read_exact(&mut beginning).expect("the beginning");
    child
}

/// The daemon exports for two at once: those that were killed must be none of them.
#[tokio::test]
async fn a_command_that_is_killed_ends_its_export() {
    let node = large().await;
    let daemon = node.daemon().await;
    daemon.wait_event("image.export.ready").await;
    for _ in 0..4 {
        let mut child = begun(&node);
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    let file = node.path("out.tar").display().to_string();
    let done = export(&node, &["one:1", "-o", &file]).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    daemon.stop().await;
}

#[tokio::test]
async fn a_daemon_that_is_killed_is_no_end_of_an_archive() {
    let node = large().await;
    let daemon = node.daemon().await;
    daemon.wait_event("image.export.ready").await;
    let child = begun(&node);
    daemon.signal(Signal::SIGKILL);
    daemon.ended().await;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output());
    let output = output.await.expect("joined").expect("ended");
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert!(errors.contains("ended before"), "{errors}");
}

/// Nothing has to be cleaned up after a signal.
#[tokio::test]
async fn a_killed_export_to_a_file_leaves_none() {
    let node = large().await;
    let dir = node.path("out");
    fs::create_dir(&dir).expect("a folder");
    let path = dir.join("a.tar");
    fs::write(&path, "before").expect("written");
    // The daemon is busy with two others, so this one waits.
    let daemon = node.daemon().await;
    daemon.wait_event("image.export.ready").await;
    let mut others = [begun(&node), begun(&node)];
    let mut child = command(&node, &["one:1", "-o", &path.display().to_string()])
        .spawn()
        .expect("started");
    // It has opened its file.
    let opened = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", child.id())).expect("descriptors");
        let targets = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let dir: &Path = &dir;
        targets.into_iter().any(|target| target.starts_with(dir))
    };
    while !opened() {
        tokio::task::yield_now().await;
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 1);
    assert_eq!(fs::read(&path).expect("read"), b"before");
    for other in &mut others {
        other.kill().expect("killed");
        other.wait().expect("ended");
    }
    daemon.stop().await;
}
