//! Scenarios from real nodes, and the sentence each must begin with. They pass through the same store as real calls.

mod agent_texts;
mod asked_texts;
mod before;
mod crash;
mod deleted;
mod ephemeral;
mod events;
mod failures;
mod hooks;
mod images;
mod init;
mod injected;
mod kills;
mod kubelet;
mod node;
mod oci_texts;
mod pod_texts;
mod probes;
mod reboot;
mod scripts;
mod server_texts;
mod stopped;
mod syncs;
mod texts;
mod usual;

use std::time::Duration;

use super::*;
use crate::episode_call::EpisodeCall;
use crate::episode_store::{EpisodeStore, ExitRecord, StoreLimits};
use crate::process_scanner::WorkKind;
use crate::script::{ScriptedPod, at, pod};
use crate::usual::UsualDurations;
use criscope_cri::status::Code;

fn store(calls: impl IntoIterator<Item = EpisodeCall>) -> EpisodeStore {
    let limits = StoreLimits {
        episodes: 100,
        quiet: Duration::from_secs(10),
        give_up: Duration::from_secs(1800),
    };
    let mut store = EpisodeStore::new(limits, UsualDurations::default());
    for call in calls {
        let now = call.ended_at();
        store.tick(now, &[]);
        store.apply(call);
    }
    store
}

fn episodes(store: &EpisodeStore) -> Vec<&Episode> {
    store.episodes().collect()
}

fn headline(episode: &Episode, now: UnixMicros) -> String {
    let store = store([]);
    let node = store.node();
    super::episode_cause(episode, &[episode], &node, now).to_string()
}

fn pod_headline(episodes: &[&Episode], now: UnixMicros) -> String {
    let store = store([]);
    let node = store.node();
    let cause = Diagnoser::new(episodes, node, now).newest_cause();
    cause.expect("episodes").to_string()
}

fn crash_loops(episodes: &[&Episode], now: UnixMicros) -> Vec<Option<String>> {
    let store = store([]);
    let node = store.node();
    let pods = Diagnoser::new(episodes, node, now);
    episodes.iter().map(|e| pods.crash_loop(e)).collect()
}

/// The pod's headline at this time, with closed episodes if enough time has passed.
fn says(calls: impl IntoIterator<Item = EpisodeCall>, now: u64) -> String {
    let mut store = store(calls);
    store.tick(at(now), &[]);
    pod_headline(&episodes(&store), at(now))
}

fn up(pod: &ScriptedPod, from: u64) -> [EpisodeCall; 2] {
    [
        pod.create(("app", 0), from, 100),
        pod.start(("app", 0), from + 100, 100),
    ]
}

fn chain<const N: usize, const M: usize>(
    a: [EpisodeCall; N],
    b: [EpisodeCall; M],
) -> Vec<EpisodeCall> {
    a.into_iter().chain(b).collect()
}

#[test]
fn a_start_without_trouble() {
    let pod = pod("web");
    let calls = chain([pod.run(0, 900)], up(&pod, 1000));
    assert_eq!(
        says(calls, 60_000),
        "container app up after 1.20 s, nothing slow"
    );
}

#[test]
fn a_pod_that_goes_quickly_hides_nothing_of_its_start() {
    let pod = pod("web");
    let mut calls = chain([pod.run(0, 9000)], up(&pod, 9000));
    calls.extend([pod.stop(30_000, 300)]);
    let first = "9.00 s of 9.20 s in RunPodSandbox";
    assert_eq!(says(calls.clone(), 31_000), first);
    assert_eq!(says(calls, 90_000), first);

    let mut calls = chain([pod.run(0, 900)], up(&pod, 1000));
    calls.extend([pod.kill(("app", 0), 30_000, 20_000), pod.stop(50_000, 300)]);
    let last =
        "the pod was stopped by the kubelet just now: 20.0 s until app ended; gone after 20.3 s";
    assert_eq!(says(calls, 51_000), last);
}

#[test]
fn a_slow_network_plugin() {
    let pod = pod("web");
    let run = pod
        .run(0, 9700)
        .seen(WorkKind::Cni, "calico", "", 100, 9600)
        .seen(WorkKind::Cni, "calico", "iptables", 200, 9500)
        .seen(WorkKind::Oci, "runc", "create", 9600, 9700);
    let calls = chain([run], up(&pod, 9700));
    assert_eq!(
        says(calls, 60_000),
        "network: 9.50 s of 9.90 s in the CNI plugin calico (running iptables), during RunPodSandbox"
    );
}

#[test]
fn several_plugins() {
    let pod = pod("web");
    let run = pod
        .run(0, 9000)
        .seen(WorkKind::Cni, "bridge", "", 0, 5000)
        .seen(WorkKind::Cni, "portmap", "", 5000, 9000);
    assert_eq!(
        says(chain([run], up(&pod, 9000)), 60_000),
        "network: 9.00 s of 9.20 s in CNI plugins, most of it (5.00 s) in bridge, during RunPodSandbox"
    );
}

