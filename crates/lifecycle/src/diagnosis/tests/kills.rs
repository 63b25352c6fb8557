//! Containers that the kubelet kills, once or again and again.

use std::sync::Arc;

use super::*;
use criscope_cri::call::{Client, Peer};

/// Each run of the container: probes that succeed, then two that fail, and the kill.
fn killed(
    web: &ScriptedPod,
    runs: u32,
    fails: impl Fn(EpisodeCall) -> EpisodeCall,
) -> EpisodeStore {
    let mut store = store(chain([web.run(0, 500)], up(web, 600)));
    for run in 0..runs {
        let from = 1000 + 45_000 * u64::from(run);
        for n in 0..3 {
            store.note_probe(&web.probe(("app", run), from + 10_000 * n, 20).exits(0));
        }
        for n in 3..5 {
            let probe = web.probe(("app", run), from + 1000 * n + 27_000, 20);
            store.note_probe(&fails(probe));
        }
        let mut kill = web.kill(("app", run), from + 31_050, 10_000).grace(10);
        store.tick(kill.began_at(), &[]);
        store.observe(&mut kill);
        store.apply(kill);
        store.apply(web.create(("app", run + 1), from + 41_100, 100));
        store.apply(web.start(("app", run + 1), from + 41_300, 100));
    }
    store
}

fn of(store: &EpisodeStore, now: u64) -> String {
    pod_headline(&episodes(store), at(now))
}

#[test]
fn a_failing_exec_probe_kills_again_and_again() {
    let web = pod("web");
    let store = killed(&web, 4, |probe| probe.exits(1));
    assert_eq!(
        of(&store, 180_000),
        "the kubelet keeps killing app: 4 times in 2m 15s after a failing liveness or startup probe (exec, exit code 1, twice in a row)"
    );
}

/// In lists it is what a crash loop is.
#[test]
fn a_container_that_is_killed_again_and_again_is_in_a_loop() {
    let web = pod("web");
    let store = killed(&web, 4, |probe| probe.exits(1));
    let told = of(&store, 180_000);
    let marks = crash_loops(&episodes(&store), at(180_000));
    assert!(
        marks.iter().all(|mark| mark.as_ref() == Some(&told)),
        "{marks:?}"
    );
    let (later, once) = (at(3_600_000), killed(&web, 1, |probe| probe.exits(1)));
    let marks = crash_loops(&episodes(&store), later);
    assert!(
        marks.iter().all(Option::is_none),
        "it has run since: {marks:?}"
    );
    let marks = crash_loops(&episodes(&once), at(60_000));
    assert!(marks.iter().all(Option::is_none), "{marks:?}");
}

#[test]
fn a_probe_that_times_out_kills_once() {
    let web = pod("web");
    let late = |probe: EpisodeCall| probe.fails(Code::DeadlineExceeded, "timed out");
    let store = killed(&web, 1, late);
    let newest = store.episodes().last().expect("a restart");
    assert_eq!(
        headline(newest, at(60_000)),
        "the kubelet killed app after a failing liveness or startup probe (exec, timed out, twice in a row): 10.0 s until app ended, SIGKILL after its grace period of 10 s; started again, 10.3 s in all"
    );
}

#[test]
fn probes_that_are_no_calls_are_not_guessed() {
    let web = pod("web");
    let store = killed(&web, 3, |probe| probe.exits(0));
    assert_eq!(
        of(&store, 140_000),
        "the kubelet keeps killing app: 3 times in 1m 30s: no exec probe explains it; an HTTP, TCP or gRPC probe, or a change of the pod, unknown which"
    );
}

#[test]
fn a_readiness_probe_that_goes_on_failing_during_the_kill_is_not_its_reason() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    for n in 0..10 {
        store.note_probe(&web.probe(("app", 0), 5000 * n, 20).exits(1));
    }
    let mut kill = web.kill(("app", 0), 35_100, 12_000).grace(30);
    store.observe(&mut kill);
    assert_eq!(kill.probe, None);
}

#[test]
fn the_end_of_a_pod_is_no_kill() {
    let web = pod("web");
    let mut store = killed(&web, 1, |probe| probe.exits(1));
    store.apply(web.kill(("app", 1), 60_000, 2000).grace(30));
    store.apply(web.stop(62_100, 100));
    store.tick(at(100_000), &[]);
    let said = of(&store, 100_000);
    assert!(
        !said.contains("kept killing") && !said.contains("keeps killing"),
        "{said}"
    );
}

