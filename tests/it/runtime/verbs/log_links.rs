//! Links on the way to a log, from a pod that mounts a directory of logs and can write to it.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::prelude::*;

/// A container that writes numbers to the log `app/0.log`.
fn counting(name: &str) -> v1::ContainerConfig {
    let script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done";
    let mut config = shell(name, script);
    config.log_path = "app/0.log".to_owned();
    config
}

fn logs(pod: &Pod) -> PathBuf {
    PathBuf::from(&pod.config.log_directory)
}

/// A directory of the node that no log may be written to.
fn victims(daemon: &Daemon) -> PathBuf {
    let victims = daemon.root().join("victims");
    fs::create_dir(&victims).expect("victims");
    victims
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("directory").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("text"));
    names.collect()
}

async fn reopen(kubelet: &Kubelet, id: &str) -> Result<(), Status> {
    let request = requests::reopen_log(id);
    let mut runtime = kubelet.runtime.clone();
    runtime.reopen_container_log(request).await.map(drop)
}

async fn assert_not_started(kubelet: &Kubelet, pod: &Pod, name: &str) {
    let created = kubelet.try_create(pod, counting(name)).await;
    let id = created.expect("created");
    let error = assert_refused(
        kubelet.start(&id).await,
        Code::FailedPrecondition,
        "symbolic link",
    );
    assert!(error.message().contains("0.log"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_not_created_behind_a_link_in_place_of_a_directory() {
    let (daemon, kubelet) = node().await;
    let victims = victims(&daemon);

    // In place of the container's directory.
    let pod = kubelet.plain_pod("inner").await;
    symlink(&victims, logs(&pod).join("app")).expect("link");
    assert_not_started(&kubelet, &pod, "first").await;
    kubelet.end(&pod).await;

    // In place of the pod's directory, after its sandbox was made; then before another sandbox of it.
    let mut pod = kubelet.plain_pod("outer").await;
    fs::remove_dir(logs(&pod)).expect("directory");
    symlink(&victims, logs(&pod)).expect("link");
    assert_not_started(&kubelet, &pod, "second").await;
    kubelet.end(&pod).await;
    pod.config.metadata.get_or_insert_default().attempt = 1;
    assert_refused(
        kubelet.try_run(pod.config.clone(), "").await,
        Code::FailedPrecondition,
        &pod.config.log_directory,
    );

    // In place of a directory above it, from a pod that mounts all of /var/log.
    let above = daemon.root().join("above");
    fs::create_dir_all(above.join("pod")).expect("directory");
    let mut config = kubelet.pod_config("above");
    config.log_directory = above.join("pod").display().to_string();
    let pod = kubelet.run(config).await;
    fs::rename(&above, daemon.root().join("moved")).expect("renamed");
    symlink(&victims, &above).expect("link");
    assert_not_started(&kubelet, &pod, "third").await;
    kubelet.end(&pod).await;

    assert!(names(&victims).is_empty(), "{:?}", names(&victims));
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_not_reopened_behind_a_link_and_goes_on_in_the_old_file() {
    let (mut daemon, kubelet) = node().await;
    let victims = victims(&daemon);
    let pod = kubelet.plain_pod("rotates").await;
    let id = kubelet.launch(&pod, counting("main")).await;
    kubelet.logged(&id, "3").await;
    let (app, old) = (logs(&pod).join("app"), logs(&pod).join("old"));
    fs::rename(&app, &old).expect("renamed");
    symlink(&victims, &app).expect("link");
    let error = reopen(&kubelet, &id).await.expect_err("a link");
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    // After a restart of the daemon too, which knows the directory from its record.
    let kubelet = daemon.restart().await;
    reopen(&kubelet, &id).await.expect_err("a link");
    let size = || fs::metadata(old.join("0.log")).expect("the old file").len();
    let before = size();
    until_true("more output", async || size() > before).await;
    assert!(names(&victims).is_empty(), "{:?}", names(&victims));

    // In place of the log itself.
    fs::remove_file(&app).expect("link");
    fs::create_dir(&app).expect("directory");
    fs::write(victims.join("file"), "kept").expect("victim");
    for make in [
        |from: &Path, to: &Path| symlink(from, to),
        |from: &Path, to: &Path| fs::hard_link(from, to),
    ] {
        make(&victims.join("file"), &app.join("0.log")).expect("link");
        let error = reopen(&kubelet, &id).await.expect_err("a link");
        assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
        fs::remove_file(app.join("0.log")).expect("link");
    }
    assert_eq!(fs::read(victims.join("file")).expect("victim"), b"kept");

    // Without a link it is a rotation like any other, and missing directories are made again.
    fs::remove_dir(&app).expect("directory");
    reopen(&kubelet, &id).await.expect("ReopenContainerLog");
    until_true("lines in the new file", async || {
        kubelet.log(&id).await.len() > 2
    })
    .await;
    let mode = fs::metadata(&app).expect("directory").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_link_of_another_file_is_no_log() {
    let (daemon, kubelet, pod) = node_with_pod("hard").await;
    let victim = daemon.root().join("victim");
    fs::write(&victim, "kept").expect("victim");
    fs::hard_link(&victim, logs(&pod).join("main.log")).expect("link");
    let id = kubelet.try_create(&pod, idle("main")).await;
    let error = kubelet.start(&id.expect("created")).await;
    let error = error.expect_err("not started");
    assert!(error.message().contains("main.log"), "{error}");
    assert_eq!(fs::read(&victim).expect("victim"), b"kept");
    daemon.end(&kubelet, [&pod]).await;
}

/// Such as `/var/log`, which is on another disk.
#[tokio::test(flavor = "multi_thread")]
async fn links_of_the_administrator_above_a_log_directory_are_followed() {
    let (daemon, kubelet) = node().await;
    let (disk, link) = (daemon.root().join("disk"), daemon.root().join("log"));
    fs::create_dir_all(disk.join("pods")).expect("directory");
    symlink(&disk, &link).expect("link");
    let mut config = kubelet.pod_config("linked");
    config.log_directory = link.join("pods/linked").display().to_string();
    let pod = kubelet.run(config).await;
    let id = kubelet.launch(&pod, counting("main")).await;
    kubelet.logged(&id, "3").await;
    let path = PathBuf::from(kubelet.status(&id).await.log_path);
    assert_eq!(
        path,
        link.join("pods/linked/app/0.log"),
        "as the kubelet knows it"
    );
    fs::rename(&path, path.with_extension("old")).expect("renamed");
    reopen(&kubelet, &id).await.expect("ReopenContainerLog");
    until_true("lines in the new file", async || {
        kubelet.log(&id).await.len() > 2
    })
    .await;
    assert!(disk.join("pods/linked/app/0.log").exists());
    daemon.end(&kubelet, [&pod]).await;
}
