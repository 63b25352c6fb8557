//! What only events of the runtime tell.

use super::*;
use crate::episode_store::{ReachedLimit, SandboxEnd};
use criscope_cri::subject::{ContainerIdentity, ExitReason};

/// A pod that is up at 1.2 s.
fn web() -> (ScriptedPod, EpisodeStore) {
    let pod = pod("web");
    let store = store(chain([pod.run(0, 900)], up(&pod, 1000)));
    (pod, store)
}

fn oom(store: &mut EpisodeStore, pod: &ScriptedPod, ms: u64) {
    let app = ContainerIdentity {
        name: "app".into(),
        attempt: 0,
    };
    store.note_oom(&pod.0, &app, at(ms), None);
}

fn tells(store: &mut EpisodeStore, now: u64) -> String {
    store.tick(at(now), &[]);
    pod_headline(&episodes(store), at(now))
}

#[test]
fn a_child_that_is_killed_for_memory_is_told_while_its_container_runs() {
    let (pod, mut store) = web();
    oom(&mut store, &pod, 30_000);
    assert_eq!(
        tells(&mut store, 42_000),
        "the kernel killed a process of container app for lack of memory (12 s ago); container app up after 1.20 s"
    );
    for ms in [90_000, 90_040, 90_097] {
        oom(&mut store, &pod, ms);
    }
    assert_eq!(
        tells(&mut store, 95_000),
        "the kernel killed a process of container app for lack of memory 2 times in 1m 00s, the last 5 s ago; container app up after 1.20 s"
    );
    // Another run has not that.
    let mut again = store.clone();
    again.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 5, 1200, 100_000));
    again.apply(pod.create(("app", 1), 101_000, 10));
    again.apply(pod.start(("app", 1), 101_100, 10));
    let line = tells(&mut again, 130_000);
    assert!(!line.contains("process of container app for"), "{line}");
    store.apply(pod.stop(100_000, 100));
    let line = tells(&mut store, 101_000);
    assert!(line.starts_with("gone after"), "{line}");
}

/// The built-in runtime counts the processes: none is told twice, and none is lost among others.
#[test]
fn kills_that_the_runtime_counts_are_told_each() {
    let (pod, mut store) = web();
    let app = ContainerIdentity {
        name: "app".into(),
        attempt: 0,
    };
    for kills in [1, 3] {
        store.note_oom(
            &pod.0,
            &app,
            at(30_000 + 100 * u64::from(kills)),
            Some(kills),
        );
    }
    assert_eq!(
        tells(&mut store, 42_300),
        "the kernel killed 3 processes of container app for lack of memory (12 s ago); container app up after 1.20 s"
    );
    store.note_oom(&pod.0, &app, at(90_100), Some(4));
    assert_eq!(
        tells(&mut store, 95_100),
        "the kernel killed a process of container app for lack of memory 4 times in 1m 00s, the last 5 s ago; container app up after 1.20 s"
    );
}

/// containerd calls every container OOMKilled in which a process was ever killed for lack of memory.
#[test]
fn an_end_after_a_kill_of_a_child_is_none_for_lack_of_memory() {
    let after = "after the kernel killed a process of it for lack of memory";
    for (code, oom_at, words) in [
        (
            137,
            None,
            "was killed for lack of memory after 1m 00s (exit code 137)".to_owned(),
        ),
        (
            137,
            Some(61_000),
            "was killed for lack of memory after 1m 00s (exit code 137)".to_owned(),
        ),
        (
            5,
            None,
            format!("ended with exit code 5 after 1m 00s, {after}"),
        ),
        (
            5,
            Some(21_200),
            format!("ended with exit code 5 after 1m 00s, 40.0 s {after}"),
        ),
        (
            137,
            Some(21_200),
            format!("ended with exit code 137 (SIGKILL) after 1m 00s, 40.0 s {after}"),
        ),
    ] {
        let (pod, mut store) = web();
        let exit = ExitRecord {
            reason: ExitReason::OomKilled,
            oom_at: oom_at.map(at),
            ..pod.exit(("app", 0), code, 1200, 61_200)
        };
        store.note_exit(&pod.0, Some("c"), exit);
        let line = tells(&mut store, 62_000);
        let wanted = format!("container app {words}; ");
        assert!(line.starts_with(&wanted), "{line}\n{wanted}");
    }
}

