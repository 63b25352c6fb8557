//! What the node has to do with a pod.

use super::*;
use crate::node::{NodeFact, NodeFactKind, PressureSample};

/// An unready network, from then to then; in milliseconds.
fn unready(from: u64, to: Option<u64>) -> NodeFact {
    let kind = NodeFactKind::NotReady {
        backend: "main".to_owned(),
        condition: "NetworkReady".to_owned(),
    };
    let text = "Network plugin returns error: cni config uninitialized";
    NodeFact {
        to: to.map(at),
        ..NodeFact::new(kind, at(from), text)
    }
}

fn down(from: u64, to: Option<u64>) -> NodeFact {
    let kind = NodeFactKind::BackendDown {
        backend: "main".to_owned(),
    };
    NodeFact {
        to: to.map(at),
        ..NodeFact::new(kind, at(from), "connection refused")
    }
}

/// The headline at `now` of a pod whose calls came after the facts began.
fn tells(facts: &[NodeFact], calls: Vec<EpisodeCall>, now: u64) -> String {
    let mut store = store([]);
    for fact in facts {
        let begun = NodeFact {
            to: None,
            ..fact.clone()
        };
        store.note_fact(begun);
    }
    for call in calls {
        store.tick(call.ended_at(), &[]);
        store.apply(call);
    }
    for fact in facts {
        store.note_fact(fact.clone());
    }
    store.tick(at(now), &[]);
    pod_headline(&episodes(&store), at(now))
}

#[test]
fn a_pod_that_waits_for_the_network_says_so_first() {
    let pod = pod("web");
    let facts = [unready(0, None)];
    let refused = "failed to setup network for sandbox: cni plugin not initialized";
    let fails = |from| pod.run(from, 100).fails(Code::Unknown, refused);
    let calls = vec![fails(20_000), fails(32_000)];
    assert_eq!(
        tells(&facts, calls, 180_000),
        "NetworkReady of main has been false for 3m 00s: cni config uninitialized; RunPodSandbox failed twice, the last 2 min ago"
    );
    // CRI-O waits within the call.
    let calls = vec![pod.run(20_000, 40_000).under_way(Some(240_000))];
    assert_eq!(
        tells(&facts, calls, 60_000),
        "NetworkReady of main has been false for 1m 00s: cni config uninitialized; RunPodSandbox has taken 40.0 s"
    );
    let calls = vec![pod.run(20_000, 1000)];
    let told = tells(&facts, calls, 60_000);
    assert!(
        told.starts_with("NetworkReady of main has been false"),
        "{told}"
    );
    assert!(
        told.ends_with("no call since RunPodSandbox ended 39 s ago"),
        "{told}"
    );
}

/// A wrong line is worse than none.
#[test]
fn what_has_another_cause_keeps_it() {
    let pod = pod("web");
    let facts = [unready(0, None)];
    let pull = pod.pull("web:1", 21_000, 100);
    let calls = vec![
        pod.run(20_000, 900),
        pull.fails(Code::NotFound, "no such image"),
    ];
    let told = tells(&facts, calls, 60_000);
    assert!(told.starts_with("image web:1 cannot be pulled"), "{told}");
    let run = pod.run(20_000, 100);
    let calls = vec![run.fails(Code::Unknown, "no space left on device")];
    let told = tells(&facts, calls, 60_000);
    assert!(told.starts_with("the sandbox cannot be made"), "{told}");
    // The network of another runtime.
    let mut elsewhere = unready(0, None);
    elsewhere.kind = NodeFactKind::NotReady {
        backend: "spare".to_owned(),
        condition: "NetworkReady".to_owned(),
    };
    let told = tells(&[elsewhere], vec![pod.run(20_000, 1000)], 60_000);
    assert!(told.starts_with("kubelet: no call for"), "{told}");
    // It held long before, and no more.
    let calls = chain([pod.run(20_000, 900)], up(&pod, 21_000));
    let told = tells(&[unready(0, Some(20_500))], calls, 60_000);
    assert_eq!(told, "container app up after 1.20 s, nothing slow");
}

#[test]
fn a_backend_that_was_away_explains_calls_and_gaps() {
    let pod = pod("web");
    let refused = |from| {
        let run = pod.run(from, 1);
        run.fails(Code::Unavailable, "backend main: connection refused")
    };
    let told = tells(&[down(0, None)], vec![refused(5000)], 60_000);
    assert_eq!(
        told,
        "the runtime main has not answered for 1m 00s: connection refused; RunPodSandbox failed once, the last 54 s ago"
    );
    let calls = [refused(5000), pod.run(40_000, 500)];
    let told = tells(
        &[down(0, Some(30_000))],
        chain(calls, up(&pod, 40_500)),
        90_000,
    );
    assert_eq!(
        told,
        "the runtime main did not answer from 15:06:40 to 15:07:10 UTC (30.0 s): connection refused; up after 35.7 s"
    );
}

