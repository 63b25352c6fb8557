//! Statistics of containers of containerd's shims: those that the shim reports, and those of cgroups, which are empty with gVisor.

use super::reports::{Reporter, failed, gvisor, metrics, unknown};
use super::{Shimmed, containerd_shims, shimmed};
use crate::prelude::*;

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
    kubelet.stats(id).await.expect("statistics")
}

/// Moves the processes of a container out of its cgroups, as gVisor's are elsewhere. Returns where each was.
fn empty_cgroups(daemon: &Daemon, id: &str) -> Vec<(PathBuf, String)> {
    let mut moved = Vec::new();
    let cgroups = cgroups(daemon, id);
    assert!(!cgroups.is_empty(), "no cgroup of {id}");
    for (dir, root) in cgroups {
        let processes = fs::read_to_string(dir.join("cgroup.procs")).expect("processes");
        for pid in processes.lines() {
            fs::write(root.join("cgroup.procs"), pid).expect("moved");
            moved.push((dir.join("cgroup.procs"), pid.to_owned()));
        }
    }
    moved
}

async fn list(kubelet: &Kubelet) -> Vec<v1::ContainerStats> {
    let request = v1::ListContainerStatsRequest::default();
    let stats = kubelet.runtime.clone().list_container_stats(request).await;
    stats.expect("ListContainerStats").into_inner().stats
}

fn of<'a>(list: &'a [v1::ContainerStats], id: &str) -> &'a v1::ContainerStats {
    let is_its = |one: &&v1::ContainerStats| one.attributes.as_ref().is_some_and(|it| it.id == id);
    list.iter().find(is_its).expect("the container")
}

async fn pod_stats(kubelet: &Kubelet, id: &str) -> v1::LinuxPodSandboxStats {
    kubelet.pod_stats(id).await.expect("statistics")
}

/// Processor time in nanoseconds, and the working set in bytes.
fn numbers(stats: &v1::ContainerStats) -> Option<(u64, u64)> {
    let cpu = stats.cpu.as_ref()?.usage_core_nano_seconds.as_ref()?;
    let memory = stats.memory.as_ref()?.working_set_bytes.as_ref()?;
    Some((cpu.value, memory.value))
}

