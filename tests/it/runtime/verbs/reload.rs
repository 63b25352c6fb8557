//! Settings that a reload changes.

use std::fs;

use serde_json::Value;

use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, idle};

#[tokio::test(flavor = "multi_thread")]
async fn live_settings_apply_to_containers_after_a_reload() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let hooks = daemon.root().join("hooks");
    fs::create_dir(&hooks).expect("a directory");
    let hook = r#"{"version": "1.0.0", "hook": {"path": "/bin/true"}, "when": {"always": true}, "stages": ["poststop"]}"#;
    fs::write(hooks.join("hook.json"), hook).expect("a file");
    daemon.set_runtime("pids_limit = 300\n");
    daemon.start().await;
    let kubelet = Kubelet::of(&daemon).await;
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
    kubelet.end(&pod).await;
    daemon.assert_clean();
}
