//! Statistics of containers whose processes are not in their cgroups, as of gVisor.

use std::fs;
use std::path::{Path, PathBuf};

use criscope::cri::v1;

use super::{Shimmed, daemon};
use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, idle};

/// The directories of a container's cgroup, and the root of the hierarchy of each.
fn cgroups(daemon: &Daemon, id: &str) -> Vec<(PathBuf, PathBuf)> {
    let top = PathBuf::from("/sys/fs/cgroup");
    let below = Path::new(daemon.cgroup().trim_start_matches('/')).join(id);
    let hierarchies = fs::read_dir(&top).expect("cgroups").flatten();
    let roots = hierarchies.map(|one| one.path()).chain([top]);
    let all = roots.map(|root| (root.join(&below), root));
    all.filter(|(dir, _)| dir.exists()).collect()
}

async fn stats(kubelet: &Kubelet, id: &str) -> v1::ContainerStats {
    let request = v1::ContainerStatsRequest {
        container_id: id.to_owned(),
    };
    let stats = kubelet.runtime.clone().container_stats(request).await;
    stats
        .expect("ContainerStats")
        .into_inner()
        .stats
        .expect("statistics")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_accounted_elsewhere_has_no_usage_rather_than_zero() {
    let daemon = daemon().await;
    let kubelet = Kubelet::of(&daemon).await;
    let own = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("elsewhere")).await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    let before = stats(&kubelet, &main).await;
    assert!(before.cpu.is_some() && before.memory.is_some());
    let cgroups = cgroups(&daemon, &main);
    assert!(!cgroups.is_empty(), "no cgroup of {main}");
    for (dir, root) in cgroups {
        let processes = fs::read_to_string(dir.join("cgroup.procs")).expect("processes");
        for pid in processes.lines() {
            fs::write(root.join("cgroup.procs"), pid).expect("moved");
        }
    }
    let after = stats(&kubelet, &main).await;
    assert!(after.cpu.is_none() && after.memory.is_none());
    assert!(after.writable_layer.is_some());
    let request = v1::PodSandboxStatsRequest {
        pod_sandbox_id: own.pod.id.clone(),
    };
    let stats = kubelet.runtime.clone().pod_sandbox_stats(request).await;
    let stats = stats.expect("PodSandboxStats").into_inner().stats;
    let pod = stats.and_then(|stats| stats.linux).expect("statistics");
    assert!(pod.process.is_none(), "a number that is not known");
    own.end(&kubelet, &daemon).await;
}