/// The kernel reports both at once, and either may be told first.
#[test]
fn a_kill_that_is_told_after_the_exit_is_its_reason() {
    let (pod, mut store) = web();
    let exit = ExitRecord {
        by_event: true,
        ..pod.exit(("app", 0), 137, 1200, 31_200)
    };
    store.note_exit(&pod.0, Some("c"), exit);
    oom(&mut store, &pod, 31_210);
    let line = tells(&mut store, 32_000);
    assert!(line.contains("was killed for lack of memory"), "{line}");
    // The runtime missed it.
    store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 137, 1200, 31_200));
    assert_eq!(tells(&mut store, 32_000), line);
}

/// ContainerStatus, which comes later, does not say by whom.
#[test]
fn an_eviction_is_told_with_the_plugin_and_its_reason() {
    let (pod, mut store) = web();
    let status = ExitRecord {
        reason: ExitReason::Evicted,
        ..pod.exit(("app", 0), 137, 1200, 31_200)
    };
    let by = Some("evicted by NRI plugin 10-quota: disk full".into());
    let event = ExitRecord {
        by_event: true,
        ..status.clone().evicted_by(by)
    };
    store.note_exit(&pod.0, Some("c"), event);
    let line = tells(&mut store, 32_000);
    let told = "container app was evicted by NRI plugin 10-quota: disk full after 30.0 s (exit code 137 (SIGKILL))";
    assert!(line.starts_with(told), "{line}");
    store.note_exit(&pod.0, Some("c"), status.clone());
    assert_eq!(tells(&mut store, 32_000), line);
    // The event was missed.
    let (pod, mut store) = web();
    store.note_exit(&pod.0, Some("c"), status);
    let line = tells(&mut store, 32_000);
    assert!(
        line.starts_with("container app was evicted after 30.0 s (exit code"),
        "{line}"
    );
}

#[test]
fn a_sandbox_that_dies_is_told_until_it_is_replaced() {
    let (pod, mut store) = web();
    store.note_sandbox_end(&pod.0, SandboxEnd::new(at(30_000), Some(137)));
    let died = "the sandbox died 4 s ago: its first process (pause) ended with exit code 137 (SIGKILL), and no call had stopped it";
    assert_eq!(tells(&mut store, 34_000), died);
    store.apply(pod.stop(33_000, 100));
    assert_eq!(
        tells(&mut store, 34_000),
        format!("{died}; it was stopped since")
    );
    let next = pod.attempt(1);
    for call in chain([next.run(34_000, 900)], up(&next, 35_000)) {
        store.apply(call);
    }
    let line = tells(&mut store, 50_000);
    let why = "the sandbox was replaced (attempt 1): the one before died: its first process (pause) ended with exit code 137 (SIGKILL), and no call had stopped it; ";
    assert!(line.starts_with(why), "{line}");
}

/// A static pod that is put back has the uid of its life before, which was stopped.
#[test]
fn a_sandbox_that_died_after_its_pod_came_back() {
    let (pod, mut store) = web();
    store.apply(pod.stop(30_000, 100));
    store.tick(at(60_000), &[]);
    for call in chain([pod.run(61_000, 900)], up(&pod, 62_000)) {
        store.apply(call);
    }
    store.note_sandbox_end(&pod.0, SandboxEnd::new(at(90_000), Some(137)));
    let line = tells(&mut store, 91_000);
    assert!(line.starts_with("the sandbox died 1 s ago: "), "{line}");
}

