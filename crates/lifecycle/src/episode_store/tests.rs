//! How calls form episodes, one rule at a time.

mod exits;
mod failing;
mod many;

use std::time::Duration;

use super::*;
use crate::tests::script::{ScriptedPod, at, pod, store};
use crate::timeline::EpisodePhase;
use criscope_cri::status::Code;

impl EpisodeStore {
    /// Takes over what a restarted process finds out by itself, or has in other files than the journal.
    pub(crate) fn take_over_process_state(&mut self, before: &Self) {
        self.usual.clone_from(&before.usual);
        self.programs.clone_from(&before.programs);
        self.watches_since = before.watches_since;
        self.set_boot(before.booted.at());
    }
}

fn apply(store: &mut EpisodeStore, calls: impl IntoIterator<Item = EpisodeCall>) {
    for call in calls {
        store.apply(call);
    }
}

/// A smooth start that takes 900 ms, beginning at `from`.
fn start(pod: &ScriptedPod, from: u64) -> [EpisodeCall; 4] {
    [
        pod.run(from, 200),
        pod.pull("app:1", from + 300, 300),
        pod.create(("app", 0), from + 600, 100),
        pod.start(("app", 0), from + 700, 200),
    ]
}

fn stop(pod: &ScriptedPod, from: u64) -> [EpisodeCall; 5] {
    [
        pod.kill(("app", 0), from, 1000),
        pod.stop(from + 1000, 500),
        pod.stop(from + 1600, 10),
        pod.sweep(("app", 0), from + 1700, 100),
        pod.remove(from + 1800, 200),
    ]
}

#[test]
fn scenarios() {
    crate::tests::scenario::play_folder("src/episode_store/tests");
}

#[test]
fn a_call_in_flight_keeps_a_start_open() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    let pull = pod.pull("side:1", 1000, 60_000).under_way();
    store.tick(at(60_000), &[pull]);
    assert!(store.episodes().all(Episode::is_open));
    store.tick(at(60_000), &[]);
    assert!(!store.episodes().any(Episode::is_open));
}

#[test]
fn ids_alone_are_completed_from_earlier_calls() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0).into_iter().take(3));
    let mut call = pod.start(("app", 0), 700, 200);
    let record = call.record_mut();
    (record.pod, record.container, record.sandbox_id) = (None, None, None);
    assert_eq!(store.apply(call), CallEffect::PartOf(0));
    let mut stop = pod.stop(60_000, 3000);
    stop.record_mut().pod = None;
    assert_eq!(store.apply(stop), CallEffect::PartOf(1));
    let mut unknown = pod.stop(60_000, 3000);
    let record = unknown.record_mut();
    (record.pod, record.sandbox_id) = (None, Some("other".into()));
    assert_eq!(store.apply(unknown), CallEffect::Nothing);
}

#[test]
fn an_episode_keeps_its_first_and_its_newest_calls() {
    let (mut store, pod) = (store(), pod("a"));
    for n in 0..1000 {
        let run = pod
            .run(n * 1000, 400)
            .fails(Code::Unknown, &format!("no {n}"));
        apply(&mut store, [run]);
    }
    let episode = store.episodes().next().expect("an episode");
    assert_eq!(episode.calls.len(), episode::MAX_CALLS);
    assert_eq!(
        (episode.calls_forgotten, episode.failures, episode.retries),
        (872, 1000, 999)
    );
    assert_eq!(episode.calls.front().map(|c| c.seq), Some(0));
    assert_eq!(episode.calls.back().map(|c| c.seq), Some(999_000));
    // The time of dropped calls is counted too.
    assert_eq!(
        episode.shares()[EpisodePhase::Sandbox as usize],
        Duration::from_secs(400)
    );
    assert_eq!(
        episode.shares().iter().sum::<Duration>(),
        episode.duration()
    );
}

/// The stop alone would say nothing about the pod's work, and a running pod would be missing in the list.
#[test]
fn gone_pods_are_forgotten_first_and_whole() {
    let mut store = store();
    store.limits.episodes = 6;
    for (name, from) in [("runs", 0), ("first", 1000), ("second", 2000)] {
        apply(&mut store, start(&pod(name), from));
    }
    store.tick(at(20_000), &[]);
    for (name, from) in [("first", 30_000), ("second", 31_000)] {
        apply(&mut store, stop(&pod(name), from));
    }
    store.tick(at(60_000), &[]);
    apply(&mut store, start(&pod("next"), 60_000));
    apply(&mut store, start(&pod("after"), 61_000));
    let names = store.episodes().map(|episode| &*episode.pod.name);
    let names = names.collect::<Vec<_>>();
    assert_eq!(names, ["runs", "second", "second", "next", "after"]);
    assert_eq!(store.forgotten(), 2);
}

#[test]
fn closed_episodes_are_forgotten_first() {
    let mut store = store();
    store.limits.episodes = 3;
    apply(&mut store, [pod("open").run(0, 10)]);
    apply(&mut store, start(&pod("a"), 0));
    store.tick(at(20_000), &[]);
    assert_eq!(store.take_closed().len(), 1, "it was reported");
    apply(
        &mut store,
        [pod("b").run(20_000, 10), pod("c").run(20_000, 10)],
    );
    let names = |store: &EpisodeStore| {
        store
            .episodes()
            .map(|t| t.pod.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&store), store.forgotten()),
        (vec!["open".into(), "b".into(), "c".into()], 1)
    );
    assert_eq!(store.take_unreported(), 0);
    apply(&mut store, [pod("d").run(20_000, 10)]);
    assert_eq!(
        (names(&store), store.forgotten()),
        (vec!["b".into(), "c".into(), "d".into()], 2)
    );
    assert_eq!(
        store.take_unreported(),
        1,
        "the end of an open one is never reported"
    );
    assert_eq!((store.pods.len(), store.open.len()), (3, 3));
}

#[test]
fn the_episodes_of_a_pod_have_one_trace() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(&mut store, [pod.create(("main", 0), 60_100, 10)]);
    let [start, restart] = [0, 1].map(|number| store.get(number).expect("an episode").ids());
    assert_eq!(start.trace_id, restart.trace_id);
    assert_ne!(start.root, restart.root);
}
