//! What the kubelet's own spans add: they arrive after they ended, most of them after the calls that they contain.

use super::*;
use crate::kubelet::syncs::KubeletSpan;

/// The pod's headline after these calls, then these spans.
fn with(
    calls: impl IntoIterator<Item = EpisodeCall>,
    spans: impl IntoIterator<Item = KubeletSpan>,
    now: u64,
) -> String {
    let mut store = store(calls);
    for span in spans {
        store.note_sync(span);
    }
    store.tick(at(now), &[]);
    pod_headline(&episodes(&store), at(now))
}

#[test]
fn the_time_before_the_first_call_is_told_apart() {
    let web = pod("web");
    let calls = || chain([web.run(41_000, 900).seen_before(41_000)], up(&web, 42_000));
    assert_eq!(
        with(calls(), [web.syncs(100, 42_300)], 60_000),
        "kubelet: 41.0 s before the first call, 40.9 s of it in syncPod: volumes or cgroups; then up after 1.20 s"
    );
    assert_eq!(
        with(calls(), [web.syncs(40_500, 1900)], 60_000),
        "kubelet: 41.0 s before the first call, 40.5 s of it before syncPod: admission or its queue; then up after 1.20 s"
    );
    // Half and half.
    let said = with(calls(), [web.syncs(20_000, 22_300)], 60_000);
    assert!(
        said.contains("first call: volumes, admission or its queue; "),
        "{said}"
    );
    // Another pod's.
    let said = with(calls(), [pod("other").syncs(100, 42_300)], 60_000);
    assert!(
        said.contains("first call: volumes, admission or its queue; "),
        "{said}"
    );
}

const VOLUMES: &str = "unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: context deadline exceeded";

/// Spans that were there before the first call, too.
#[test]
fn syncs_that_failed_before_the_first_call_are_the_cause() {
    let web = pod("web");
    let mut store = store([]);
    for n in 0..2 {
        store.note_sync(web.sync_fails(1000 + 130_000 * n, 123_000, VOLUMES));
    }
    let calls = chain(
        [web.run(300_000, 900).seen_before(300_000)],
        up(&web, 301_000),
    );
    calls.into_iter().for_each(|call| _ = store.apply(call));
    store.note_sync(web.syncs(260_000, 41_300));
    store.tick(at(400_000), &[]);
    assert_eq!(
        pod_headline(&episodes(&store), at(400_000)),
        "kubelet: 5m 00s before the first call: syncPod failed twice: volume data is not mounted: context deadline exceeded; \
         then up after 1.20 s"
    );
}

const CONFIG: &str = r#"failed to "StartContainer" for "app" with CreateContainerConfigError: "secret \"x9\" not found""#;

#[test]
fn what_no_call_shows_is_the_cause() {
    let web = pod("web");
    let calls = || vec![web.run(0, 500), web.pull("web:1", 600, 900)];
    assert_eq!(
        with(calls(), [web.sync_fails(0, 1600, CONFIG)], 3000),
        "kubelet: syncPod failed: CreateContainerConfigError of app: secret \"<redacted>\" not found (1.40 s ago)"
    );
    let again = [0, 14_000, 29_000].map(|from| web.sync_fails(from, 1600, CONFIG));
    let said = with(calls(), again, 40_000);
    assert!(
        said.ends_with("not found (3 tries, the last 9.40 s ago)"),
        "{said}"
    );
    // One container is up, the start is over, another still lacks its secret.
    let side = [
        web.create(("side", 0), 1500, 50),
        web.start(("side", 0), 1600, 50),
    ];
    let one_up = calls().into_iter().chain(side);
    let said = with(one_up.clone(), [web.sync_fails(0, 1700, CONFIG)], 60_000);
    assert!(
        said.starts_with("kubelet: syncPod failed: CreateContainerConfigError of app"),
        "{said}"
    );
    // It is started later.
    let app = [
        web.create(("app", 0), 9000, 50),
        web.start(("app", 0), 9100, 50),
    ];
    let said = with(one_up.chain(app), [web.sync_fails(0, 1700, CONFIG)], 60_000);
    assert!(!said.contains("syncPod failed"), "{said}");
}

