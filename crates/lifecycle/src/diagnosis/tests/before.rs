//! Pods that run again, and pods that are gone: how the last run ended.

use super::*;
use crate::node::{NodeFact, NodeFactKind};

/// The start of a container of a pod that was up at 1.2 s, and what happened then.
fn up_and(pod: &ScriptedPod, more: impl IntoIterator<Item = EpisodeCall>) -> EpisodeStore {
    let calls = chain([pod.run(0, 900)], up(pod, 1000));
    store(calls.into_iter().chain(more))
}

fn again(pod: &ScriptedPod, attempt: u32, from: u64) -> [EpisodeCall; 2] {
    [
        pod.create(("app", attempt), from, 20),
        pod.start(("app", attempt), from + 30, 30),
    ]
}

fn apply(store: &mut EpisodeStore, pod: &ScriptedPod, attempt: u32, from: u64) {
    for call in again(pod, attempt, from) {
        store.apply(call);
    }
}

fn tells(store: &mut EpisodeStore, now: u64) -> String {
    store.tick(at(now), &[]);
    pod_headline(&episodes(store), at(now))
}

#[test]
fn a_pod_that_was_stopped_is_gone() {
    let pod = pod("web");
    for (code, grace, shown) in [
        (0, 1000, "0"),
        (143, 20, "143 (SIGTERM)"),
        (137, 1700, "137 (SIGKILL)"),
    ] {
        let mut store = up_and(&pod, [pod.kill(("app", 0), 20_000, grace)]);
        store.note_exit(
            &pod.0,
            Some("c"),
            pod.exit(("app", 0), code, 1200, 20_000 + grace),
        );
        store.apply(pod.stop(20_000 + grace, 100));
        let duration = |ms: u64| criscope_cri::units::duration(ms as f64);
        let gone = |ago: &str| {
            let (took, all) = (duration(grace), duration(grace + 100));
            format!(
                "the pod was stopped by the kubelet {ago}: {took} until app ended with exit code {shown}; gone after {all}"
            )
        };
        assert_eq!(tells(&mut store, 20_900 + grace), gone("just now"));
        // The kubelet's clean-up, slow or not, is no part of it.
        store.apply(pod.sweep(("app", 0), 26_000, 10));
        store.apply(pod.stop(26_100, 10));
        store.apply(pod.remove(26_200, 3000));
        assert_eq!(tells(&mut store, 30_100 + grace), gone("10 s ago"));
        assert_eq!(tells(&mut store, 3_620_100 + grace), gone("1 h ago"));
    }
}

#[test]
fn what_a_pod_came_to_by_itself_outlives_it() {
    let pod = pod("job");
    for (code, line) in [
        (
            0,
            "container app ended with exit code 0 after 5.00 s; the start took 1.20 s",
        ),
        (
            2,
            "container app ended with exit code 2 after 5.00 s; the start took 1.20 s",
        ),
    ] {
        let mut store = up_and(&pod, []);
        store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), code, 1200, 6200));
        store.apply(pod.stop(30_000, 100));
        assert_eq!(tells(&mut store, 60_000), line);
    }
}

#[test]
fn a_container_that_crashed_once_and_is_up_again() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    store.note_exit(&pod.0, Some("0"), pod.exit(("app", 0), 9, 1200, 2200));
    apply(&mut store, &pod, 1, 3440);
    assert_eq!(
        tells(&mut store, 3500),
        "container app ended with exit code 9 after 1.00 s (1 s ago); up again 1.30 s later"
    );
    // Also if the start took longer, and long after.
    let later =
        "container app ended with exit code 9 after 1.00 s (1 h ago); up again 1.30 s later";
    assert_eq!(tells(&mut store, 3_700_000), later);
    let all = episodes(&store);
    let node = store.node();
    let pods = Diagnoser::new(&all, node, at(3_700_000));
    assert_eq!(pods.cause(all[0]).to_string(), later, "of the start");
    assert_eq!(pods.cause(all[1]).name(), "container_ended");
    // It does not matter any more.
    store.apply(pod.stop(4_000_000, 100));
    assert_eq!(
        tells(&mut store, 4_100_000),
        "gone after 100 ms, nothing slow"
    );
}

