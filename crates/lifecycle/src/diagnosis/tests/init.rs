//! Starts that wait for init containers.

use super::*;
use criscope_cri::subject::ExitReason;

/// A container that exited at this time, in milliseconds.
fn done(container: &str, ran: u64, ended: u64) -> ExitRecord {
    ExitRecord {
        container: container.into(),
        attempt: 0,
        code: 0,
        reason: ExitReason::Completed,
        ran: Duration::from_millis(ran),
        at: at(ended),
        stop_requested: false,
        oom_kills: 0,
        oom_at: None,
        evicted: None,
        node_restarted: None,
        by_event: false,
    }
}

/// As [`says`], for a pod with init containers that exit at these times after the calls before them.
fn says_with(
    parts: Vec<(Vec<EpisodeCall>, Option<ExitRecord>)>,
    pod: &ScriptedPod,
    now: u64,
) -> String {
    let mut store = store([]);
    for (calls, exit) in parts {
        for call in calls {
            store.tick(call.began_at(), &[]);
            store.apply(call);
        }
        if let Some(exit) = exit {
            let id = format!("id of {}", exit.container);
            store.note_exit(&pod.0, Some(&id), exit);
        }
    }
    store.tick(at(now), &[]);
    pod_headline(&episodes(&store), at(now))
}

#[test]
fn an_init_container_that_takes_its_time() {
    let pod = pod("web");
    let init = |name: &str, from| {
        [
            pod.create((name, 0), from, 100),
            pod.start((name, 0), from + 100, 100),
        ]
    };
    let begun = chain([pod.run(0, 800)], init("migrate", 900));
    // All in one start.
    let parts = vec![
        (begun.clone(), Some(done("migrate", 6000, 7100))),
        (up(&pod, 7900).into(), None),
    ];
    assert_eq!(
        says_with(parts, &pod, 60_000),
        "init container migrate ran for 6.00 s of 8.10 s"
    );
    let parts = vec![
        (begun.clone(), Some(done("migrate", 2000, 3100))),
        (init("wait", 3200).into(), Some(done("wait", 5000, 8400))),
        (up(&pod, 8800).into(), None),
    ];
    assert_eq!(
        says_with(parts, &pod, 60_000),
        "2 init containers ran for 7.00 s of 9.00 s, 5.00 s of it wait"
    );
    // So long that the start was closed before.
    let parts = vec![
        (begun.clone(), Some(done("migrate", 40_000, 41_100))),
        (up(&pod, 41_300).into(), None),
    ];
    assert_eq!(
        says_with(parts, &pod, 90_000),
        "init container migrate ran for 40.0 s of 41.5 s"
    );
    // No call waits for a container that exits again and again.
    let again = [
        pod.pull("app:1", 41_200, 50),
        pod.create(("migrate", 1), 41_300, 100),
        pod.start(("migrate", 1), 41_400, 100),
    ];
    let parts = vec![
        (begun, Some(done("migrate", 40_000, 41_100))),
        (again.into(), None),
    ];
    assert_eq!(
        says_with(parts, &pod, 90_000),
        "container migrate ended with exit code 0 after 40.0 s (48 s ago); up again 400 ms later"
    );
}
