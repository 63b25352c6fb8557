//! Pods that were stopped while containers ran: by whom, with which grace period, and how the containers ended.

mod others;

use super::*;
use crate::episode_store::ExitRecord;
use crate::view::EpisodeState;
use criscope_cri::call::Client;

const NOW: u64 = 72_000;

/// A pod with a grace period of 30 s of which these containers run since 1.2 s, one after the other.
fn running(web: &ScriptedPod, names: &[&str]) -> Vec<EpisodeCall> {
    let starts = (0..).zip(names).flat_map(|(n, name)| {
        let from = 1000 + 10 * n;
        let create = web.create((name, 0), from, 5).pod_grace(30);
        [create, web.start((name, 0), from + 5, 5)]
    });
    [web.run(0, 900)].into_iter().chain(starts).collect()
}

/// What is said of a pod after these calls, whose containers ended so, at 72 s.
fn told(
    web: &ScriptedPod,
    calls: impl IntoIterator<Item = EpisodeCall>,
    exits: impl IntoIterator<Item = ExitRecord>,
) -> String {
    let mut store = store(calls);
    for exit in exits {
        store.note_exit(&web.0, None, exit);
    }
    store.tick(at(NOW), &[]);
    pod_headline(&episodes(&store), at(NOW))
}

fn is_told(said: &str) -> bool {
    said.starts_with("the pod was stopped by the kubelet ")
}

/// What is said of a pod of one container that was stopped at 60 s, within `took` milliseconds.
fn stopped(grace: u32, took: u64, code: i32) -> String {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    let ended = 60_000 + took;
    calls.push(web.kill(("app", 0), 60_000, took).grace(grace));
    calls.push(web.stop(ended + 10, 90));
    told(&web, calls, [web.exit(("app", 0), code, 1015, ended)])
}

#[test]
fn a_pod_that_ended_when_asked() {
    assert_eq!(
        stopped(30, 120, 143),
        "the pod was stopped by the kubelet 11 s ago: 120 ms until app ended with exit code 143 (SIGTERM); gone after 220 ms"
    );
    assert!(stopped(30, 120, 0).contains("120 ms until app ended with exit code 0; gone"));
}

#[test]
fn a_pod_that_did_not_end_when_asked() {
    assert_eq!(
        stopped(5, 5010, 137),
        "the pod was stopped by the kubelet 6 s ago, with a grace period of 5 s instead of the pod's own 30 s: \
         a soft eviction, a deletion with a shorter grace period, a node shutdown or a preStop hook that is no exec, unknown which; \
         5.01 s until app ended, SIGKILL after its grace period of 5 s; gone after 5.11 s"
    );
}

/// The kubelet asks for one second, later versions for two.
#[test]
fn a_hard_eviction_or_a_deletion_by_force() {
    assert_eq!(
        stopped(2, 30, 0),
        "the pod was stopped by the kubelet 11 s ago, with a grace period of 2 s instead of the pod's own 30 s: \
         an eviction, a deletion with a shorter grace period, a node shutdown or a preStop hook that is no exec, unknown which; \
         30.0 ms until app ended with exit code 0; gone after 130 ms"
    );
    // No hook leaves less than two seconds.
    for (grace, end) in [
        (
            1,
            "1.00 s until app ended, SIGKILL after its grace period of 1 s",
        ),
        (0, "20.0 ms until app ended, SIGKILL at once"),
    ] {
        let took = u64::from(grace) * 1000 + u64::from(grace == 0) * 20;
        let said = stopped(grace, took, 137);
        let reasons =
            "an eviction, a deletion with a shorter grace period or a node shutdown, unknown which";
        assert!(said.contains(&format!("{reasons}; {end}; gone")), "{said}");
    }
}

/// One of them is not at its end.
#[test]
fn a_container_that_ends_of_itself_at_the_end_of_its_grace_period() {
    let said = stopped(2, 1980, 143);
    let end = "; 1.98 s until app ended with exit code 143 (SIGTERM); gone";
    assert!(said.contains(end), "{said}");
}

