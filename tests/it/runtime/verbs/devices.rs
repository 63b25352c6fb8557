//! CDI devices, which vendors describe in files.

use std::fs;

use criscope::cri::v1;
use tonic::Code;

use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, idle};

/// The form that `nvidia-ctk cdi generate` writes.
const YAML: &str = "---
cdiVersion: 0.5.0
kind: vendor.example/gpu
containerEdits:
  env:
  - VENDOR=yes
devices:
- name: \"0\"
  containerEdits:
    deviceNodes:
    - path: /dev/gpu0
      hostPath: /dev/zero
";

const JSON: &str = r#"{"cdiVersion": "0.5.0", "kind": "vendor.example/nic", "devices":
    [{"name": "a", "containerEdits": {"env": ["NIC=a"]}}]}"#;

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_described_in_json_and_yaml() {
    let daemon = Daemon::new(crate::CRISCOPE).await;
    let dir = daemon.root().join("cdi");
    fs::create_dir_all(&dir).expect("dir");
    for (name, text) in [
        ("broken.yaml", "kind: [vendor.example/fpga"),
        ("gpu.yaml", YAML),
        ("nic.json", JSON),
    ] {
        fs::write(dir.join(name), text).expect("file");
    }
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("devices").await;
    let with = |name: &str, devices: &[&str]| {
        let mut config = idle(name);
        let devices = devices.iter().map(|name| v1::CdiDevice {
            name: (*name).to_owned(),
        });
        config.cdi_devices = devices.collect();
        config
    };
    let both = ["vendor.example/gpu=0", "vendor.example/nic=a"];
    let id = kubelet.launch(&pod, with("main", &both)).await;
    // The device is /dev/zero, and readable.
    let script = "echo $VENDOR $NIC; head -c 3 /dev/gpu0 | tr '\\0' x";
    assert_eq!(kubelet.says(&id, script).await, "yes a\nxxx");
    // Device plugins for older kubelets name them in annotations.
    let mut annotated = with("annotated", &both[..1]);
    let key = "cdi.k8s.io/vendor_nic".to_owned();
    annotated.annotations.insert(key, both[1].to_owned());
    let id = kubelet.launch(&pod, annotated).await;
    assert_eq!(kubelet.says(&id, script).await, "yes a\nxxx");

    let missing = with("missing", &["vendor.example/fpga=0"]);
    let error = kubelet.try_create(&pod, missing).await;
    let error = error.expect_err("no file describes it");
    assert_eq!(error.code(), Code::NotFound);
    let broken = dir.join("broken.yaml").display().to_string();
    assert!(error.message().contains(&broken), "{error}");
    kubelet.end(&pod).await;
    daemon.assert_clean();
}