fn hangs(from: u64, to: Option<u64>) -> NodeFact {
    let kind = NodeFactKind::BackendHangs {
        backend: "main".to_owned(),
    };
    NodeFact {
        to: to.map(at),
        ..NodeFact::new(kind, at(from), "containerd is stopped by a signal")
    }
}

/// The probe of the backend gives up long after the first poll was left unanswered.
#[test]
fn of_two_facts_about_one_hang_the_first_is_told() {
    let pod = pod("web");
    let facts = [down(10_000, None), hangs(1200, None)];
    let told = tells(&facts, vec![pod.run(0, 1000)], 21_200);
    assert!(
        told.starts_with("the runtime main has not answered for 20.0 s: containerd is stopped"),
        "{told}"
    );
}

/// The kubelet made the next call long ago: it is one that is not told apart by pod, and is not answered.
#[test]
fn a_runtime_that_stops_between_two_calls_is_not_the_kubelet() {
    let pod = pod("web");
    let told = tells(&[hangs(1200, None)], vec![pod.run(0, 1000)], 9000);
    assert_eq!(
        told,
        "the runtime main has not answered for 7.80 s: containerd is stopped by a signal; no call since RunPodSandbox ended 8 s ago"
    );
    let calls = chain([pod.run(0, 1000)], up(&pod, 9000));
    let told = tells(&[hangs(1200, Some(8900))], calls, 60_000);
    assert_eq!(
        told,
        "the runtime main did not answer from 15:06:41 to 15:06:48 UTC (7.70 s): containerd is stopped by a signal; 8.00 s of 9.20 s passed between CRI calls"
    );
    // Within a call: neither the container nor the OCI runtime is to blame.
    let calls = chain([pod.run(0, 9000)], up(&pod, 9100));
    let told = tells(&[hangs(1200, Some(8900))], calls, 60_000);
    assert_eq!(
        told,
        "the runtime main did not answer from 15:06:41 to 15:06:48 UTC (7.70 s): containerd is stopped by a signal; 9.00 s of 9.30 s in RunPodSandbox"
    );
    // A program is at work for the call.
    let run = pod.run(0, 9000).under_way(None);
    let run = run.seen(WorkKind::Cni, "bridge", "", 100, 9000);
    let told = tells(&[hangs(1200, None)], vec![run], 9000);
    assert!(told.starts_with("RunPodSandbox has taken"), "{told}");
}

#[test]
fn a_gap_without_observation_is_not_blamed_on_the_kubelet() {
    let pod = pod("web");
    let mut store = store([pod.run(0, 900)]);
    store.note_fact(NodeFact {
        to: Some(at(190_000)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(5000), "")
    });
    for call in up(&pod, 200_000) {
        store.apply(call);
    }
    store.tick(at(300_000), &[]);
    let told = pod_headline(&episodes(&store), at(300_000));
    assert_eq!(
        told,
        "criscope was down from 15:06:45 to 15:09:50 UTC: nothing is known of calls in between; 3m 19s of 3m 20s passed between CRI calls"
    );
    // The sandbox was made while criscope was down.
    let mut store = self::store([]);
    store.note_fact(NodeFact {
        to: Some(at(190_000)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(5000), "")
    });
    for call in up(&pod, 191_000) {
        store.apply(call);
    }
    store.tick(at(300_000), &[]);
    let told = pod_headline(&episodes(&store), at(300_000));
    assert!(
        told.ends_with("; what came before is not known: criscope was down from 15:06:45 to 15:09:50 UTC: nothing is known of calls in between"),
        "{told}"
    );
}

#[test]
fn scarcity_is_named_with_its_numbers() {
    let pod = pod("web");
    let sample = |ms: u64, io: u64| PressureSample {
        at: at(ms),
        some: [0, 0, io * 1000],
    };
    let mut store = store([]);
    store.note_pressure(sample(0, 100));
    store.apply(pod.run(1000, 38_000));
    store.note_pressure(sample(40_000, 24_900));
    for call in up(&pod, 39_000) {
        store.apply(call);
    }
    store.tick(at(90_000), &[]);
    assert_eq!(
        pod_headline(&episodes(&store), at(90_000)),
        "38.0 s of 38.2 s in RunPodSandbox; the node was short of io: some task waited for it 62 % of 40.0 s"
    );
}

