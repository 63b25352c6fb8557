//! Pods that are deleted before they have a sandbox.

use super::*;
use crate::node::{NodeFact, NodeFactKind};
use crate::view::PodState;

fn fails(web: &ScriptedPod, from: u64) -> EpisodeCall {
    let run = web.run(from, 100);
    run.fails(Code::Unknown, "failed to setup network: no route")
}

/// RunPodSandbox failed three times, the last at 24.1 s.
fn failed(web: &ScriptedPod) -> EpisodeStore {
    store([0, 12_000, 24_000].map(|from| fails(web, from)))
}

fn told(store: &mut EpisodeStore, now: u64) -> (String, PodState) {
    store.tick(at(now), &[]);
    let all = episodes(store);
    let pods = Diagnoser::new(&all, store.node(), at(now));
    let newest = all.last().expect("an episode").summary(&pods);
    let said = pods.newest_cause().expect("an episode").to_string();
    (said, newest.pod_state())
}

#[test]
fn a_sandbox_that_is_not_tried_again() {
    let web = pod("web");
    let mut store = failed(&web);
    let (said, state) = told(&mut store, 40_000);
    assert!(said.ends_with("(3 tries, the last 15 s ago)"), "{said}");
    assert_eq!(state, PodState::Failing);
    let (said, _) = told(&mut store, 60_000);
    assert!(
        said.ends_with("; not tried again for 35.9 s, as when the pod is deleted"),
        "{said}"
    );
    let (said, state) = told(&mut store, 90_000);
    assert!(said.contains("; not tried again for 1m 06s"), "{said}");
    assert_eq!(state, PodState::Failed);
    // It was there.
    store.apply(fails(&web, 100_000));
    let (said, state) = told(&mut store, 101_000);
    assert!(!said.contains("not tried"), "{said}");
    assert_eq!(state, PodState::Failing);
}

#[test]
fn a_kubelet_that_is_away_does_not_try() {
    let web = pod("web");
    let mut store = failed(&web);
    store.note_fact(NodeFact::new(NodeFactKind::NoKubelet, at(25_000), ""));
    let (said, _) = told(&mut store, 70_000);
    assert!(!said.contains("deleted"), "{said}");
}

#[test]
fn a_pod_whose_directory_is_gone_is_deleted() {
    let web = pod("web");
    let mut store = failed(&web);
    assert_eq!(store.without_sandbox(), std::slice::from_ref(&web.0));
    assert!(store.note_deleted(&web.0, at(30_000)));
    assert!(!store.note_deleted(&web.0, at(31_000)), "once");
    let (said, state) = told(&mut store, 70_000);
    assert!(
        said.starts_with("the pod was deleted 40 s ago, before it had a sandbox: network: ")
            && said.ends_with("(3 tries, the last 45 s ago)"),
        "{said}"
    );
    assert_eq!(state, PodState::Gone);
    assert_eq!(store.without_sandbox(), []);
    // A static pod may come back with the same uid.
    store.apply(fails(&web, 80_000));
    assert_eq!(told(&mut store, 81_000).1, PodState::Failing);
}

#[test]
fn the_end_of_a_pod_in_the_spans_of_the_kubelet() {
    let web = pod("web");
    let mut store = failed(&web);
    store.note_sync(web.terminates(30_000, 10));
    let (said, state) = told(&mut store, 31_000);
    assert!(said.starts_with("the pod was deleted "), "{said}");
    assert_eq!(state, PodState::Gone);
}

/// There is a sandbox: StopPodSandbox tells of its end.
#[test]
fn a_pod_with_a_sandbox_is_not_asked_after() {
    let web = pod("web");
    let pull = web.pull("app:1", 600, 10).fails(Code::NotFound, "no");
    let mut store = store([web.run(0, 500), pull]);
    assert_eq!(store.without_sandbox(), []);
    assert!(!store.note_deleted(&web.0, at(30_000)));
    let (said, _) = told(&mut store, 300_000);
    assert!(!said.contains("not tried"), "{said}");
}
