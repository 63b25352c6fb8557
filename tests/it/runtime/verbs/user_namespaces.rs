//! Pods with a user namespace that use the host network, and privileged containers and CDI devices in one.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::prelude::*;

const HOST_ID: u32 = 200_000;

fn users() -> Option<v1::UserNamespace> {
    Some(user_namespace(HOST_ID, 65536))
}

/// A daemon below a directory that every user can pass through, as these pods require.
async fn daemon() -> (Daemon, Kubelet) {
    let (daemon, kubelet) = node().await;
    let passable = fs::Permissions::from_mode(0o711);
    fs::set_permissions(daemon.root(), passable).expect("mode");
    (daemon, kubelet)
}

/// A container with the network of its pod's configuration, in the pod's user namespace.
fn container(pod: &v1::PodSandboxConfig, privileged: bool) -> v1::ContainerConfig {
    let mut config = idle("main");
    let network = pod.linux.as_ref().and_then(|linux| {
        let context = linux.security_context.as_ref()?;
        Some(context.namespace_options.as_ref()?.network)
    });
    let context = security(&mut config);
    context.privileged = privileged;
    let options = context.namespace_options.get_or_insert_default();
    options.network = network.unwrap_or_default();
    options.userns_options = users();
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_namespace_with_the_host_network() {
    let (daemon, kubelet) = daemon().await;
    let mut runtime = kubelet.runtime.clone();
    let status = runtime.status(v1::StatusRequest::default()).await;
    let features = status.expect("Status").into_inner().features;
    assert!(features.expect("features").user_namespaces_host_network);
    let mut config = kubelet.host_network_config("host-network");
    let options = pod_namespaces(&mut config);
    options.userns_options = users();
    let main = container(&config, false);
    let pod = kubelet.run(config).await;
    let id = kubelet.launch(&pod, main).await;
    let map = kubelet.says(&id, "cat /proc/self/uid_map").await;
    let map: Vec<_> = map.split_ascii_whitespace().collect();
    assert_eq!(map, ["0", "200000", "65536"]);
    let network = kubelet
        .says(&id, "busybox readlink /proc/self/ns/net")
        .await;
    let node = fs::read_link("/proc/self/ns/net").expect("link");
    assert_eq!(network.trim(), node.to_string_lossy());
    // It sees the node's network and may not change it.
    kubelet.says(&id, "test -d /sys/class/net/lo").await;
    // As with `procMount: Unmasked`, for which the kubelet sends no paths to hide.
    let unmasked = "! grep ' /proc/sys ' /proc/self/mountinfo";
    kubelet.says(&id, unmasked).await;
    let changed = kubelet
        .exec(&id, "busybox ip link set lo mtu 65536 2>/dev/null")
        .await;
    assert_ne!(changed.code, 0);
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_privileged_container_in_a_user_namespace() {
    let (daemon, kubelet) = daemon().await;
    let mut config = kubelet.pod_config("privileged");
    let context = pod_security(&mut config);
    context.privileged = true;
    context
        .namespace_options
        .get_or_insert_default()
        .userns_options = users();
    let main = container(&config, true);
    let pod = kubelet.run(config).await;
    let id = kubelet.launch(&pod, main).await;
    let map = kubelet.says(&id, "cat /proc/self/uid_map").await;
    assert!(map.contains("200000"), "{map}");
    // Everything within its namespaces, nothing of the node's.
    kubelet
        .says(
            &id,
            "busybox mkdir -p /tmp/m && busybox mount -t tmpfs none /tmp/m && : > /tmp/m/f",
        )
        .await;
    kubelet.says(&id, "busybox ip link set lo mtu 1400").await;
    let refused = kubelet
        .exec(&id, "(echo 1 > /proc/sys/kernel/sysrq) 2>/dev/null")
        .await;
    assert_ne!(refused.code, 0);
    daemon.end(&kubelet, [&pod]).await;
}

const CDI: &str = r#"{"cdiVersion": "1.1.0", "kind": "vendor.example/lib", "devices": [{"name": "a", "containerEdits": {"mounts": [
    {"hostPath": "DIR", "containerPath": "/one", "options": ["bind", "ro"]},
    {"hostPath": "DIR", "containerPath": "/all", "type": "none", "options": ["rbind"]}
]}}]}"#;

/// A mount of the test, which is removed even if the test fails.
struct Mounted(PathBuf);

impl Mounted {
    fn shared(source: &Path, target: &Path) -> Self {
        let none = None::<&str>;
        mount(Some(source), target, none, MsFlags::MS_BIND, none).expect("mounted");
        let mounted = Self(target.to_owned());
        mount(none, target, none, MsFlags::MS_SHARED, none).expect("shared");
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mounts_of_cdi_devices_belong_to_the_users_of_the_pod() {
    let (daemon, kubelet) = daemon().await;
    let (cdi, lib) = (daemon.root().join("cdi"), daemon.root().join("lib"));
    let below = lib.join("below");
    for dir in [&cdi, &below] {
        fs::create_dir_all(dir).expect("a directory");
    }
    fs::write(lib.join("file"), "").expect("a file");
    let text = CDI.replace("DIR", &lib.display().to_string());
    fs::write(cdi.join("lib.json"), text).expect("a file");
    let outer = Mounted::shared(&lib, &lib);
    let inner = Mounted::shared(&cdi, &below);
    let mut config = kubelet.pod_config("cdi");
    let context = pod_security(&mut config);
    let options = context.namespace_options.get_or_insert_default();
    options.userns_options = users();
    let mut main = container(&config, false);
    main.cdi_devices.push(v1::CdiDevice {
        name: "vendor.example/lib=a".to_owned(),
    });
    let pod = kubelet.run(config).await;
    let id = kubelet.launch(&pod, main).await;
    let script = "busybox stat -c %u /one/file /all/file /all/below/lib.json; ls /one/below; \
        touch /one/new 2>/dev/null || echo read-only; touch /all/new";
    assert_eq!(kubelet.says(&id, script).await, "0\n0\n0\nread-only");
    let new = fs::metadata(lib.join("new")).expect("written");
    assert_eq!(new.uid(), 0, "on the node");
    kubelet.end(&pod).await;
    // What the node has mounted there stays.
    assert!(below.join("lib.json").exists());
    drop((inner, outer));
    daemon.assert_clean();
}