fn peer(client: Client) -> Arc<Peer> {
    Arc::new(Peer {
        client,
        pid: None,
        comm: None,
    })
}

#[test]
fn what_crictl_stops_the_kubelet_did_not_kill() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    for run in 0..3_u32 {
        let from = 10_000 * u64::from(run + 1);
        let mut kill = web.kill(("app", run), from, 100);
        kill.peer = peer(Client::Crictl);
        store.apply(kill);
        store.apply(web.create(("app", run + 1), from + 200, 10));
        store.apply(web.start(("app", run + 1), from + 300, 10));
    }
    let said = of(&store, 60_000);
    assert!(!said.contains("killing"), "{said}");
}

/// The next kill of the series is under way: its grace period is no news, and it counts.
#[test]
fn a_kill_of_a_series_that_is_under_way_is_part_of_it() {
    let web = pod("web");
    let mut store = killed(&web, 3, |probe| probe.exits(1));
    let before = of(&store, 140_000);
    assert!(
        before.starts_with("the kubelet keeps killing app: 3 times in 1m 30s after a failing"),
        "{before}"
    );
    for n in 0..3 {
        let at = 161_000 + 3000 * n;
        store.note_probe(&web.probe(("app", 3), at, 20).exits(i32::from(n > 0)));
    }
    let stop = |took| web.kill(("app", 3), 167_050, took).grace(10);
    let mut under_way = stop(5000).under_way(None);
    store.observe(&mut under_way);
    store.apply(under_way);
    let expected = "the kubelet keeps killing app: 4 times in 2m 15s after a failing";
    let said = of(&store, 172_050);
    assert!(said.starts_with(expected), "{said}");

    // It has ended, and the container was not made again.
    let mut store = killed(&web, 3, |probe| probe.exits(1));
    store.apply(stop(10_000));
    let said = of(&store, 178_000);
    assert!(said.starts_with(expected), "{said}");
}

/// It may be the end of the pod.
#[test]
fn a_stop_under_way_without_a_reason_is_not_counted() {
    let web = pod("web");
    let mut store = killed(&web, 3, |probe| probe.exits(1));
    let stop = web.kill(("app", 3), 170_000, 5000).grace(10);
    store.apply(stop.under_way(None));
    let said = of(&store, 175_000);
    assert!(
        said.starts_with("the kubelet keeps killing app: 3 times"),
        "{said}"
    );
}

/// A stop that does not come to its end is the news.
#[test]
fn a_kill_that_hangs_is_told_in_place_of_its_series() {
    let web = pod("web");
    let mut store = killed(&web, 3, |probe| probe.exits(1));
    let stop = web.kill(("app", 3), 170_000, 40_000).grace(10);
    store.apply(stop.under_way(None));
    let said = of(&store, 210_000);
    assert!(
        said.starts_with("StopContainer of app has taken 40.0 s"),
        "{said}"
    );
}

/// The first stop after it, while it lasts.
#[test]
fn a_post_start_hook_that_failed_is_why_its_container_is_stopped() {
    let web = pod("web");
    let calls: Vec<_> = chain([web.run(0, 500)], up(&web, 600));
    let hook = web.hook(("app", 0), 820, 200).exits(7);
    let told = |client| {
        let mut stop = web.kill(("app", 0), 1030, 9000).grace(30);
        stop.peer = peer(client);
        let calls = calls.iter().cloned();
        says(calls.chain([hook.clone(), stop.under_way(None)]), 10_030)
    };
    assert_eq!(
        told(Client::Kubelet),
        "the kubelet kills app after its postStart hook failed (exit code 7): \
         StopContainer of app has taken 9.00 s of the grace period of 30 s, after which it is killed"
    );
    assert!(told(Client::Crictl).starts_with("StopContainer of app"));
}

#[test]
fn a_post_start_hook_that_fails_again_and_again() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    for run in 0..3_u32 {
        let from = 820 + 20_000 * u64::from(run);
        store.tick(at(from), &[]);
        store.apply(web.hook(("app", run), from, 200).exits(7));
        store.apply(web.kill(("app", run), from + 210, 1000).grace(30));
        store.apply(web.create(("app", run + 1), from + 19_700, 10));
        store.apply(web.start(("app", run + 1), from + 19_720, 200));
    }
    assert_eq!(
        of(&store, 62_000),
        "the kubelet keeps killing app: 3 times in 40.0 s after its postStart hook failed (exit code 7)"
    );
}
