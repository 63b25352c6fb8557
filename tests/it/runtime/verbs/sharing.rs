//! Namespaces, memory and volumes shared by containers of a pod.

use crate::prelude::*;

fn mode(config: &mut v1::ContainerConfig, mode: v1::NamespaceMode, target: &str) {
    let options = security(config).namespace_options.get_or_insert_default();
    options.pid = mode.into();
    target.clone_into(&mut options.target_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_processes_of_a_pod_and_of_a_target() {
    let (daemon, kubelet) = node().await;

    // Each container has its own, except one that targets another.
    let pod = kubelet.plain_pod("apart").await;
    let first = kubelet.launch(&pod, idle("first")).await;
    let second = kubelet.launch(&pod, idle("second")).await;
    let namespace = "busybox readlink /proc/self/ns/pid";
    assert_ne!(
        kubelet.says(&first, namespace).await,
        kubelet.says(&second, namespace).await
    );
    let mut looks = idle("looks");
    mode(&mut looks, v1::NamespaceMode::Target, &first);
    let looks = kubelet.launch(&pod, looks).await;
    assert_eq!(
        kubelet.says(&first, namespace).await,
        kubelet.says(&looks, namespace).await
    );
    kubelet.end(&pod).await;

    // All share one, whose init reaps their orphans, and outlives each of them.
    let mut config = kubelet.pod_config("together");
    pod_namespaces(&mut config).pid = v1::NamespaceMode::Pod.into();
    let pod = kubelet.run(config).await;
    let mut ids = Vec::new();
    for name in ["first", "second"] {
        let mut config = idle(name);
        mode(&mut config, v1::NamespaceMode::Pod, "");
        ids.push(kubelet.launch(&pod, config).await);
    }
    let init = kubelet.says(&ids[0], "cat /proc/1/cmdline").await;
    // The init belongs to none of them, and has a name.
    assert!(init.starts_with("criscope-shim\0"), "{init:?}");
    assert_eq!(
        kubelet.says(&ids[0], namespace).await,
        kubelet.says(&ids[1], namespace).await
    );
    kubelet.exec(&ids[0], "(sleep 0.2 &) ; :").await;
    kubelet.stop(&ids[0], 5).await;
    assert_eq!(kubelet.ended(&ids[0]).await.exit_code, 0);
    let zombies = "ps -o stat,comm | grep -c '^Z' ; :";
    until_true("no zombies", async || {
        kubelet.says(&ids[1], zombies).await == "0"
    })
    .await;
    daemon.end(&kubelet, [&pod]).await;
}

/// The kubelet always names the mode; other callers leave it out, which is the enum's zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_a_mode_has_the_processes_of_a_pod_that_shares_the_nodes() {
    let (daemon, kubelet) = node().await;
    let mut config = kubelet.pod_config("of-the-node");
    pod_namespaces(&mut config).pid = v1::NamespaceMode::Node.into();
    let pod = kubelet.run(config).await;
    let mut config = idle("main");
    mode(&mut config, v1::NamespaceMode::Pod, "");
    let id = kubelet.launch(&pod, config).await;
    let own = kubelet
        .says(&id, "busybox readlink /proc/self/ns/pid")
        .await;
    let node = fs::read_link("/proc/self/ns/pid").expect("link");
    assert_eq!(own, node.to_string_lossy());
    daemon.end(&kubelet, [&pod]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_volumes() {
    let (daemon, kubelet, pod) = node_with_pod("shared").await;
    let first = kubelet.launch(&pod, idle("first")).await;
    let second = kubelet.launch(&pod, idle("second")).await;
    let write = "echo one > /dev/shm/f; echo mine > /volume/f; echo mine > /f";
    kubelet.says(&first, write).await;
    assert_eq!(kubelet.says(&second, "cat /dev/shm/f").await, "one");
    // The image's volume is private to each container, and so is its rootfs.
    assert_eq!(kubelet.says(&second, "ls /volume").await, "");
    assert!(kubelet.exec(&second, "ls /f").await.code != 0);
    assert_eq!(
        kubelet
            .says(&first, "grep -c ' /volume ' /proc/mounts")
            .await,
        "1"
    );
    daemon.end(&kubelet, [&pod]).await;
}