#[test]
fn what_held_up_the_kubelet_before_the_first_call_is_named() {
    let web = pod("web");
    let calls = || chain([web.run(41_000, 900).seen_before(40_000)], up(&web, 42_000));
    let facts = [unready(0, Some(41_500))];
    let said = tells(&facts, calls(), 120_000);
    assert!(
        said.starts_with(
            "kubelet: 40.0 s before the first call: NetworkReady of main was false from "
        ) && said.ends_with("cni config uninitialized; then up after 1.20 s"),
        "{said}"
    );
    // criscope itself: nothing precedes a RunPodSandbox, so nothing is unknown.
    let down = NodeFact {
        to: Some(at(40_800)),
        ..NodeFact::new(NodeFactKind::CriscopeDown, at(2000), "")
    };
    let mut store = store([]);
    store.note_fact(down);
    let calls: Vec<EpisodeCall> = calls();
    for call in calls {
        store.apply(call);
    }
    store.tick(at(120_000), &[]);
    let said = pod_headline(&episodes(&store), at(120_000));
    assert!(
        said.starts_with("kubelet: 40.0 s before the first call: criscope was down from ")
            && said.ends_with("; then up after 1.20 s"),
        "{said}"
    );
    assert!(!said.contains("what came before"), "{said}");
    // A short one explains nothing.
    let said = tells(
        &[unready(38_000, Some(41_500))],
        vec![web.run(41_000, 900).seen_before(40_000)],
        43_000,
    );
    assert!(said.contains("volumes, admission or its queue"), "{said}");
}

/// The call that waited for the runtime ends its episode at once, and the node is looked at once a second.
#[test]
fn a_fact_that_ends_after_the_episode_has_ended() {
    let pod = pod("web");
    let mut store = store(chain([pod.run(0, 500)], up(&pod, 600)));
    store.tick(at(60_000), &[]);
    store.note_fact(hangs(99_000, None));
    for call in [pod.kill(("app", 0), 98_000, 30_000), pod.stop(128_010, 100)] {
        store.tick(call.ended_at(), &[]);
        store.apply(call);
    }
    store.tick(at(128_500), &[]);
    store.note_fact(hangs(99_000, Some(129_000)));
    let told = pod_headline(&episodes(&store), at(135_000));
    assert!(
        told.starts_with("the runtime main did not answer from ") && told.contains(" (30.0 s)"),
        "{told}"
    );
}

/// The kubelet's call waits in the socket: it is taken in when criscope runs again, and its episode may have ended before that is
/// noticed.
#[test]
fn a_stop_that_waited_until_criscope_ran_again() {
    let web = pod("web");
    let stall = NodeFact {
        to: Some(at(132_400)),
        ..NodeFact::new(NodeFactKind::CriscopeStalled, at(100_000), "")
    };
    let stalled = "criscope did not run from 15:08:20 to 15:08:52 UTC (32.4 s): it was stopped, frozen or starved; then gone after 150 ms";
    let told = |first: u64, noted_first: bool, span: Option<u64>| {
        let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
        store.tick(at(60_000), &[]);
        if noted_first {
            store.note_fact(stall.clone());
        }
        for call in [
            web.kill(("app", 0), first, 80),
            web.stop(first + 100, 50),
            web.remove(first + 160, 40),
        ] {
            store.tick(call.ended_at(), &[]);
            store.apply(call);
        }
        store.tick(at(first + 300), &[]);
        if !noted_first {
            store.note_fact(stall.clone());
        }
        if let Some(from) = span {
            store.note_sync(web.terminates(from, first - from + 150));
        }
        let stop = store.episodes().last().expect("the stop");
        assert_eq!(stop.kind, Kind::Stop);
        headline(stop, at(160_000))
    };
    assert_eq!(told(131_900, false, None), stalled);
    assert_eq!(told(132_500, true, None), stalled);
    assert_eq!(
        told(132_000, false, Some(102_000)),
        format!("kubelet: 30.0 s in syncTerminatingPod before the first call: {stalled}")
    );
    // What came a while later did not wait.
    assert_eq!(told(135_000, true, None), "gone after 150 ms, nothing slow");
    assert_eq!(
        told(150_000, true, Some(140_000)),
        "kubelet: 10.0 s in syncTerminatingPod before the first call: preStop hooks that are no exec run there; then gone after 150 ms"
    );
}
