//! `criscope images` and `criscope prune`, with images that pods use in every way and those that none does.

use criscope::units;

use crate::prelude::*;

const MOUNTED: &str = "r.example:5000/mounted:1";
const UNUSED: &str = "r.example:5000/unused:1";
const SECOND: &str = "r.example:5000/unused:2";

async fn run(socket: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(crate::CRISCOPE);
    command.args(args).arg("--endpoint").arg(socket);
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("joined").expect("run")
}

/// Standard output of a run that succeeds.
async fn printed(socket: &Path, args: &[&str]) -> String {
    let output = run(socket, args).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The names of all images and their users.
async fn images(socket: &Path) -> Vec<(String, Vec<String>)> {
    let text = printed(socket, &["images", "-o", "json"]).await;
    let images: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let strings = |value: &Value| -> Vec<String> {
        let all = value.as_array().expect("an array").iter();
        all.map(|it| it.as_str().expect("text").to_owned())
            .collect()
    };
    let image = |it: &Value| (strings(&it["names"]).join(" "), strings(&it["used_by"]));
    images.iter().map(image).collect()
}

/// Bytes of images, and those that prune would free.
async fn used(socket: &Path) -> (u64, u64) {
    let text = printed(socket, &["df", "-o", "json"]).await;
    let usage: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(usage["prune"]["is_by_layer"], true, "{text}");
    let used = usage["image_filesystems"][0]["used_bytes"].as_u64();
    let containers = usage["containers"].as_array().expect("an array");
    assert!(containers.iter().all(|it| it["bytes"].is_u64()), "{text}");
    let free = usage["prune"]["bytes"].as_u64();
    (used.expect("bytes"), free.expect("bytes"))
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_removes_what_no_pod_uses() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let (archive, store) = (
        daemon.root().join("more.tar"),
        daemon.root().join("root/images"),
    );
    for (name, more) in [(MOUNTED, "a"), (UNUSED, "b"), (SECOND, "c")] {
        // Images with the same configuration are one image.
        busybox::write_with(&archive, name, &json!({"Labels": {"x": more}}));
        image_store::import(&archive, &store).await;
    }
    daemon.start().await;
    let socket = daemon.socket();
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("user").await;
    let mut config = idle("app");
    config.mounts.push(v1::Mount {
        container_path: "/volume".to_owned(),
        image: Some(requests::image_spec(MOUNTED)),
        readonly: true,
        ..Default::default()
    });
    // Never started: its image is in use all the same.
    let id = kubelet
        .try_create(&pod, config)
        .await
        .expect("CreateContainer");

    let all = images(&socket).await;
    let users = |name: &str| {
        let found = all.iter().find(|(names, _)| names == name);
        found
            .unwrap_or_else(|| panic!("no {name}: {all:?}"))
            .1
            .len()
    };
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!((users(IMAGE), users(MOUNTED)), (1, 1), "{all:?}");
    assert_eq!((users(UNUSED), users(SECOND)), (0, 0), "{all:?}");
    let table = printed(&socket, &["images", "unused"]).await;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.contains("r.example:5000/unused   2 "), "{table}");

    let plan = printed(&socket, &["prune", "--dry-run"]).await;
    assert!(plan.contains(&format!("would remove {UNUSED} (")), "{plan}");
    assert!(plan.contains("2 images, "), "{plan}");
    assert_eq!(images(&socket).await, all);

    let free = used(&socket).await;
    let done = printed(&socket, &["prune"]).await;
    assert!(done.contains(&format!("removed {SECOND} (")), "{done}");
    let left: Vec<_> = images(&socket).await;
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|(_, users)| !users.is_empty()), "{left:?}");
    // All images here have the same layer, which stays.
    assert_eq!(free.1, 0);
    let again = printed(&socket, &["prune"]).await;
    assert_eq!(again, "no unused images\n");

    // What a removed container used is unused.
    kubelet.remove(&id).await;
    let (before, free) = used(&socket).await;
    assert!(free > 100_000, "a layer with busybox: {free}");
    let table = printed(&socket, &["df", "-v"]).await;
    assert!(table.contains(&units::bytes(free)), "{table}");
    let gone = printed(&socket, &["prune", "-o", "json"]).await;
    let gone: Value = serde_json::from_str(&gone).expect("JSON");
    assert_eq!(gone["removed"].as_array().map(Vec::len), Some(2), "{gone}");
    assert_eq!(printed(&socket, &["images", "-q"]).await, "");
    // Records and configurations go with the layers.
    let (after, _) = used(&socket).await;
    assert!(before - after >= free, "{before} - {after} < {free}");
    assert!(
        before - after < free + (64 << 10),
        "{before} - {after}, {free}"
    );
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test]
async fn without_a_runtime_there_is_a_hint() {
    let dir = tempfile::tempdir().expect("a directory");
    for command in ["images", "prune", "df"] {
        let output = run(&dir.path().join("cri.sock"), &[command]).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains("cri.sock"), "{errors}");
        assert!(errors.contains("is the runtime running"), "{errors}");
        assert!(output.stdout.is_empty());
    }
}