#[test]
fn a_slow_registry() {
    let pod = pod("web");
    let calls = chain(
        [
            pod.run(0, 1000),
            pod.pull("docker.io/library/app:1", 1500, 12_100),
        ],
        up(&pod, 13_800),
    );
    assert_eq!(
        says(calls, 60_000),
        "image pull: 12.1 s of 14.0 s pulling docker.io/library/app:1"
    );
}

#[test]
fn several_images() {
    let pod = pod("web");
    let calls = chain(
        [
            pod.run(0, 100),
            pod.pull("a:1", 100, 6000),
            pod.pull("b:1", 6100, 3000),
        ],
        up(&pod, 9100),
    );
    assert_eq!(
        says(calls, 60_000),
        "image pull: 9.00 s of 9.30 s pulling 2 images, 6.00 s of it a:1"
    );
}

#[test]
fn a_slow_oci_runtime() {
    let pod = pod("web");
    let create = pod
        .create(("app", 0), 100, 9500)
        .seen(WorkKind::Oci, "runc", "create", 200, 9300);
    let calls = [pod.run(0, 100), create, pod.start(("app", 0), 9600, 300)];
    assert_eq!(
        says(calls, 60_000),
        "9.10 s of 9.90 s in the OCI runtime runc create, during CreateContainer of app"
    );
}

#[test]
fn a_slow_runtime() {
    let pod = pod("web");
    let create = pod.create(("app", 0), 100, 9500);
    let calls = |create| [pod.run(0, 100), create, pod.start(("app", 0), 9600, 400)];
    assert_eq!(
        says(calls(create.clone()), 60_000),
        "9.50 s of 10.0 s in CreateContainer of app"
    );
    let seen = create.clone().seen(WorkKind::Oci, "runc", "create", 0, 100);
    assert_eq!(
        says(calls(seen), 60_000),
        "9.50 s of 10.0 s in CreateContainer of app, in the runtime itself"
    );
    let span = create.seen(WorkKind::Runtime, "unpack", "", 0, 9000);
    assert_eq!(
        says(calls(span), 60_000),
        "9.00 s of 10.0 s in the runtime's unpack, during CreateContainer of app"
    );
}

#[test]
fn a_kubelet_that_takes_its_time() {
    let pod = pod("web");
    let calls = [
        pod.run(0, 1000),
        pod.pull("app:1", 2000, 500),
        pod.create(("app", 0), 8500, 200),
        pod.start(("app", 0), 9700, 300),
    ];
    assert_eq!(
        says(calls, 60_000),
        "kubelet: 8.00 s of 10.0 s passed between CRI calls, most of it (6.00 s) before CreateContainer of app"
    );
    assert_eq!(
        says([pod.run(0, 1000)], 46_000),
        "kubelet: no call for 45.0 s since RunPodSandbox ended: it waits for something outside the CRI"
    );
}

#[test]
fn a_process_that_cannot_go_on_is_the_cause() {
    let pod = pod("web");
    let place = "blocked in umount of /v/1 (nfs4)";
    let start = [
        pod.run(0, 100),
        pod.pull("app:1", 200, 41_000).seen(
            WorkKind::Blocked,
            "containerd",
            "frozen by its cgroup",
            500,
            40_000,
        ),
        pod.create(("app", 0), 41_200, 20_000)
            .seen(WorkKind::Oci, "runc", "create", 0, 20_000)
            .seen(WorkKind::Blocked, "runc", place, 500, 19_000),
        pod.start(("app", 0), 61_300, 300),
    ];
    assert_eq!(
        says(start, 90_000),
        "39.5 s of 1m 02s in containerd, frozen by its cgroup, during PullImage of app:1"
    );
    let create = [
        pod.run(0, 100),
        pod.create(("app", 0), 200, 20_000)
            .seen(WorkKind::Oci, "runc", "create", 0, 20_000)
            .seen(WorkKind::Blocked, "runc", place, 500, 19_000),
        pod.start(("app", 0), 20_300, 300),
    ];
    assert_eq!(
        says(create, 90_000),
        "18.5 s of 20.6 s in runc, blocked in umount of /v/1 (nfs4), during CreateContainer of app"
    );
}

