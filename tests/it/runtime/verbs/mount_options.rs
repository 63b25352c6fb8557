//! Options that a request adds to a mount are in force in the container, and others are refused.

use std::os::unix::fs::PermissionsExt as _;

use super::images::spec;
use crate::prelude::*;

fn mount(host_path: &Path, options: &[&str]) -> v1::Mount {
    v1::Mount {
        container_path: "/data".to_owned(),
        host_path: host_path.display().to_string(),
        mount_options: options.iter().map(|&option| option.to_owned()).collect(),
        ..Default::default()
    }
}

fn with_mount(name: &str, mount: v1::Mount) -> v1::ContainerConfig {
    v1::ContainerConfig {
        mounts: vec![mount],
        ..idle(name)
    }
}

/// A directory of the node with a program.
fn volume(daemon: &Daemon) -> PathBuf {
    let dir = daemon.root().join("volume");
    fs::create_dir(&dir).expect("directory");
    let program = dir.join("program");
    fs::write(&program, "#!/bin/sh\necho ran\n").expect("program");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("mode");
    dir
}

/// The options of the mount at a path, as the container sees them.
async fn options_at(kubelet: &Kubelet, id: &str, path: &str) -> Vec<String> {
    let table = kubelet.says(id, "cat /proc/self/mountinfo").await;
    let mut mounts = table.lines().map(|line| line.split(' '));
    let found = mounts.find_map(|mut fields| {
        (fields.nth(4) == Some(path)).then(|| fields.next().unwrap_or_default().to_owned())
    });
    let found = found.unwrap_or_else(|| panic!("{path} is no mount: {table}"));
    found.split(',').map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_options_are_in_force() {
    let (daemon, kubelet, pod) = node_with_pod("options").await;
    let mut runtime = kubelet.runtime.clone();
    let status = runtime.status(v1::StatusRequest::default()).await;
    let features = status.expect("Status").into_inner().features;
    assert!(features.expect("features").mount_options);
    let dir = volume(&daemon);

    let plain = kubelet
        .launch(&pod, with_mount("plain", mount(&dir, &[])))
        .await;
    assert_eq!(kubelet.says(&plain, "/data/program").await, "ran");

    let all = ["noexec", "nosuid", "nodev"];
    let hard = kubelet
        .launch(&pod, with_mount("hard", mount(&dir, &all)))
        .await;
    let ran = kubelet.exec(&hard, "/data/program").await;
    assert_ne!(ran.code, 0, "{}", ran.out);
    assert!(ran.err.contains("ermission denied"), "{}", ran.err);
    let found = options_at(&kubelet, &hard, "/data").await;
    for option in all {
        assert!(found.iter().any(|one| one == option), "{option}: {found:?}");
    }
    kubelet.says(&hard, "echo x > /data/written").await;

    let read_only = mount(&dir, &["ro", "nosuid"]);
    let read_only = kubelet.launch(&pod, with_mount("ro", read_only)).await;
    let written = kubelet.exec(&read_only, "echo x > /data/written").await;
    assert_ne!(written.code, 0);
    let found = options_at(&kubelet, &read_only, "/data").await;
    assert!(found.contains(&"nosuid".to_owned()), "{found:?}");
    assert!(!found.contains(&"noexec".to_owned()), "{found:?}");
    // The status repeats the request.
    let status = kubelet.status(&hard).await;
    assert_eq!(status.mounts[0].mount_options, all);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_of_an_image_has_mount_options_too() {
    let (daemon, kubelet, pod) = node_with_pod("image-options").await;
    let image = v1::Mount {
        image: spec(IMAGE),
        host_path: String::new(),
        readonly: true,
        ..mount(Path::new(""), &["noexec"])
    };
    let id = kubelet.launch(&pod, with_mount("app", image)).await;
    let ran = kubelet.exec(&id, "/data/bin/busybox true").await;
    assert_ne!(ran.code, 0);
    let found = options_at(&kubelet, &id, "/data").await;
    for option in ["ro", "noexec"] {
        assert!(found.iter().any(|one| one == option), "{option}: {found:?}");
    }
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_mount_options_are_refused_by_name() {
    let (daemon, kubelet, pod) = node_with_pod("refused").await;
    let dir = volume(&daemon);
    for option in ["exec", "rw", "rshared", "uid=0", "noexec,nosuid", ""] {
        let config = with_mount("app", mount(&dir, &["nosuid", option]));
        let words = format!("mount option {option:?}");
        let made = kubelet.try_create(&pod, config).await;
        assert_refused(made, Code::InvalidArgument, &words);
    }
    daemon.end(&kubelet, [&pod]).await;
}
