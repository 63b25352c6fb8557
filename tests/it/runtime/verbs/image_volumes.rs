//! Images whose `VOLUME`s or links lead to directories of the kernel.

use super::images::{pull, spec};
use crate::harness::image::{Image, configured, layer};
use crate::prelude::*;
use crate::runtime::crun::node_with_crun;

/// An image with one volume, and with links.
fn image(volume: &str) -> Image {
    let links = layer()
        .dir("real", 0o755)
        .file("real/file", b"content")
        .link("v", "/proc")
        .link("s", "real/../sys")
        .link("alias", "/real")
        .end();
    let run = json!({"Env": ["PATH=/bin"], "Volumes": {volume: {}}});
    configured(&run, &[busybox::layer(), links])
}

#[tokio::test(flavor = "multi_thread")]
async fn no_volume_of_an_image_replaces_a_directory_of_the_kernel() {
    let (daemon, kubelet) = node_with_crun().await;
    let registry = Registry::start().await;
    let pod = kubelet
        .run_with(kubelet.pod_config("volumes"), "crun")
        .await;
    let refused = [
        "/proc",
        "//proc",
        "proc/self",
        "/proc/../proc/x",
        "/./sys",
        "/sys/fs/cgroup",
        "/dev",
        "/dev/shm",
        "/v",
        "/v/sys",
        "/s/kernel",
        "/real/..",
    ];
    for (number, volume) in refused.iter().enumerate() {
        let name = registry.push("volumes", &number.to_string(), &image(volume));
        pull(&kubelet, &name, "test").await.expect("PullImage");
        let mut config = idle(&format!("c{number}"));
        config.image = spec(&name);
        let error = kubelet.try_create(&pod, config).await;
        let error = error.expect_err(volume);
        assert_eq!(error.code(), Code::InvalidArgument, "{volume}: {error}");
        let text = error.message();
        assert!(text.contains(&name) && text.contains(volume), "{text}");
    }

    let name = registry.push("volumes", "alias", &image("/alias"));
    pull(&kubelet, &name, "test").await.expect("PullImage");
    let mut config = idle("alias");
    config.image = spec(&name);
    security(&mut config).readonly_rootfs = true;
    let id = kubelet.launch(&pod, config.clone()).await;
    let said = kubelet
        .says(&id, "cat /real/file; touch /alias/new; ls /real")
        .await;
    assert_eq!(said, "contentfile\nnew");
    assert_eq!(kubelet.says(&id, "ls -d /proc/1").await, "/proc/1");

    // The pod's own mount is led nowhere by the image either.
    let mut config = idle("mount");
    config.image = spec(&name);
    config.mounts.push(v1::Mount {
        container_path: "/v".to_owned(),
        host_path: daemon.root().display().to_string(),
        ..Default::default()
    });
    let error = kubelet.try_create(&pod, config).await;
    let error = error.expect_err("a link to /proc");
    assert!(error.message().contains("/proc"), "{error}");
    daemon.end(&kubelet, [&pod]).await;
}
