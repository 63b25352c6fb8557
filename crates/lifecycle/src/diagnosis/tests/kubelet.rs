//! What the kubelet itself does: before its first call, with probes and hooks, one pull after the other.

use super::*;

#[test]
fn volumes_that_take_long_to_mount() {
    let web = pod("web");
    let calls = chain([web.run(41_000, 900).seen_before(41_000)], up(&web, 42_000));
    assert_eq!(
        says(calls, 120_000),
        "kubelet: 41.0 s before the first call: volumes, admission or its queue; then up after 1.20 s"
    );
}

#[test]
fn a_wait_that_began_before_anybody_watched() {
    let web = pod("web");
    let says_since = |since: u64| {
        let mut store = store([]);
        store.watch_since(at(since));
        let calls = chain([web.run(41_000, 900).seen_before(41_000)], up(&web, 42_000));
        for call in calls {
            store.apply(call);
        }
        store.tick(at(120_000), &[]);
        pod_headline(&episodes(&store), at(120_000))
    };
    assert_eq!(
        says_since(29_000),
        "kubelet: 41.0 s before the first call, only the last 12.0 s of it watched: volumes, admission, its queue, or \
         earlier calls; then up after 1.20 s"
    );
    assert_eq!(
        says_since(40_500),
        "container app up after 1.20 s, nothing slow"
    );
}

#[test]
fn a_short_wait_before_the_first_call_is_not_worth_a_word() {
    let web = pod("web");
    let calls = chain([web.run(300, 900).seen_before(300)], up(&web, 1300));
    let said = says(calls, 120_000);
    assert!(said.ends_with("up after 1.20 s, nothing slow"), "{said}");
    let slow = chain([web.run(3000, 9000).seen_before(3000)], up(&web, 13_000));
    let said = says(slow, 120_000);
    assert!(
        said.starts_with("9.00 s of 10.2 s in RunPodSandbox"),
        "{said}"
    );
}

#[test]
fn a_stop_with_a_hook_and_a_kill() {
    let web = pod("web");
    let calls = chain([web.run(0, 500)], up(&web, 600));
    let stop = [
        web.hook(("app", 0), 60_000, 15_000),
        web.kill(("app", 0), 75_010, 15_000).grace(15),
        web.stop(90_020, 100),
    ];
    let calls: Vec<_> = calls.into_iter().chain(stop).collect();
    let mut store = store(calls);
    store.tick(at(120_000), &[]);
    let stop = store.episodes().last().expect("a stop");
    assert_eq!(stop.began, at(60_000), "the hook is part of the stop");
    assert_eq!(
        headline(stop, at(120_000)),
        "stop: 15.0 s in preStop, then 15.0 s until app ended, SIGKILL after its grace period of 15 s; gone after 30.1 s"
    );
}

/// A hook a second after the start: it is taken for a postStart hook until the container is stopped.
#[test]
fn a_pod_that_is_deleted_right_after_its_start() {
    let web = pod("web");
    let calls: Vec<_> = chain([web.run(0, 500)], up(&web, 600));
    let hook = web.hook(("app", 0), 1800, 3000);
    let running = calls.iter().cloned().chain([hook.clone().under_way(None)]);
    assert_eq!(
        says(running, 4800),
        "a hook (postStart or preStop) of app has run for 3.00 s"
    );
    let stop = [
        hook,
        web.kill(("app", 0), 4810, 100).grace(27),
        web.stop(4920, 100),
    ];
    assert_eq!(
        says(calls.into_iter().chain(stop), 6000),
        "the pod was stopped by the kubelet just now: 3.00 s in preStop, then 100 ms until app ended; gone after 3.22 s"
    );
}

/// A readiness probe kills nothing; the pod is up, and gets no traffic.
#[test]
fn a_probe_that_keeps_failing_in_a_container_that_is_up() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    for n in 0..6 {
        store.note_probe(&web.probe(("app", 0), 1000 + 500 * n, 20).exits(6));
    }
    let tells = |store: &EpisodeStore, now| {
        let episodes = episodes(store);
        let pods = Diagnoser::new(&episodes, store.node(), at(now));
        let pods = pods.with_probes(store.probes_of(&episodes));
        pods.newest_cause().expect("an episode").to_string()
    };
    store.tick(at(30_000), &[]);
    let up = "container app up after 800 ms, nothing slow";
    assert_eq!(
        tells(&store, 30_000),
        format!(
            "an exec probe of app fails: exit code 6, 6 times in a row (readiness, startup or another: the CRI does not say); {up}"
        )
    );
    assert_eq!(tells(&store, 400_000), up, "it was not run any more");
    store.note_probe(&web.probe(("app", 0), 29_000, 20).exits(0));
    assert_eq!(tells(&store, 30_000), up);
    store.note_probe(&web.probe(("app", 0), 29_500, 20).exits(6));
    assert_eq!(tells(&store, 30_000), up, "once is not often");
}

#[test]
fn a_container_that_is_stopped_and_started_again_is_not_simply_up() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    store.tick(at(60_000), &[]);
    let mut kill = web.kill(("app", 0), 60_000, 200).grace(30);
    store.observe(&mut kill);
    store.apply(kill);
    store.apply(web.create(("app", 1), 60_300, 100));
    store.apply(web.start(("app", 1), 60_410, 100));
    let newest = store.episodes().last().expect("a restart");
    assert_eq!(
        headline(newest, at(61_000)),
        "the kubelet stopped app for an HTTP, TCP or gRPC probe, or a change of the pod, unknown which: 200 ms until app ended; started again, 510 ms in all"
    );
}

#[test]
fn a_container_that_outlives_its_kill() {
    let web = pod("web");
    let calls: Vec<_> = chain([web.run(0, 500)], up(&web, 600));
    let stop = [
        web.kill(("app", 0), 60_000, 42_000).grace(2),
        web.stop(102_020, 100),
    ];
    let mut store = store(calls.into_iter().chain(stop).collect::<Vec<_>>());
    store.tick(at(120_000), &[]);
    let stop = store.episodes().last().expect("a stop");
    assert_eq!(
        headline(stop, at(120_000)),
        "stop: 42.0 s until app ended, 40.0 s after its grace period of 2 s; gone after 42.1 s"
    );
}

/// A container that ignores SIGTERM: the runtime waits, and no process is at work.
#[test]
fn a_stop_in_its_grace_period_says_how_long_that_is() {
    let web = pod("web");
    let says_after = |ms| {
        let stop = web
            .kill(("app", 0), 60_000, ms)
            .grace(30)
            .under_way(Some(150_000));
        let calls = chain([web.run(0, 500)], up(&web, 600));
        says(calls.into_iter().chain([stop.scanned(true)]), 60_000 + ms)
    };
    assert_eq!(
        says_after(9000),
        "StopContainer of app has taken 9.00 s of the grace period of 30 s, after which it is killed"
    );
    let own = web.kill(("app", 0), 60_000, 9000).grace(30).under_way(None);
    let own = own.step(WorkKind::Runtime, "the container's grace period", 0, 9000);
    let calls = chain([web.run(0, 500)], up(&web, 600));
    let said = says(calls.into_iter().chain([own]), 69_000);
    assert!(said.ends_with("after which it is killed"), "{said}");
    assert_eq!(
        says_after(40_000),
        "StopContainer of app has taken 40.0 s of its 2m 30s; no process was seen at work for it"
    );
}
