//! Exits of containers.

use std::time::Duration;

use super::*;
use crate::episode_store::ExitChange;

#[test]
fn an_end_counts_once_and_goes_to_the_start_it_ended() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    apply(
        &mut store,
        [
            pod.create(("app", 1), 20_000, 1),
            pod.start(("app", 1), 20_100, 1),
        ],
    );
    let ended = |attempt| pod.exit(("app", attempt), 1, 900, 1100);
    assert_eq!(
        store.note_exit(&pod.0, Some("c0"), ended(0)),
        ExitChange::New
    );
    assert_eq!(
        store.note_exit(&pod.0, Some("c0"), ended(0)),
        ExitChange::Nothing
    );
    assert_eq!(
        store.note_exit(&pod.0, Some("c1"), ended(1)),
        ExitChange::New
    );
    let exits: Vec<_> = store.episodes().map(|t| t.exits.len()).collect();
    assert_eq!(exits, [1, 1]);
    for n in 0..10_000 {
        store.note_exit(&pod.0, Some(&format!("x{n}")), ended(n));
    }
    assert_eq!(store.exits.len(), 2048);
    assert!(store.episodes().all(|t| t.exits.len() <= 16));
}

/// containerd reports `exit 128` of a container whose start failed, without a begin; CRI-O the time of its creation as both.
#[test]
fn what_never_ran_has_not_ended() {
    use criscope_cri::subject::{ContainerExit, ContainerIdentity, ExitReason};
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [pod.run(0, 100), pod.create(("app", 0), 200, 100)],
    );
    let no_such_file = pod
        .start(("app", 0), 300, 100)
        .fails(Code::Unknown, "no such file");
    apply(&mut store, [no_such_file]);
    let container = ContainerIdentity {
        name: "app".into(),
        attempt: 0,
    };
    let now = i64::try_from(at(400).as_micros()).expect("small") * 1000;
    let (code, reason) = (128, ExitReason::Other);
    for began in [0, now, i64::MIN] {
        let exit = ExitRecord::new(
            &container,
            began,
            &ContainerExit {
                at: now,
                code,
                reason,
            },
        );
        assert_eq!(
            store.note_exit(&pod.0, Some("c"), exit),
            ExitChange::Nothing,
            "{began}"
        );
    }
    assert!(store.episodes().all(|t| t.exits.is_empty()));
}

/// containerd 2 may record the start of a program that ends at once after its end.
#[test]
fn what_ended_before_its_start_was_recorded_has_run() {
    use criscope_cri::subject::{ContainerExit, ContainerIdentity, ExitReason};
    let container = ContainerIdentity::default();
    let exit = ContainerExit {
        at: 5_000_000,
        code: 1,
        reason: ExitReason::Error,
    };
    let ran = |began| ExitRecord::new(&container, began, &exit).ran;
    assert_eq!(
        [0, 5_000_000, 5_002_000, 2_000_000].map(ran),
        [0, 0, 1, 3000].map(Duration::from_micros)
    );
}

fn failure_reports(
    pod: &crate::tests::script::ScriptedPod,
    code: i32,
    from: u64,
    to: u64,
) -> ExitRecord {
    ExitRecord {
        node_restarted: None,
        by_event: true,
        ..pod.exit(("app", 0), code, from, to)
    }
}

/// An event tells an exit, ContainerStatus says it again, as often as the kubelet asks.
#[test]
fn an_exit_that_an_event_told_counts_once_and_is_as_its_status_says() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    let event = failure_reports(&pod, 137, 900, 5000);
    assert_eq!(
        store.note_exit(&pod.0, Some("c"), event.clone()),
        ExitChange::New
    );
    assert_eq!(
        store.note_exit(&pod.0, Some("c"), event.clone()),
        ExitChange::Nothing
    );
    // Its shim died with it: the runtime did not see how.
    let status = ExitRecord {
        reason: criscope_cri::subject::ExitReason::Unknown,
        ..pod.exit(("app", 0), 255, 900, 5000)
    };
    // crictl names a container by the beginning of its id.
    for (id, noted) in [
        ("c-prefix", ExitChange::Completed),
        ("c", ExitChange::Nothing),
        ("c", ExitChange::Nothing),
    ] {
        assert_eq!(store.note_exit(&pod.0, Some(id), status.clone()), noted);
    }
    let exits: Vec<_> = store.episodes().flat_map(|t| t.exits.clone()).collect();
    assert_eq!(exits, [status]);
}
