//! Verbose answers, which `crictl inspectp`, `inspect` and `info` show and scripts read.

use std::os::unix::fs::MetadataExt as _;

use crate::prelude::*;

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// The file of a namespace, which is the same for each path of it.
fn inode(path: &str) -> u64 {
    fs::metadata(path).expect(path).ino()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_namespace_of_a_pod_is_found_as_with_containerd_and_crio() {
    let (daemon, kubelet, pod) = node_with_pod("verbose").await;
    let empty = kubelet.pod_info(&pod.id).await;
    assert_eq!(empty["pid"], 0, "no process is in it yet");
    let container = kubelet.launch(&pod, idle("main")).await;

    let info = kubelet.pod_info(&pod.id).await;
    let pid = info["pid"].as_u64().expect("a number");
    let namespaces = info["runtimeSpec"]["linux"]["namespaces"].as_array();
    let mut namespaces = namespaces.expect("a list").iter();
    let network = namespaces.find(|one| one["type"] == "network");
    let path = network.expect("a network")["path"]
        .as_str()
        .expect("a path");
    assert_eq!(inode(path), inode(&format!("/proc/{pid}/ns/net")));
    assert_eq!(info["netNamespaceClosed"], false);
    let eth0 = &info["cniResult"]["Interfaces"]["eth0"];
    assert_eq!(eth0["IPConfigs"][0]["IP"], kubelet.address(&pod).await);
    assert_eq!(eth0["Sandbox"], path);
    assert!(
        eth0["Mac"].as_str().is_some_and(|mac| mac.len() == 17),
        "{eth0}"
    );

    let inside = kubelet.info(&container).await;
    assert_eq!(
        (&inside["pid"], &inside["privileged"]),
        (&info["pid"], &false.into())
    );
    assert_eq!(inside["sandboxID"], pod.id.as_str());
    let args = &inside["runtimeSpec"]["process"]["args"];
    assert!(args.is_array(), "{inside}");

    // The pid of what has ended may belong to another process.
    kubelet.stop(&container, 0).await;
    assert_eq!(kubelet.info(&container).await["pid"], 0);
    kubelet.stop_pod(&pod.id).await;
    let stopped = kubelet.pod_info(&pod.id).await;
    assert_eq!(
        (&stopped["pid"], &stopped["netNamespaceClosed"]),
        (&0.into(), &true.into())
    );
    assert_eq!(stopped["cniResult"], Value::Null);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updated_resources_of_a_pod_are_shown() {
    let (daemon, kubelet, pod) = node_with_pod("resized").await;
    let memory = |bytes| {
        Some(v1::LinuxContainerResources {
            memory_limit_in_bytes: bytes,
            ..Default::default()
        })
    };
    let request = v1::UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: pod.id.clone(),
        overhead: memory(1 << 20),
        resources: memory(64 << 20),
    };
    let mut runtime = kubelet.runtime.clone();
    let updated = runtime.update_pod_sandbox_resources(request).await;
    updated.expect("UpdatePodSandboxResources");
    let info = kubelet.pod_info(&pod.id).await;
    assert_eq!(info["overhead"]["memory_limit_in_bytes"], 1 << 20);
    assert_eq!(info["resources"]["memory_limit_in_bytes"], 64 << 20);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_in_effect_is_shown_with_the_networks() {
    let (daemon, kubelet) = node().await;
    let info = kubelet.runtime_status().await.info;
    let config = parsed(&info["config"]);
    let root = daemon.root().join("root");
    let root = root.to_str().expect("text");
    assert_eq!(config["root"], root);
    let settings = &config["settings"];
    assert_eq!(settings["runtime.root"], format!("{root:?}"));
    // A default that no file sets.
    assert_eq!(settings["runtime.drain_exec_sync_io_timeout"], "\"5s\"");
    let default = &config["containerd"]["defaultRuntimeName"];
    let runtimes = &config["containerd"]["runtimes"];
    assert!(runtimes[default.as_str().expect("a name")]["path"].is_string());

    assert_eq!(info["lastCNILoadStatus"], "OK");
    let networks = parsed(&info["cniconfig"]);
    let first = &networks["Networks"][0];
    assert!(first["Config"]["Name"].is_string(), "{networks}");
    assert_eq!(first["IFName"], "eth0");
    assert_eq!(networks["PluginConfDir"], config["cni"]["confDir"]);

    let dir = config["cni"]["confDir"].as_str().expect("a path");
    fs::write(format!("{dir}/00-broken.conflist"), "{").expect("a file");
    let info = kubelet.runtime_status().await.info;
    let said = &info["lastCNILoadStatus"];
    assert!(said.contains("00-broken.conflist"), "{said}");
    daemon.assert_clean();
}