/// Other clients than the kubelet set no annotation; and criscope may not have seen the containers being created.
#[test]
fn without_the_grace_period_of_the_pod_nothing_is_compared() {
    let web = pod("web");
    let stop = [
        web.kill(("app", 0), 60_000, 100).grace(1),
        web.stop(60_110, 90),
    ];
    let expected =
        "the pod was stopped by the kubelet 11 s ago: 100 ms until app ended; gone after 200 ms";
    let calls = chain([web.run(0, 900)], up(&web, 1000));
    let calls = calls.into_iter().chain(stop.clone());
    assert_eq!(told(&web, calls, []), expected);
    assert_eq!(told(&web, stop, []), expected);
}

#[test]
fn the_pods_own_grace_period_is_not_compared() {
    let said = stopped(30, 100, 0);
    assert!(is_told(&said) && !said.contains("grace period"), "{said}");
    // The kubelet gives no less than two seconds.
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls[1] = web.create(("app", 0), 1000, 5).pod_grace(1);
    calls.extend([
        web.kill(("app", 0), 60_000, 100).grace(2),
        web.stop(60_110, 90),
    ]);
    let said = told(&web, calls, []);
    assert!(is_told(&said) && !said.contains("grace period"), "{said}");
}

#[test]
fn what_a_hook_takes_shortens_no_grace_period() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.extend([
        web.hook(("app", 0), 50_000, 7600),
        web.kill(("app", 0), 57_610, 100).grace(23),
        web.stop(57_720, 80),
    ]);
    assert_eq!(
        told(&web, calls, []),
        "the pod was stopped by the kubelet 14 s ago: 7.60 s in preStop, then 100 ms until app ended; gone after 7.80 s"
    );
}

/// A hook that is no exec, or a sidecar that waits for the others, where another container has its whole grace period.
#[test]
fn one_container_with_the_whole_grace_period_is_enough() {
    let web = pod("web");
    let mut calls = running(&web, &["app", "log"]);
    calls.extend([
        web.kill(("app", 0), 60_000, 100).grace(30),
        web.kill(("log", 0), 60_001, 300).grace(5),
        web.stop(60_310, 90),
    ]);
    let said = told(&web, calls, []);
    assert!(is_told(&said) && !said.contains("grace period"), "{said}");
}

#[test]
fn containers_with_different_ends() {
    let web = pod("web");
    let mut calls = running(&web, &["app", "log", "mesh", "stats"]);
    calls.extend([
        web.kill(("mesh", 0), 60_001, 20).grace(1),
        web.kill(("stats", 0), 60_002, 30).grace(1),
        web.kill(("app", 0), 60_000, 100).grace(1),
        web.kill(("log", 0), 60_003, 1000).grace(1),
        web.stop(61_010, 90),
    ]);
    let exits = [
        web.exit(("app", 0), 3, 1010, 60_100),
        web.exit(("log", 0), 137, 1020, 61_000),
        web.exit(("stats", 0), 0, 1040, 60_030),
    ];
    let said = told(&web, calls, exits);
    let ends = "unknown which; 1.00 s until log ended, SIGKILL after its grace period of 1 s; \
                100 ms until app ended with exit code 3; 30.0 ms until stats ended with exit code 0; 1 more ended; gone after 1.10 s";
    assert!(said.ends_with(ends), "{said}");
}

#[test]
fn a_slow_start_is_past_when_the_pod_is_stopped() {
    let web = pod("web");
    let calls = |stops: Vec<EpisodeCall>| {
        let start = chain([web.run(0, 9000)], up(&web, 9000));
        start.into_iter().chain(stops)
    };
    let slow = "9.00 s of 9.20 s in RunPodSandbox";
    assert_eq!(told(&web, calls(Vec::new()), []), slow);
    let stop = vec![web.kill(("app", 0), 60_000, 100), web.stop(60_110, 90)];
    let said = told(&web, calls(stop), []);
    assert!(is_told(&said), "{said}");
}