#[test]
fn a_call_in_flight() {
    let pod = pod("web");
    let run = pod.run(0, 31_000).under_way(Some(240_000));
    let seen = run.clone().seen(WorkKind::Cni, "calico", "", 100, 30_900);
    assert_eq!(
        says([seen], 31_000),
        "RunPodSandbox has taken 31.0 s of its 4m 00s; now in the CNI plugin calico"
    );
    assert_eq!(
        says([run.clone()], 31_000),
        "RunPodSandbox has taken 31.0 s of its 4m 00s"
    );
    let held = run
        .clone()
        .seen(WorkKind::Oci, "runc", "create", 100, 30_900);
    let stopped = held.seen(
        WorkKind::Blocked,
        "runc",
        "stopped by a signal",
        600,
        30_900,
    );
    assert_eq!(
        says([stopped], 31_000),
        "RunPodSandbox has taken 31.0 s of its 4m 00s; now in runc, stopped by a signal"
    );
    let pull = pod.pull("app:1", 200, 5000).under_way(None);
    assert_eq!(
        says([pod.run(0, 100).late(), pod.run(110, 50), pull], 5200),
        "PullImage of app:1 has taken 5.00 s; 1 call failed before"
    );
    let done = pod
        .run(0, 20_000)
        .under_way(None)
        .seen(WorkKind::Cni, "calico", "", 100, 2100);
    assert_eq!(
        says([done], 20_000),
        "RunPodSandbox has taken 20.0 s; so far 2.00 s in the CNI plugin calico"
    );
}

#[test]
fn a_sandbox_that_was_stopped_too_soon() {
    let pod = pod("web");
    assert_eq!(
        headline(
            episodes(&store([pod.run(0, 1000), pod.stop(2000, 100)]))[0],
            at(3000)
        ),
        "no container was started: the pod was stopped, or given up, after 1.00 s"
    );
}

#[test]
fn stops() {
    let pod = pod("web");
    let calls = [
        pod.kill(("app", 0), 0, 30_000),
        pod.stop(30_000, 300),
        pod.remove(30_400, 100),
    ];
    assert_eq!(
        says(calls, 60_000),
        "the pod was stopped by the kubelet 29 s ago: 30.0 s until app ended; gone after 30.3 s"
    );
    let stop = |from| {
        pod.stop(from, 100)
            .fails(Code::Unknown, "cni: ipam refused")
    };
    assert_eq!(
        says([stop(0), stop(10_000)], 15_100),
        "network: it cannot be taken down: UNKNOWN cni: ipam refused (2 tries, the last 5 s ago)"
    );
    assert_eq!(
        says([pod.kill(("app", 0), 0, 500)], 60_000),
        "container app stopped after 500 ms; the pod stays"
    );
    assert_eq!(
        says([pod.stop(0, 500)], 60_000),
        "gone after 500 ms, nothing slow"
    );
}

#[test]
fn a_kill_and_a_restart() {
    let pod = pod("web");
    let calls = [
        pod.kill(("app", 0), 0, 30_000),
        pod.create(("app", 1), 30_100, 100),
        pod.start(("app", 1), 30_300, 100),
    ];
    assert_eq!(
        says(calls, 60_000),
        "30.0 s of 30.4 s waiting for container app to end, which was then started again"
    );
}

#[test]
fn the_newest_pod_of_a_name_counts() {
    let old = pod("web");
    let mut new = pod("web");
    let mut identity = (*new.0).clone();
    identity.uid = "uid-new".into();
    new.0 = identity.into();
    let calls = [
        old.run(0, 100).fails(Code::Unknown, "broken"),
        new.run(50_000, 100),
        new.create(("app", 0), 50_100, 10),
        new.start(("app", 0), 50_200, 10),
    ];
    assert_eq!(
        says(calls, 70_000),
        "container app up after 210 ms, nothing slow"
    );
}

#[test]
fn long_errors_are_cut() {
    let pod = pod("web");
    let error = "é".repeat(1000);
    let text = says([pod.run(0, 100).fails(Code::Internal, &error)], 1000);
    assert!(text.len() < 400 && text.contains(" ... é"), "{text}");
}

#[test]
fn what_the_built_in_runtime_tells_is_named() {
    let pod = pod("web");
    let layer = "the fetch of layer sha256:0a1b2c3d4e5f";
    let pull = pod
        .pull("a:1", 300, 9000)
        .step(WorkKind::Runtime, layer, 100, 8100);
    let calls = chain([pod.run(0, 300), pull], up(&pod, 9300));
    assert_eq!(
        says(calls, 60_000),
        "image pull: 9.00 s of 9.50 s pulling a:1, 8.00 s of it the fetch of layer sha256:0a1b2c3d4e5f"
    );
    let shim = pod
        .run(0, 5000)
        .step(WorkKind::Runtime, "the launch of the shim", 0, 4900);
    let calls = chain([shim], up(&pod, 5000));
    assert_eq!(
        says(calls, 60_000),
        "4.90 s of 5.20 s in the launch of the shim, during RunPodSandbox"
    );
    let running = pod.run(0, 4000).under_way(Some(240_000));
    let running = running.step(WorkKind::Cni, "bridge", 100, 3500).step(
        WorkKind::Runtime,
        "freeing namespaces",
        3500,
        4000,
    );
    let mut store = store([]);
    store.apply(running);
    let now = pod_headline(&episodes(&store), at(4000));
    assert_eq!(
        now,
        "RunPodSandbox has taken 4.00 s of its 4m 00s; now in freeing namespaces"
    );
}
