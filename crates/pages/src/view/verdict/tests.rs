//! Sentences over all pods of a node.

use super::*;
use crate::examples;
use crate::view::{EpisodeView, PodReason};

/// A pod in this state, for this cause.
fn pod(name: &str, kind: &str, state: EpisodeState, cause: (&str, Option<PodState>)) -> PodSummary {
    let episode = EpisodeView {
        kind: kind.to_owned(),
        name: name.to_owned(),
        state,
        ..examples::slow_cni()
    };
    let reason = PodReason {
        text: episode.headline.clone(),
        cause: cause.0.to_owned(),
        state: cause.1,
        ..PodReason::default()
    };
    PodSummary::from_episodes(vec![episode], reason, examples::NOW).expect("a pod")
}

fn failing(cause: &str) -> PodSummary {
    pod("web", "start", EpisodeState::Failing, (cause, None))
}

fn up() -> PodSummary {
    pod("up", "start", EpisodeState::Ok, ("quick", None))
}

fn crash_loop() -> PodSummary {
    let looping = Some(PodState::CrashLoop);
    pod("app", "restart", EpisodeState::Ok, ("crash_loop", looping))
}

fn sentence(pods: &[PodSummary]) -> String {
    NodeVerdict::new(pods, Vec::new()).headline
}

#[test]
fn trouble_is_counted_by_kind_and_by_cause() {
    let mut pods = vec![up(); 11];
    pods.extend(vec![failing("image_not_found"); 4]);
    pods.push(failing("registry_rate_limit"));
    pods.push(failing("cni_no_addresses"));
    pods.push(failing("command_not_found"));
    pods.extend(vec![crash_loop(); 3]);
    assert_eq!(
        sentence(&pods),
        "7 of 21 pods cannot start, 3 crash-loop: 5 image pulls, 1 CNI, 1 command."
    );
}

#[test]
fn the_causes_of_loops_are_told_if_they_say_more() {
    let oom = PodSummary {
        oom_kills: 4,
        ..crash_loop()
    };
    let killed = PodSummary {
        cause: "kill_loop".to_owned(),
        ..crash_loop()
    };
    assert_eq!(
        sentence(&[up(), oom, killed, crash_loop()]),
        "3 of 4 pods crash-loop: 1 out of memory, 1 probe."
    );
}

#[test]
fn one_pod_and_no_pod_and_no_trouble() {
    assert_eq!(sentence(&[]), "No pod is known yet.");
    assert_eq!(sentence(&[up()]), "The only pod is up.");
    assert_eq!(sentence(&vec![up(); 21]), "All 21 pods are up.");
    assert_eq!(sentence(&[crash_loop()]), "The only pod crash-loops.");
    assert_eq!(sentence(&vec![crash_loop(); 2]), "All 2 pods crash-loop.");
    let gone = pod(
        "old",
        "stop",
        EpisodeState::Cancelled,
        ("pod_stopped", None),
    );
    assert_eq!(
        sentence(std::slice::from_ref(&gone)),
        "No pod runs; one has ended."
    );
    assert_eq!(sentence(&[gone, up(), up()]), "All 2 pods are up.");
}

#[test]
fn a_start_that_takes_long_is_not_told_to_be_up() {
    let starting = |duration_ms| PodSummary {
        duration_ms,
        ..pod("db", "start", EpisodeState::Open, ("begun", None))
    };
    let verdict = NodeVerdict::new(&[starting(200.0), up(), up()], Vec::new());
    assert_eq!(verdict.headline, "1 of 3 pods is starting.");
    assert_eq!(verdict.level(), VerdictLevel::Busy);
    let slow = PodSummary {
        cause: "call_in_flight".to_owned(),
        ..starting(130_000.0)
    };
    let verdict = NodeVerdict::new(&[slow, up(), up()], Vec::new());
    assert_eq!(verdict.headline, "1 of 3 pods is slow to start: 1 timeout.");
    assert_eq!(verdict.level(), VerdictLevel::Warning);
}

#[test]
fn what_is_up_and_fails_its_probe_is_unhealthy_and_what_cannot_stop_is_told() {
    let probe = ("probe_fails", Some(PodState::Failing));
    let pods = [
        pod("a", "start", EpisodeState::Ok, probe),
        pod(
            "b",
            "stop",
            EpisodeState::Failing,
            ("sandbox_stop_failed", None),
        ),
        pod(
            "c",
            "start",
            EpisodeState::Ok,
            ("container_ended", Some(PodState::Failed)),
        ),
    ];
    assert_eq!(
        sentence(&pods),
        "1 of 3 pods has failed, 1 cannot stop, 1 is unhealthy: 1 runtime, 1 probe."
    );
}

#[test]
fn the_node_comes_first() {
    let trouble = NodeTrouble {
        cause: "backend_down".to_owned(),
        text: "the runtime containerd has not answered for 41.0 s; no pod can start".to_owned(),
    };
    let verdict = NodeVerdict::new(&[up(), failing("runtime_away")], vec![trouble]);
    assert_eq!(
        verdict.headline,
        "The runtime containerd has not answered for 41.0 s; no pod can start. 1 of 2 pods cannot start: 1 runtime."
    );
    assert_eq!(verdict.level(), VerdictLevel::Bad);
}

#[test]
fn verdicts_of_nodes_add_up() {
    let mut all = NodeVerdict::new(&[up(), failing("no_space")], Vec::new());
    all.join(NodeVerdict::new(&[failing("no_space"), up()], Vec::new()));
    assert_eq!(all.headline, "2 of 4 pods cannot start: 2 disk.");
    let json = serde_json::to_string(&all).expect("json");
    assert!(json.contains("\"troubles\":{\"cannot_start\":2}"), "{json}");
    assert_eq!(
        serde_json::from_str::<NodeVerdict>(&json).expect("read"),
        all
    );
}