#[test]
fn a_container_that_was_killed_from_outside() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    store.note_exit(&pod.0, Some("0"), pod.exit(("app", 0), 137, 1200, 61_200));
    apply(&mut store, &pod, 1, 62_000);
    assert_eq!(
        tells(&mut store, 65_000),
        "container app ended with exit code 137 (SIGKILL) after 1m 00s, sent by an unknown process (3 s ago); up again 860 ms later"
    );
}

#[test]
fn a_restart_that_took_long_says_both() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    store.note_exit(&pod.0, Some("0"), pod.exit(("app", 0), 1, 1200, 61_200));
    store.tick(at(61_200), &[]);
    store.apply(pod.pull("web:1", 62_000, 9000));
    apply(&mut store, &pod, 1, 71_000);
    assert_eq!(
        tells(&mut store, 90_000),
        "container app ended with exit code 1 after 1m 00s (28 s ago); image pull: 9.00 s of 9.06 s pulling web:1"
    );
}

#[test]
fn how_a_run_ended_is_not_guessed() {
    let pod = pod("web");
    let mut store = up_and(&pod, again(&pod, 1, 30_000));
    assert_eq!(
        tells(&mut store, 60_000),
        "container app up after 1.20 s, nothing slow"
    );
    // Of the run before the last nothing is known.
    store.note_exit(&pod.0, Some("0"), pod.exit(("app", 0), 1, 1200, 29_000));
    apply(&mut store, &pod, 2, 90_000);
    let newest = store.episodes().last().expect("a restart");
    let all = episodes(&store);
    let pods = Diagnoser::new(&all, store.node(), at(91_000));
    assert_eq!(
        pods.cause(newest).to_string(),
        "container app up after 60.0 ms, nothing slow"
    );
}

#[test]
fn a_restart_that_has_done_its_work_is_not_up() {
    let pod = pod("job");
    let mut store = up_and(&pod, []);
    store.note_exit(&pod.0, Some("0"), pod.exit(("app", 0), 3, 1200, 61_200));
    apply(&mut store, &pod, 1, 62_000);
    store.note_exit(&pod.0, Some("1"), pod.exit(("app", 1), 0, 62_060, 64_060));
    assert_eq!(
        tells(&mut store, 90_000),
        "container app ended with exit code 0 after 2.00 s; the start took 60.0 ms"
    );
}

/// The kubelet stops what is left of it, and makes another one.
fn replace(store: &mut EpisodeStore, old: &ScriptedPod, attempt: u32, from: u64) -> ScriptedPod {
    let new = old.attempt(attempt);
    store.tick(at(from), &[]);
    store.apply(old.kill(("app", attempt - 1), from, 50));
    let exit = old.exit(("app", attempt - 1), 137, from - 10_000, from + 20);
    store.note_exit(&old.0, Some("old"), exit);
    store.apply(old.stop(from + 60, 100));
    store.apply(new.run(from + 200, 300));
    apply(store, &new, attempt, from + 510);
    new
}

#[test]
fn a_sandbox_that_was_replaced() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    replace(&mut store, &pod, 1, 60_000);
    let line = "the sandbox was replaced (attempt 1): the one before was not usable; container app up after 370 ms";
    assert_eq!(tells(&mut store, 60_600), line);
    assert_eq!(tells(&mut store, 90_000), line);
    // The old one is removed later, slowly: the pod is not gone.
    store.apply(pod.stop(120_000, 10));
    store.apply(pod.remove(120_020, 3000));
    assert_eq!(tells(&mut store, 150_000), line);
}

/// The stop of the old sandbox was not seen; its late removal is no end of the pod.
#[test]
fn the_removal_of_an_old_sandbox_is_not_the_end_of_the_pod() {
    let pod = pod("web");
    let new = pod.attempt(1);
    let calls = chain([new.run(0, 300)], again(&new, 1, 400));
    let mut store = store(calls);
    store.tick(at(60_000), &[]);
    store.apply(pod.stop(60_000, 2500));
    assert_eq!(
        tells(&mut store, 200_000),
        "the sandbox was replaced (attempt 1): the one before was not usable; container app up after 460 ms"
    );
}

