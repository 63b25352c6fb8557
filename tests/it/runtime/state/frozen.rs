//! Hanging disks: calls about other pods and the runtime are answered.

use super::Running;
use super::disk::Disk;
use crate::prelude::*;

/// Makes all calls that need no disk, each within the timeout of `soon`.
async fn answers(kubelet: &Kubelet) {
    let mut runtime = kubelet.runtime.clone();
    let version = runtime.version(v1::VersionRequest::default());
    soon("Version", version).await.expect("Version");
    let status = runtime.status(v1::StatusRequest { verbose: true });
    soon("Status", status).await.expect("Status");
    let pods = runtime.list_pod_sandbox(v1::ListPodSandboxRequest::default());
    soon("ListPodSandbox", pods).await.expect("pods");
    let containers = runtime.list_containers(v1::ListContainersRequest::default());
    soon("ListContainers", containers)
        .await
        .expect("containers");
    let stats = runtime.list_container_stats(v1::ListContainerStatsRequest::default());
    soon("ListContainerStats", stats).await.expect("stats");
    let stats = runtime.list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default());
    soon("ListPodSandboxStats", stats).await.expect("stats");
}

/// Waits until this number of the daemon's threads are blocked on the disk.
async fn stuck(daemon: &Daemon, wanted: usize) {
    let tasks = format!("/proc/{}/task", daemon.program().pid());
    until("threads blocked on the disk", || async {
        let threads = fs::read_dir(&tasks).ok()?.flatten();
        let waiting = threads.filter(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ")
                .next()
                .is_some_and(|rest| rest.starts_with('D'))
        });
        (waiting.count() >= wanted).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_hang_hold_up_their_own_containers_only() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let root = daemon.root();
    let mut disk = Disk::new(&root.join("disk.img"), &root.join("root/containers"));
    let kubelet = daemon.serve().await;
    let well = Running::new(&kubelet, "well").await;
    let mut made = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let pod = kubelet.plain_pod(name).await;
        let id = kubelet.try_create(&pod, idle("main")).await.expect("made");
        made.push((pod, id));
    }
    disk.freeze();
    let starts: Vec<_> = made
        .iter()
        .map(|(_, id)| {
            let (kubelet, id) = (kubelet.clone(), id.clone());
            tokio::spawn(async move { kubelet.start(&id).await })
        })
        .collect();
    stuck(&daemon, starts.len()).await;
    answers(&kubelet).await;
    // A pod whose files are on another disk.
    let pod = soon("another pod", kubelet.plain_pod("other")).await;
    soon("its end", kubelet.end(&pod)).await;
    well.lives("while others hang");
    disk.thaw();
    for start in starts {
        let started = start.await.expect("a task");
        started.expect("StartContainer");
    }
    for (pod, _) in &made {
        kubelet.end(pod).await;
    }
    kubelet.end(&well.pod).await;
    drop(disk);
    daemon.assert_clean();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_answer_while_all_of_the_root_hangs() {
    let mut daemon = Daemon::prepared(crate::CRISCOPE).await;
    let root = daemon.root();
    let mut disks = ["containers", "sandboxes"].map(|name| {
        let image = root.join(format!("{name}.img"));
        Disk::new(&image, &root.join("root").join(name))
    });
    let kubelet = daemon.serve().await;
    let pod = Running::new(&kubelet, "well").await;
    disks.iter_mut().for_each(Disk::freeze);
    let begun: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|name| {
            let (kubelet, config) = (kubelet.clone(), kubelet.pod_config(name));
            tokio::spawn(async move { kubelet.run(config).await })
        })
        .collect();
    stuck(&daemon, begun.len()).await;
    // Probes whose caller has given up do not accumulate threads.
    for _ in 0..8 {
        let probe = kubelet.try_exec(&pod.container, vec!["true".to_owned()], 1);
        let _late = tokio::time::timeout(Duration::from_millis(50), probe).await;
    }
    answers(&kubelet).await;
    disks.iter_mut().for_each(Disk::thaw);
    for pod in begun {
        kubelet.end(&pod.await.expect("RunPodSandbox")).await;
    }
    pod.is_well(&kubelet, "after all").await;
    kubelet.end(&pod.pod).await;
    drop(disks);
    daemon.assert_clean();
}
