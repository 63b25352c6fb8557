//! Settings that a reload changes.

use super::images::{pull, spec};
use super::live_handlers::reload;
use crate::harness::image::{gzipped, layer};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn live_settings_apply_to_containers_after_a_reload() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let hooks = daemon.root().join("hooks");
    fs::create_dir(&hooks).expect("a directory");
    let hook = r#"{"version": "1.0.0", "hook": {"path": "/bin/true"}, "when": {"always": true}, "stages": ["poststop"]}"#;
    fs::write(hooks.join("hook.json"), hook).expect("a file");
    daemon.set_runtime("pids_limit = 300\n");
    let kubelet = daemon.serve().await;
    let pod = kubelet.plain_pod("live").await;
    let before = kubelet.launch(&pod, idle("before")).await;
    daemon.set_runtime(&format!(
        "pids_limit = 400\ndefault_ulimits = [\"nofile=77:77\"]\nhooks_dir = [{hooks:?}]\n\
         ignore_image_defined_volumes = true\nselinux_category_range = 100\n"
    ));
    daemon.reload();
    let waits = daemon.program().wait_event("config.restart_needed").await;
    assert_eq!(waits["keys"], "runtime.selinux_category_range");
    let after = kubelet.launch(&pod, idle("after")).await;
    let spec = |id: &str| -> Value {
        let bundle = daemon.root().join("root/containers").join(id);
        let text = fs::read(bundle.join("config.json")).expect("a bundle");
        serde_json::from_slice(&text).expect("JSON")
    };
    let (old, new) = (spec(&before), spec(&after));
    let pids = |spec: &Value| spec["linux"]["resources"]["pids"]["limit"].as_i64();
    assert_eq!((pids(&old), pids(&new)), (Some(300), Some(400)));
    assert_eq!(new["hooks"]["poststop"][0]["path"], "/bin/true");
    assert_eq!(kubelet.says(&after, "ulimit -Hn").await, "77");
    let mounts = |spec: &Value| spec["mounts"].as_array().expect("mounts").len();
    assert_eq!(mounts(&old), mounts(&new) + 1, "the volume of the image");
    // The same is shown.
    let request = criscope::cri::v1::StatusRequest { verbose: true };
    let status = kubelet.runtime.clone().status(request).await;
    let info = status.expect("Status").into_inner().info;
    assert!(
        info["config"].contains("\"runtime.pids_limit\":\"400\""),
        "{info:?}"
    );
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_images_apply_to_pulls_after_a_reload() {
    let (daemon, kubelet) = node().await;
    let registry = Registry::start().await;
    let named = registry.push("a", "1", &gzipped(&[layer().file("a", b"a").end()]));
    let name = "registry.example/a:1";
    let pinned = || async {
        let request = requests::image_status(IMAGE);
        let status = kubelet.images.clone().image_status(request).await;
        status
            .expect("ImageStatus")
            .into_inner()
            .image
            .expect("it is here")
            .pinned
    };
    assert!(!pinned().await);
    let images = |keys: &str| format!("[runtime.images]\n{keys}\n");

    // Another place for the images of a registry.
    let certs = daemon.root().join("certs.d");
    fs::create_dir_all(certs.join("registry.example")).expect("a folder");
    let address = named.split_once('/').expect("a registry").0;
    let hosts = format!("server = \"http://{address}\"\n");
    fs::write(certs.join("registry.example/hosts.toml"), hosts).expect("written");
    let keys = images(&format!(
        "certs_dirs = [{certs:?}]\npinned_images = [{IMAGE:?}]"
    ));
    let result = reload(&daemon, Some(&keys)).await;
    assert_eq!(
        result["changed"],
        "runtime.images.certs_dirs runtime.images.pinned_images"
    );
    pull(&kubelet, name, "default").await.expect("PullImage");
    assert!(pinned().await);

    // A policy, also for images that are here.
    let policy = daemon.root().join("policy.json");
    fs::write(&policy, r#"{"default": [{"type": "reject"}]}"#).expect("written");
    let result = reload(
        &daemon,
        Some(&images(&format!("signature_policy = {policy:?}"))),
    )
    .await;
    assert_eq!(result["event"], "config.reloaded");
    assert!(!pinned().await);
    let pod = kubelet.plain_pod("pod").await;
    let mut config = idle("main");
    config.image = spec(IMAGE);
    for error in [
        pull(&kubelet, &named, "default").await.err(),
        kubelet.try_create(&pod, config).await.err(),
    ] {
        let error = error.expect("rejected");
        let expected = "SignatureValidationFailed: ";
        assert!(error.message().starts_with(expected), "{error}");
    }
    reload(&daemon, None).await;
    pull(&kubelet, &named, "default").await.expect("PullImage");
    kubelet.launch(&pod, idle("main")).await;
    daemon.end(&kubelet, [&pod]).await;
}