/// What took long in the stop is told as well.
#[test]
fn a_slow_stop() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    let stop = web
        .stop(60_110, 9000)
        .seen(WorkKind::Cni, "calico", "", 0, 8900);
    calls.extend([web.kill(("app", 0), 60_000, 100).grace(30), stop]);
    assert_eq!(
        told(&web, calls, []),
        "the pod was stopped by the kubelet 2 s ago: 100 ms until app ended; \
         network: 8.90 s of 9.11 s in the CNI plugin calico, during StopPodSandbox"
    );
}

#[test]
fn a_stop_by_crictl() {
    let web = pod("web");
    let by = |call: EpisodeCall| call.by(Client::Crictl);
    let mut calls = running(&web, &["app"]);
    calls.extend([
        by(web.kill(("app", 0), 60_000, 20).grace(0)),
        by(web.stop(60_030, 90)),
    ]);
    assert_eq!(
        told(&web, calls.clone(), []),
        "the pod was stopped by crictl 11 s ago, with a grace period of 0 s instead of the pod's own 30 s: \
         20.0 ms until app ended, SIGKILL at once; gone after 120 ms"
    );
    // crictl stops the container, and the kubelet then the sandbox of a pod that is over.
    calls[4] = web.stop(61_500, 90);
    let said = told(&web, calls, []);
    assert!(
        said.starts_with("the pod was stopped by crictl and the kubelet 10 s ago: 20.0 ms"),
        "{said}"
    );
}

/// `crictl stopp`.
#[test]
fn a_sandbox_that_was_stopped_with_its_containers() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.push(web.stop(60_000, 300).by(Client::Other));
    assert_eq!(
        told(&web, calls.clone(), []),
        "the pod was stopped by another client 11 s ago; gone after 300 ms"
    );
    let killed = web.exit(("app", 0), 137, 1010, 60_100);
    assert_eq!(
        told(&web, calls, [killed]),
        "the pod was stopped by another client 11 s ago: app ended with its sandbox, exit code 137 (SIGKILL); gone after 300 ms"
    );
}

/// The kubelet stops the containers that run first: of these nothing is known.
#[test]
fn a_sandbox_that_the_kubelet_stopped_alone() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.push(web.stop(60_000, 300));
    assert_eq!(
        told(&web, calls.clone(), []),
        "gone after 300 ms, nothing slow"
    );
    let killed = web.exit(("app", 0), 137, 1010, 60_100);
    assert!(is_told(&told(&web, calls, [killed])));
}

/// The kubelet's span shows that no hook ran before the first call.
#[test]
fn a_span_of_the_kubelet_excludes_a_hook() {
    let web = pod("web");
    let mut store = store(running(&web, &["app"]));
    store.apply(web.kill(("app", 0), 60_000, 100).grace(2));
    store.apply(web.stop(60_110, 90));
    store.note_sync(web.terminates(59_990, 300));
    store.tick(at(NOW), &[]);
    let said = pod_headline(&episodes(&store), at(NOW));
    assert!(is_told(&said) && !said.contains("hook"), "{said}");
    let stop = store.episodes().last().expect("an episode");
    assert_eq!(stop.state, EpisodeState::Ok);
}

#[test]
fn a_probe_that_had_failed_just_before() {
    let web = pod("web");
    let mut store = store(running(&web, &["app"]));
    for n in 0..4_u64 {
        store.note_probe(
            &web.probe(("app", 0), 50_000 + 3000 * n, 20)
                .exits(i32::from(n > 1)),
        );
    }
    let mut kill = web.kill(("app", 0), 59_050, 100).grace(30);
    store.observe(&mut kill);
    store.apply(kill);
    store.apply(web.stop(59_160, 90));
    store.tick(at(NOW), &[]);
    assert_eq!(
        pod_headline(&episodes(&store), at(NOW)),
        "the pod was stopped by the kubelet 12 s ago, after a failing liveness or startup probe (exec, exit code 1, twice in a row): \
         100 ms until app ended; gone after 200 ms"
    );
}