#[test]
fn a_sandbox_that_is_replaced_again_and_again() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    let mut newest = pod;
    for attempt in 1..=3 {
        let from = 40_000 * u64::from(attempt);
        newest = replace(&mut store, &newest, attempt, from);
    }
    let up = "container app up after 370 ms";
    assert_eq!(
        tells(&mut store, 150_000),
        format!("the sandbox keeps being replaced: 3 times in 1m 20s; {up}")
    );
    assert_eq!(
        tells(&mut store, 3_600_000),
        format!("the sandbox was replaced: 3 times in 1m 20s; {up}")
    );
    replace(&mut store, &newest, 4, 4_000_000);
    assert_eq!(
        tells(&mut store, 4_100_000),
        format!("the sandbox was replaced (attempt 4): the one before was not usable; {up}")
    );
}

/// A restart of the node replaces every sandbox, and is no series with what was before.
#[test]
fn sandboxes_that_were_lost_with_their_runtime_are_no_series() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    let newest = replace(&mut store, &pod, 1, 40_000);
    let down = NodeFact {
        from: at(80_000),
        to: Some(at(90_000)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(80_000), "")
    };
    store.note_fact(down);
    store.tick(at(99_000), &[]);
    let new = newest.attempt(2);
    store.apply(new.run(100_000, 300));
    apply(&mut store, &new, 2, 100_310);
    let told = tells(&mut store, 150_000);
    assert!(
        told.starts_with("the sandbox was replaced (attempt 2): the one before was not usable after criscope was down from "),
        "{told}"
    );
}

#[test]
fn a_sandbox_that_crictl_stopped() {
    let pod = pod("web");
    let mut store = up_and(&pod, []);
    store.tick(at(50_000), &[]);
    let mut stop = pod.stop(50_000, 100);
    stop.peer = std::sync::Arc::new(criscope_cri::call::Peer {
        client: criscope_cri::call::Client::Crictl,
        pid: None,
        comm: None,
    });
    store.apply(stop);
    replace(&mut store, &pod, 1, 51_000);
    assert_eq!(
        tells(&mut store, 90_000),
        "the sandbox was stopped by crictl and replaced (attempt 1); container app up after 370 ms"
    );
}

/// After a reboot every container has a higher attempt, in a sandbox with a higher attempt.
#[test]
fn a_story_that_begins_after_a_reboot() {
    let pod = pod("web").attempt(2);
    let calls = [
        pod.run(0, 300),
        pod.create(("app", 5), 310, 20),
        pod.start(("app", 5), 340, 30),
        pod.create(("side", 3), 380, 20),
        pod.start(("side", 3), 410, 30),
    ];
    let line = "the sandbox was replaced (attempt 2): the one before was not usable; containers app, side up after 440 ms";
    assert_eq!(says(calls.clone(), 1000), line);
    assert_eq!(says(calls, 60_000), line);
}

/// A sandbox that was never made was not replaced.
#[test]
fn a_start_that_was_tried_again_replaces_nothing() {
    let pod = pod("web");
    let fails = |pod: &ScriptedPod, from| pod.run(from, 100).fails(Code::Unknown, "broken");
    let next = pod.attempt(1);
    let calls = chain([fails(&pod, 0), next.run(20_000, 100)], up(&next, 20_200));
    let line = says(calls, 60_000);
    assert!(
        line.contains("broken") && !line.contains("replaced"),
        "{line}"
    );
}

/// An init container failed once, and was done at the second try.
#[test]
fn what_an_init_container_needed_is_not_the_end_of_the_pod() {
    let pod = pod("web");
    let begun = chain([pod.run(0, 900)], up(&pod, 1000));
    let mut store = store(begun);
    store.note_exit(&pod.0, Some("0"), pod.exit(("app", 0), 4, 1200, 2200));
    apply(&mut store, &pod, 1, 3440);
    store.note_exit(&pod.0, Some("1"), pod.exit(("app", 1), 0, 3500, 4500));
    store.apply(pod.create(("web", 0), 4600, 20));
    store.apply(pod.start(("web", 0), 4630, 30));
    let line = tells(&mut store, 60_000);
    assert!(
        !line.contains("exit code 0") && !line.contains("up again"),
        "{line}"
    );
}