/// One of the built-in runtime, which has no pause.
#[test]
fn a_sandbox_dies_with_the_init_of_its_shared_pid_namespace() {
    let (pod, mut store) = web();
    store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 137, 1200, 29_990));
    store.note_sandbox_end(&pod.0, SandboxEnd::new(at(30_000), None));
    assert_eq!(
        tells(&mut store, 34_000),
        "the sandbox died 4 s ago: the init of its shared PID namespace ended, and no call had stopped it"
    );
    for (limit, words) in [
        (None, ""),
        (
            Some(ReachedLimit::Memory),
            " after the kernel killed a process for lack of memory",
        ),
        (
            Some(ReachedLimit::Processes),
            " after the pod reached its limit of processes",
        ),
    ] {
        let end = SandboxEnd::from_container(at(30_000), limit);
        store.note_sandbox_end(&pod.0, end);
        assert_eq!(
            tells(&mut store, 34_000),
            format!(
                "the sandbox died 4 s ago: its sandbox container ended{words}, and no call had stopped it"
            )
        );
    }
}

/// The end of a sandbox is told before the call that asked for it is answered.
#[test]
fn a_sandbox_that_was_stopped_has_not_died() {
    let (pod, mut store) = web();
    let mut first = store.clone();
    store.note_sandbox_end(&pod.0, SandboxEnd::new(at(30_050), Some(137)));
    store.apply(pod.stop(30_000, 100));
    first.apply(pod.stop(30_000, 100));
    first.note_sandbox_end(&pod.0, SandboxEnd::new(at(30_050), Some(137)));
    for store in [&mut store, &mut first] {
        let line = tells(store, 31_000);
        assert!(line.starts_with("gone after"), "{line}");
    }
}

/// Nothing is lost with the sandbox of a pod whose containers are done.
#[test]
fn a_sandbox_in_which_nothing_runs_may_end() {
    let (pod, mut store) = web();
    store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 0, 1200, 20_000));
    store.note_sandbox_end(&pod.0, SandboxEnd::new(at(90_000), Some(0)));
    let line = tells(&mut store, 91_000);
    assert!(!line.contains("died"), "{line}");
}

/// containerd reports SIGKILL for the first process of the sandbox, and ContainerStatus an unknown exit.
#[test]
fn a_sandbox_that_ended_with_its_shim() {
    let unknown = pod_exit(255, ExitReason::Unknown);
    let error = pod_exit(255, ExitReason::Error);
    let event = ExitRecord {
        by_event: true,
        ..pod_exit(137, ExitReason::Error)
    };
    ended_with_its_shim([unknown].to_vec(), 30_000);
    ended_with_its_shim([event.clone(), error.clone()].to_vec(), 30_000);
    ended_with_its_shim([error, event].to_vec(), 30_000);
    // The kubelet has found the container first.
    ended_with_its_shim([pod_exit(255, ExitReason::Unknown)].to_vec(), 30_200);
    // A code of its own says nothing of the shim.
    for exit in [3, 255].map(|code| pod_exit(code, ExitReason::Error)) {
        let (pod, mut store) = web();
        store.note_sandbox_end(&pod.0, SandboxEnd::new(at(30_000), Some(137)));
        store.note_exit(&pod.0, Some("c"), exit);
        let line = tells(&mut store, 31_000);
        assert!(line.contains("its first process (pause)"), "{line}");
    }
}

fn pod_exit(code: i32, reason: ExitReason) -> ExitRecord {
    ExitRecord {
        reason,
        ..pod("web").exit(("app", 0), code, 1200, 30_010)
    }
}

/// The stop of the sandbox begins at 30.1 s.
fn ended_with_its_shim(exits: Vec<ExitRecord>, end: u64) {
    let (pod, mut store) = web();
    store.apply(pod.stop(30_100, 100));
    for exit in exits {
        store.note_exit(&pod.0, Some("c"), exit);
    }
    store.note_sandbox_end(&pod.0, SandboxEnd::new(at(end), Some(137)));
    let died = "its shim ended, and with it everything in the sandbox; no call had stopped it";
    let new = pod.attempt(1);
    store.apply(new.run(31_300, 300));
    store.apply(new.create(("app", 1), 31_700, 10));
    store.apply(new.start(("app", 1), 31_750, 10));
    let line = tells(&mut store, 60_000);
    let replaced = format!("the sandbox was replaced (attempt 1): the one before died: {died}");
    assert!(line.starts_with(&replaced), "{line}");
}
