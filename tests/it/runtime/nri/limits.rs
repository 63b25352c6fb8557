//! Limits in updates that the CRI does not know, and what no update changes.

use criscope_nri::PluginReply;
use criscope_nri::api::*;

use super::{Plugin, daemon};
use crate::prelude::*;

const RESERVED: i64 = 16 << 20;

fn update(id: &str, pids: i64, blockio_class: Option<OptionalString>) -> ContainerUpdate {
    ContainerUpdate {
        container_id: id.to_owned(),
        linux: Some(LinuxContainerUpdate {
            resources: Some(LinuxResources {
                pids: Some(LinuxPids { limit: pids }),
                memory: Some(LinuxMemory {
                    reservation: Some(OptionalInt64 { value: RESERVED }),
                    ..Default::default()
                }),
                blockio_class,
                ..Default::default()
            }),
        }),
        ignore_failure: false,
    }
}

/// The limits of processes and the reserved memory in the bundle of a container, which the OCI runtime has applied.
fn limits(daemon: &Daemon, id: &str) -> (Option<i64>, Option<i64>) {
    let bundle = daemon.root().join("root/containers").join(id);
    let text = fs::read(bundle.join("config.json")).expect("a bundle");
    let spec: Value = serde_json::from_slice(&text).expect("JSON");
    let resources = &spec["linux"]["resources"];
    let pids = resources["pids"]["limit"].as_i64();
    (pids, resources["memory"]["reservation"].as_i64())
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_the_cri_does_not_know_are_updated_and_the_rest_is_named() {
    let (daemon, kubelet) = daemon().await;
    let pod = kubelet.plain_pod("limits").await;
    let id = kubelet.launch(&pod, idle("main")).await;
    let of_main = id.clone();
    let serve = move |method: &str, _| match method {
        "UpdateContainer" => PluginReply::message(&UpdateContainerResponse {
            update: vec![update(&of_main, 77, None)],
            ..Default::default()
        }),
        _ => PluginReply::empty(),
    };
    let plugin = Plugin::new(&daemon, "10", &[Event::UpdateContainer], serve).await;
    let asked = v1::LinuxContainerResources {
        cpu_shares: 512,
        ..Default::default()
    };
    kubelet.update(&id, asked).await;
    assert_eq!(limits(&daemon, &id), (Some(77), Some(RESERVED)));

    let class = Some(OptionalString {
        value: "slow".to_owned(),
    });
    let request = UpdateContainersRequest {
        update: vec![update(&id, 66, class)],
        ..Default::default()
    };
    let answer = plugin.end.update_containers(&request).await.expect("done");
    assert!(answer.failed.is_empty());
    assert_eq!(limits(&daemon, &id), (Some(66), Some(RESERVED)));
    let named = |line: &Value| {
        line["event"] == "runtime.nri"
            && line["container.id"] == *id
            && line["nri.fields"] == "blockio_class"
    };
    daemon.program().wait_line("the field", named).await;
    daemon.end(&kubelet, [&pod]).await;
}