/// What a failed call says better.
#[test]
fn what_calls_show_is_told_by_them() {
    let web = pod("web");
    let text = r#"failed to "StartContainer" for "app" with ErrImagePull: "no such image""#;
    let pull = web
        .pull("web:1", 600, 900)
        .fails(Code::NotFound, "no such image");
    let said = with(
        [web.run(0, 500), pull],
        [web.sync_fails(0, 1600, text)],
        30_000,
    );
    assert!(!said.contains("syncPod"), "{said}");
    let text = r#"failed to "StartContainer" for "app" with CrashLoopBackOff: "back-off 10s""#;
    let calls = chain([web.run(0, 500)], up(&web, 600));
    let said = with(calls, [web.sync_fails(5000, 100, text)], 30_000);
    assert!(said.ends_with("up after 800 ms, nothing slow"), "{said}");
}

#[test]
fn a_sync_that_succeeds_ends_a_failure() {
    let web = pod("web");
    let calls = || chain([web.run(0, 500)], up(&web, 600));
    let spans = [
        web.sync_fails(0, 900, "network is not ready"),
        web.syncs(2000, 20),
    ];
    let said = with(calls(), spans, 30_000);
    assert!(said.ends_with("nothing slow"), "{said}");
}

/// A resize that fails belongs to the start. Then another container is restarted, and the span of the success belongs to that.
#[test]
fn a_sync_that_succeeds_ends_a_failure_of_an_earlier_episode() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    let resize = r#"failed to "ResizePodInPlace" for "web" with ResizePodInPlaceError: "memory limit below current usage""#;
    store.note_sync(web.sync_fails(120_000, 10, resize));
    store.tick(at(121_000), &[]);
    let said = pod_headline(&episodes(&store), at(121_000));
    assert!(said.contains("ResizePodInPlaceError"), "{said}");
    let mut kill = web.kill(("app", 0), 150_000, 200).grace(30);
    store.observe(&mut kill);
    store.apply(kill);
    store.apply(web.create(("app", 1), 150_300, 100));
    store.apply(web.start(("app", 1), 150_410, 100));
    store.note_sync(web.syncs(149_900, 700));
    store.tick(at(160_000), &[]);
    let said = pod_headline(&episodes(&store), at(160_000));
    assert!(!said.contains("ResizePodInPlaceError"), "{said}");
}

#[test]
fn a_gap_between_calls_is_named() {
    let web = pod("web");
    let calls = || chain([web.run(0, 500)], up(&web, 12_500));
    assert_eq!(
        with(calls(), [web.syncs(0, 12_900)], 30_000),
        "kubelet: 12.0 s of 12.7 s passed between CRI calls, before CreateContainer of app; it was in syncPod"
    );
    let spans = [web.sync_fails(0, 700, VOLUMES), web.syncs(12_400, 400)];
    let said = with(calls(), spans, 30_000);
    assert!(
        said.ends_with("; it was between two syncs of the pod, syncPod failed: volume data is not mounted: context deadline exceeded"),
        "{said}"
    );
    // One of the two was not sampled.
    let said = with(calls(), [web.syncs(0, 700)], 30_000);
    assert!(said.ends_with("before CreateContainer of app"), "{said}");
}

#[test]
fn a_hook_by_http_is_part_of_the_stop() {
    let web = pod("web");
    let calls = chain([web.run(0, 500)], up(&web, 600));
    let stop = [web.kill(("app", 0), 115_000, 500), web.stop(115_600, 100)];
    let calls = calls.into_iter().chain(stop);
    let mut store = store(calls);
    store.note_sync(web.terminates(100_000, 15_800));
    let stop = store.episodes().last().expect("the stop");
    assert_eq!(
        headline(stop, at(140_000)),
        "kubelet: 15.0 s in syncTerminatingPod before the first call: preStop hooks that are no exec run there; \
         then gone after 700 ms"
    );
}
