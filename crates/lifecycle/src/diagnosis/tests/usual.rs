//! What is usual on the node, and many starts at once.

use super::*;
use crate::usual::NodeContext;

/// A node on which this many pods were started before, one after the other.
fn learned(n: u64, run: u64, pull: u64) -> EpisodeStore {
    let mut store = store([]);
    for i in 0..n {
        let pod = pod(&format!("old-{i}"));
        let from = i * 100_000;
        let begun = [pod.run(from, run), pod.pull("r.io/app:1", from + run, pull)];
        for call in chain(begun, up(&pod, from + run + pull)) {
            store.apply(call);
        }
        store.tick(at(from + 90_000), &[]);
        for number in store.take_closed() {
            store.learn(number);
        }
    }
    store
}

/// The first line of a pod whose calls follow on that node.
fn line(store: &mut EpisodeStore, calls: Vec<EpisodeCall>, now: u64) -> String {
    let pod = calls[0].pod.clone().expect("a pod");
    for call in calls {
        store.apply(call);
    }
    store.tick(at(now), &[]);
    let own: Vec<_> = store.episodes_of(&pod).collect();
    let node: NodeContext<'_> = store.node();
    let cause = Diagnoser::new(&own, node, at(now)).newest_cause();
    cause.expect("episodes").to_string()
}

/// Without anything learned the number is said.
#[test]
fn many_pods_that_start_at_once_are_counted() {
    let mut store = store([]);
    for n in 0..20 {
        store.apply(pod(&format!("p{n}")).run(100 * n, 3500));
    }
    let web = pod("web");
    let calls = chain([web.run(500, 3000)], up(&web, 3600));
    assert_eq!(
        line(&mut store, calls, 60_000),
        "3.00 s of 3.30 s in RunPodSandbox; 21 pods started at the same time"
    );
}

const LATER: u64 = 10_000_000;

#[test]
fn a_pull_beside_its_usual_time() {
    let pod = pod("web");
    let calls = |image: &str| {
        let begun = [pod.run(LATER, 600), pod.pull(image, LATER + 600, 12_000)];
        chain(begun, up(&pod, LATER + 12_600))
    };
    let pulled = "image pull: 12.0 s of 12.8 s pulling";
    let after = |n, image: &str| line(&mut learned(n, 600, 3000), calls(image), LATER + 60_000);
    assert_eq!(after(4, "r.io/app:2"), format!("{pulled} r.io/app:2"));
    assert_eq!(
        after(9, "r.io/app:2"),
        format!("{pulled} r.io/app:2; usually 3.00 s here")
    );
    assert_eq!(
        after(9, "r.io/other:2"),
        format!("{pulled} r.io/other:2; usually 3.00 s here")
    );
}

#[test]
fn slow_is_what_is_unusual_here() {
    let pod = pod("web");
    let calls = |run| chain([pod.run(LATER, run)], up(&pod, LATER + run));
    let now = LATER + 60_000;
    let mut quick = learned(9, 200, 300);
    assert_eq!(
        line(&mut quick, calls(1500), now),
        "RunPodSandbox took 1.50 s, usually 200 ms here; container app up after 1.70 s, nothing slow"
    );
    // As usual.
    let mut slow = learned(9, 1400, 300);
    assert_eq!(
        line(&mut slow, calls(1500), now),
        "container app up after 1.70 s, nothing slow"
    );
    // Slow by the stated limit, and usual.
    let mut slow = learned(9, 9000, 300);
    assert_eq!(
        line(&mut slow, calls(9000), now),
        "9.00 s of 9.20 s in RunPodSandbox; RunPodSandbox took 9.00 s, usually 9.00 s here"
    );
}

#[test]
fn many_starts_at_once_are_named_and_teach_nothing() {
    let mut store = learned(9, 600, 300);
    let before = store.usual.clone();
    for i in 0..20 {
        let pod = pod(&format!("storm-{i}"));
        for call in chain([pod.run(LATER, 2400)], up(&pod, LATER + 2400)) {
            store.apply(call);
        }
    }
    let web = pod("web");
    let calls = chain([web.run(LATER, 2400)], up(&web, LATER + 2400));
    assert_eq!(
        line(&mut store, calls, LATER + 60_000),
        "2.40 s of 2.60 s in RunPodSandbox; RunPodSandbox took 2.40 s, while 21 pods start, 600 ms alone"
    );
    for number in store.take_closed() {
        store.learn(number);
    }
    assert_eq!(store.usual, before);
}

#[test]
fn failures_teach_nothing() {
    let mut store = store([]);
    for i in 0..9_u64 {
        let pod = pod(&format!("old-{i}"));
        let from = i * 100_000;
        let late = pod.run(from, 2000).late();
        for call in chain([late, pod.run(from + 3000, 100)], up(&pod, from + 3200)) {
            store.apply(call);
        }
        store.tick(at(from + 90_000), &[]);
        for number in store.take_closed() {
            store.learn(number);
        }
    }
    assert_eq!(store.usual, UsualDurations::default());
}

#[test]
fn a_call_in_flight_beside_its_usual_time() {
    let mut store = learned(9, 600, 3000);
    let pod = pod("web");
    let pull = pod.pull("r.io/app:1", LATER + 600, 31_000).under_way(None);
    assert_eq!(
        line(&mut store, vec![pod.run(LATER, 600), pull], LATER + 31_600),
        "PullImage of r.io/app:1 has taken 31.0 s; usually 3.00 s here"
    );
}
