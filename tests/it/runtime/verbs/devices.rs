//! CDI devices, which vendors describe in files.

use crate::prelude::*;

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
    daemon.end(&kubelet, [&pod]).await;
}

const OF_RUNTIME_1_3: &str = r#"{"cdiVersion": "1.1.0", "kind": "vendor.example/rdma", "devices": [
    {"name": "a", "containerEdits": {"netDevices": [{"hostInterfaceName": "rdma0", "name": "net1"}]}},
    {"name": "b", "containerEdits": {"intelRdt": {"closID": "gold"}}}
]}"#;

/// runc 1.1 and crun 1.8 ignore `linux.netDevices`: the container would run without its device.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_device_the_oci_runtime_would_ignore_is_refused() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let dir = daemon.root().join("cdi");
    fs::create_dir_all(&dir).expect("dir");
    fs::write(dir.join("rdma.json"), OF_RUNTIME_1_3).expect("file");
    // A runtime that says it knows them.
    let knows = format!(
        r#"#!/bin/sh
for word; do
    [ "$word" != features ] || exec echo '{{"linux": {{"netDevices": {{"enabled": true}}}}}}'
done
exec '{}' "$@"
"#,
        oci_runtime().display()
    );
    let knows = daemon.add_program("knows", &knows);
    daemon.set_second(&knows);
    let kubelet = daemon.serve().await;
    let with = |name: &str| {
        let mut config = idle("main");
        let name = format!("vendor.example/rdma={name}");
        config.cdi_devices = vec![v1::CdiDevice { name }];
        config
    };
    let pod = kubelet.plain_pod("devices").await;
    let mut reasons = vec![("a", "linux.netDevices: the OCI runtime does not support it")];
    if !Path::new("/sys/fs/resctrl/schemata").exists() {
        reasons.push(("b", "linux.intelRdt: resctrl is not mounted"));
    }
    for (device, reason) in reasons {
        assert_refused(
            kubelet.try_create(&pod, with(device)).await,
            Code::FailedPrecondition,
            reason,
        );
    }
    let supported = kubelet
        .run_with(kubelet.pod_config("supported"), "second")
        .await;
    let id = kubelet.try_create(&supported, with("a")).await;
    let id = id.expect("CreateContainer");
    let bundle = daemon.root().join("root/containers").join(&id);
    let text = fs::read(bundle.join("config.json")).expect("a bundle");
    let spec: Value = serde_json::from_slice(&text).expect("json");
    let expected = json!({"rdma0": {"name": "net1"}});
    assert_eq!(spec["linux"]["netDevices"], expected);
    daemon.end(&kubelet, [&pod, &supported]).await;
}