/// How many queries of shims failed, for a reason.
fn failures(scrape: &Scrape, reason: &str) -> f64 {
    let failed = scrape.metric("criscope_runtime_shim_statistics_failed_total");
    failed.with("reason", reason).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_usage_is_that_which_the_shim_reports() {
    let (mut daemon, kubelet, own) = shimmed("reports").await;
    let mut config = idle("main");
    let linux = config.linux.get_or_insert_default();
    linux
        .resources
        .get_or_insert_default()
        .memory_limit_in_bytes = 64 << 20;
    let main = kubelet.launch(&own.pod, config).await;
    let other = kubelet.plain_pod("other").await;
    let plain = kubelet.launch(&other, idle("plain")).await;
    // The real shim for runc, whose pressure and limits are those of the cgroup.
    let real = stats(&kubelet, &main).await;
    let (time, bytes) = numbers(&real).expect("the shim reports");
    assert!(time > 0 && bytes > 0, "{time} {bytes}");
    let available = |stats: &v1::ContainerStats| {
        let memory = stats.memory.expect("memory");
        memory.available_bytes.map(|bytes| bytes.value)
    };
    assert_eq!(available(&real), Some((64 << 20) - bytes));

    empty_cgroups(&daemon, &main);
    let (reporter, kubelet) = Reporter::of(&mut daemon, &own.pod, Some(gvisor(7, 9, 3))).await;
    assert_eq!(numbers(&stats(&kubelet, &main).await), Some((7, 9)));
    let all = list(&kubelet).await;
    assert_eq!(numbers(of(&all, &main)), Some((7, 9)));
    assert_eq!(available(of(&all, &main)), Some((64 << 20) - 9));
    assert!(numbers(of(&all, &plain)).is_some());
    assert_eq!(reporter.asked(), 2, "once for each call, and not of others");
    let pod = pod_stats(&kubelet, &own.pod.id).await;
    assert_eq!(numbers(of(&pod.containers, &main)), Some((7, 9)));
    let count = pod.process.and_then(|process| process.process_count);
    assert_eq!(count.map(|count| count.value), Some(3));
    assert!(pod.cpu.is_some() && pod.memory.is_some());

    let request = v1::ListPodSandboxMetricsRequest::default();
    let found = kubelet
        .runtime
        .clone()
        .list_pod_sandbox_metrics(request)
        .await;
    let found = found
        .expect("ListPodSandboxMetrics")
        .into_inner()
        .pod_metrics;
    let pods = found.iter().flat_map(|pod| &pod.container_metrics);
    let own_metrics = pods.clone().find(|one| one.container_id == main);
    let own_metrics = &own_metrics.expect("its metrics").metrics;
    let value = |name: &str| {
        let metric = own_metrics.iter().find(|metric| metric.name == name)?;
        metric.value.map(|value| value.value)
    };
    assert_eq!(value("container_memory_working_set_bytes"), Some(9));
    assert_eq!(value("container_spec_memory_limit_bytes"), Some(64 << 20));
    assert_eq!(value("container_processes"), Some(3));
    assert_eq!(
        value("container_file_descriptors"),
        None,
        "they are not seen"
    );
    kubelet.end(&other).await;
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_and_pods_follow_from_what_the_shim_reports() {
    let (mut daemon, kubelet, own) = shimmed("rates").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    let second = 1_000_000_000;
    let (reporter, kubelet) = Reporter::of(&mut daemon, &own.pod, Some(gvisor(second, 9, 1))).await;
    stats(&kubelet, &main).await;
    reporter.set(Some(gvisor(1000 * second, 9, 1)));
    until("a rate", || async {
        let cpu = stats(&kubelet, &main).await.cpu.expect("processor time");
        cpu.usage_nano_cores.filter(|rate| rate.value > 0)
    })
    .await;
    // The pod's own usage, while its cgroup counts anything, and else that of its containers.
    let time = |pod: v1::LinuxPodSandboxStats| {
        let usage = pod.cpu.expect("processor time").usage_core_nano_seconds;
        usage.expect("a number").value
    };
    assert!(time(pod_stats(&kubelet, &own.pod.id).await) < 1000 * second);
    empty_cgroups(&daemon, &main);
    let moved = empty_cgroups(&daemon, &own.pod.id);
    let pod = pod_stats(&kubelet, &own.pod.id).await;
    // runc finds the processes that it kills by the cgroup.
    for (procs, pid) in moved {
        fs::write(procs, pid).expect("moved back");
    }
    assert_eq!(time(pod), 1000 * second);
    own.end(&kubelet, &daemon).await;
}

/// As after an update of the daemon, whose pods keep their shims.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_shim_leaves_the_usage_of_cgroups_and_is_asked_once() {
    let (mut daemon, kubelet, own) = shimmed("older").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    let (reporter, kubelet) = Reporter::of(&mut daemon, &own.pod, Some(unknown())).await;
    for _ in 0..3 {
        let all = list(&kubelet).await;
        assert!(numbers(of(&all, &main)).is_some_and(|(time, bytes)| time > 0 && bytes > 0));
    }
    assert_eq!(reporter.asked(), 1);
    // Cgroups that account for nothing are no usage of zero.
    empty_cgroups(&daemon, &main);
    let after = stats(&kubelet, &main).await;
    assert!(after.cpu.is_none() && after.memory.is_none());
    assert!(after.writable_layer.is_some());
    let pod = pod_stats(&kubelet, &own.pod.id).await;
    assert!(pod.process.is_none(), "a number that is not known");
    let scrape = daemon.program().scrape().await;
    for reason in ["timeout", "error", "malformed"] {
        assert_eq!(failures(&scrape, reason), 0.0, "{reason}");
    }
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_that_are_not_understood_are_told_once() {
    let (mut daemon, kubelet, own) = shimmed("malformed").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    let broken = metrics(
        "types.containerd.io/io.containerd.cgroups.v2.Metrics",
        b"\x12\x7f",
    );
    let (reporter, kubelet) = Reporter::of(&mut daemon, &own.pod, Some(broken)).await;
    let none = stats(&kubelet, &main).await;
    assert!(none.cpu.is_none() && none.memory.is_none());
    let scrape = daemon.program().scrape().await;
    assert_eq!(failures(&scrape, "malformed"), 1.0);
    let said = |line: &Value| {
        line["event"] == "runtime.statistics" && line["container.id"] == main.as_str()
    };
    let line = daemon.program().wait_line("the reason", said).await;
    let text = line["error.message"].as_str().expect("a message");
    assert!(text.contains("malformed metrics"), "{text}");

    // Another container, of a type that no version of containerd's library has.
    reporter.set(Some(metrics("windows.Statistics", b"")));
    let late = kubelet.launch(&own.pod, idle("late")).await;
    let asked = reporter.asked();
    for _ in 0..2 {
        let (time, bytes) = numbers(&stats(&kubelet, &late).await).expect("of its cgroup");
        assert!(time > 0 && bytes > 0);
    }
    assert_eq!(reporter.asked(), asked + 1);
    own.end(&kubelet, &daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_fails_or_hangs_costs_its_containers_their_statistics_only() {
    let (mut daemon, kubelet, own) = shimmed("hangs").await;
    let main = kubelet.launch(&own.pod, idle("main")).await;
    let well = Shimmed::run(&daemon, &kubelet, kubelet.pod_config("well")).await;
    let other = kubelet.launch(&well.pod, idle("other")).await;
    let shims = containerd_shims(&own.pod.id);
    for shim in &shims {
        halt(Pid::from_raw(*shim));
    }
    let all = list(&kubelet).await;
    assert_eq!(numbers(of(&all, &main)), None);
    assert!(of(&all, &main).writable_layer.is_some());
    assert!(numbers(of(&all, &other)).is_some());
    let scrape = daemon.program().scrape().await;
    assert_eq!(failures(&scrape, "timeout"), 1.0);
    // The pod has the usage of its cgroup.
    let pod = pod_stats(&kubelet, &own.pod.id).await;
    assert!(pod.cpu.is_some() && pod.memory.is_some());
    for shim in &shims {
        kill(Pid::from_raw(*shim), Signal::SIGCONT).expect("continue");
    }
    // The own shim is there, and says nothing.
    let (_silent, kubelet) = Reporter::of(&mut daemon, &well.pod, None).await;
    let all = list(&kubelet).await;
    assert_eq!(numbers(of(&all, &other)), None);
    assert!(numbers(of(&all, &main)).is_some());
    kubelet.end(&well.pod).await;
    well.has_no_shim().await;

    let (_failing, kubelet) = Reporter::of(&mut daemon, &own.pod, Some(failed())).await;
    assert_eq!(numbers(&stats(&kubelet, &main).await), None);
    let scrape = daemon.program().scrape().await;
    assert_eq!(failures(&scrape, "error"), 1.0);
    own.end(&kubelet, &daemon).await;
}