/// Its uid is a hash of its manifest.
#[test]
fn a_static_pod_that_comes_back_is_judged_by_its_new_start() {
    let web = pod("web");
    let mut calls = chain([web.run(20_000, 900).seen_before(20_000)], up(&web, 21_000));
    calls.extend([
        web.kill(("app", 0), 60_000, 100),
        web.stop(60_200, 100),
        web.remove(60_400, 100),
        web.run(90_000, 300).seen_before(40),
    ]);
    calls.extend(up(&web, 90_400));
    assert_eq!(
        says(calls, 150_000),
        "container app up after 600 ms, nothing slow"
    );
}

/// Its stopped sandbox is still there, and so is the number of its attempt: no sandbox was replaced, however often.
#[test]
fn a_static_pod_that_comes_back_at_once_has_no_replaced_sandbox() {
    let web = pod("web");
    let mut calls = chain([web.run(20_000, 900).seen_before(20_000)], up(&web, 21_000));
    for (attempt, from) in [(1, 60_000), (2, 120_000)] {
        let (old, new) = (web.attempt(attempt - 1), web.attempt(attempt));
        calls.extend([
            old.kill(("app", 0), from, 100),
            old.stop(from + 200, 100),
            old.stop(from + 8000, 4),
            new.run(from + 8010, 300).seen_before(90),
        ]);
        calls.extend(up(&new, from + 8400));
        let now = from + 50_000;
        let line = says(calls.clone(), now);
        assert_eq!(line, "container app up after 590 ms, nothing slow");
    }
}

/// After a restart of the node the kubelet sees the static pod again, and replaces its lost sandbox. Before the pod was put back, a sandbox
/// with the same attempt had been stopped.
#[test]
fn a_sandbox_that_is_lost_after_its_pod_came_back_is_replaced() {
    let web = pod("web");
    let second = web.attempt(1);
    let mut calls = chain([web.run(20_000, 900).seen_before(20)], up(&web, 21_000));
    calls.extend([web.stop(30_000, 10), second.run(30_100, 100)]);
    calls.extend(up(&second, 30_300));
    calls.extend([
        second.kill(("app", 0), 60_000, 100),
        second.stop(60_200, 100),
    ]);
    calls.push(web.run(80_000, 300).seen_before(90));
    calls.extend(up(&web, 80_400));
    calls.extend([
        web.stop(150_000, 10),
        second.run(150_100, 300).seen_before(26_000),
    ]);
    calls.extend(up(&second, 150_500));
    let line = says(calls, 200_000);
    assert!(
        line.starts_with("the sandbox was replaced (attempt 1)"),
        "{line}"
    );
}

/// The same calls of a kubelet that replaces a sandbox: it saw the pod before.
#[test]
fn a_sandbox_that_is_stopped_by_the_kubelet_and_made_anew_is_replaced() {
    let web = pod("web");
    let mut calls = chain([web.run(20_000, 900).seen_before(20)], up(&web, 21_000));
    let new = web.attempt(1);
    calls.extend([
        web.kill(("app", 0), 60_000, 100),
        web.stop(60_200, 100),
        new.run(68_010, 300).seen_before(48_030),
    ]);
    calls.extend(up(&new, 68_400));
    let line = says(calls, 100_000);
    assert!(
        line.starts_with("the sandbox was replaced (attempt 1)"),
        "{line}"
    );
}

/// A shim that dies two minutes after a downtime, for example: the sandbox was made after it.
#[test]
fn a_sandbox_is_not_lost_in_a_downtime_that_it_did_not_see() {
    let pod = pod("web");
    let mut store = store([]);
    store.note_fact(NodeFact {
        to: Some(at(15_000)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(1000), "")
    });
    for call in chain([pod.run(40_000, 900)], up(&pod, 41_000)) {
        store.apply(call);
    }
    store.tick(at(60_000), &[]);
    let new = pod.attempt(1);
    store.apply(new.run(70_000, 300));
    for call in [
        new.create(("app", 1), 70_400, 20),
        new.start(("app", 1), 70_450, 20),
    ] {
        store.apply(call);
    }
    assert_eq!(
        tells(&mut store, 90_000),
        "the sandbox was replaced (attempt 1): the one before was not usable; container app up after 470 ms"
    );
}
