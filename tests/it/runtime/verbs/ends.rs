//! Unusual exits and signals.

use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn real_time_signals_stop_containers_and_kill_processes() {
    let (daemon, kubelet, pod) = node_with_pod("real-time").await;

    // The stop signal of systemd in a container.
    let script = "trap 'exit 9' 37; echo up; while :; do sleep 0.02; done";
    let mut config = shell("init", script);
    config.set_stop_signal(v1::Signal::Sigrtminplus3);
    let init = kubelet.launch(&pod, config).await;
    kubelet.logged(&init, "up").await;
    kubelet.stop(&init, 30).await;
    assert_eq!(kubelet.status(&init).await.exit_code, 9);

    // 128 + n, and the shim still notices other exits.
    let main = kubelet.launch(&pod, idle("main")).await;
    assert_eq!(kubelet.exec(&main, "kill -37 $$").await.code, 165);
    assert_eq!(kubelet.exec(&main, "exit 3").await.code, 3);
    kubelet.stop(&main, 0).await;
    assert_eq!(kubelet.status(&main).await.exit_code, 137);
    daemon.end(&kubelet, [&pod]).await;
}

/// The kubelet's e2e tests have such a container: its shell passes on how its child exited.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_child_was_oom_killed_reports_it() {
    let (daemon, kubelet, pod) = node_with_pod("hungry").await;
    let child = "sh -c 'x=0123456789abcdef; while :; do x=$x$x; done'";
    for (name, then, code, reason) in [
        ("tells", "exit $?", 137, "OOMKilled"),
        ("fails", "exit 1", 1, "OOMKilled"),
        ("recovers", "exit 0", 0, "Completed"),
    ] {
        let mut config = shell(name, &format!("{child}; {then}"));
        resources(&mut config).memory_limit_in_bytes = 24 << 20;
        let id = kubelet.launch(&pod, config).await;
        let status = kubelet.ended(&id).await;
        assert_eq!(
            (status.exit_code, status.reason.as_str()),
            (code, reason),
            "{name}"
        );
    }
    daemon.end(&kubelet, [&pod]).await;
}

/// The kubelet creates containers by image id, and shows users the image name in the status.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_created_by_image_id_has_the_images_name() {
    let (daemon, kubelet, pod) = node_with_pod("named").await;
    let request = requests::image_status(IMAGE);
    let image = kubelet.images.clone().image_status(request).await;
    let image = image.expect("ImageStatus").into_inner().image;
    let mut config = idle("main");
    config.image = Some(v1::ImageSpec {
        image: image.expect("the image").id,
        user_specified_image: IMAGE.to_owned(),
        ..Default::default()
    });
    let id = kubelet.launch(&pod, config).await;
    let status = kubelet.status(&id).await;
    assert_eq!(status.image.expect("an image").image, IMAGE);
    assert!(status.image_id.contains("sha256:"), "{}", status.image_id);
    daemon.end(&kubelet, [&pod]).await;
}
