//! Exec probes whose failure led to a kill, although a preStop hook came between, or another probe runs the same command.

use super::*;

/// A container that is up, with a probe every 2 s; that of these numbers fails. The last one ends at 20.05 s.
fn probed(web: &ScriptedPod, fails: impl Fn(u64) -> bool) -> EpisodeStore {
    let mut store = store(chain([web.run(0, 500)], up(web, 600)));
    store.tick(at(15_000), &[]);
    for n in 1..=10 {
        let probe = web.probe(("app", 0), 2000 * n, 50);
        store.note_probe(&probe.exits(i32::from(fails(n))));
    }
    store
}

fn take(store: &mut EpisodeStore, mut call: EpisodeCall) {
    store.observe(&mut call);
    store.apply(call);
}

/// The container is stopped and made again, after these calls.
fn restarted(
    mut store: EpisodeStore,
    web: &ScriptedPod,
    hook: Option<EpisodeCall>,
    stop: u64,
) -> String {
    if let Some(hook) = hook {
        take(&mut store, hook);
    }
    take(&mut store, web.kill(("app", 0), stop, 100).grace(30));
    take(&mut store, web.create(("app", 1), stop + 150, 50));
    take(&mut store, web.start(("app", 1), stop + 210, 50));
    pod_headline(&episodes(&store), at(stop + 5000))
}

const PROBE: &str =
    "the kubelet killed app after a failing liveness or startup probe (exec, exit code 1, ";

#[test]
fn a_pre_stop_command_comes_between_the_probe_and_the_stop() {
    let web = pod("web");
    let hook = web.hook(("app", 0), 20_100, 9000);
    let said = restarted(probed(&web, |n| n > 7), &web, Some(hook), 29_110);
    assert_eq!(
        said,
        format!(
            "{PROBE}3 times in a row): 9.00 s in preStop, then 100 ms until app ended; started again, 9.27 s in all"
        )
    );
}

/// Two probes of the same command in another container change nothing.
#[test]
fn the_probe_of_another_container_is_no_reason() {
    let web = pod("web");
    let mut store = probed(&web, |_| false);
    for n in 5..=10 {
        store.note_probe(&web.probe(("side", 0), 2000 * n, 50).exits(1));
    }
    let hook = web.hook(("app", 0), 20_100, 3000);
    let said = restarted(store, &web, Some(hook), 23_110);
    assert!(!said.contains("exec"), "{said}");
}

/// While it runs nothing else tells why.
#[test]
fn a_pre_stop_command_that_runs_says_what_it_runs_for() {
    let web = pod("web");
    let mut store = probed(&web, |n| n > 7);
    let hook = web.hook(("app", 0), 20_100, 3000).under_way(None);
    take(&mut store, hook);
    assert_eq!(
        pod_headline(&episodes(&store), at(23_100)),
        "the kubelet kills app after a failing liveness or startup probe (exec, exit code 1, 3 times in a row): \
         preStop of app has run for 3.00 s"
    );
    // At the end of the pod no probe need have failed.
    let mut store = probed(&web, |_| false);
    take(
        &mut store,
        web.hook(("app", 0), 20_100, 3000).under_way(None),
    );
    assert_eq!(
        pod_headline(&episodes(&store), at(23_100)),
        "preStop of app has run for 3.00 s"
    );
}

/// The kubelet waits for it as long as the grace period, and stops the container beside it.
#[test]
fn a_pre_stop_command_that_outlasts_the_grace_period() {
    let web = pod("web");
    let mut store = probed(&web, |n| n > 7);
    let hook = web.hook(("app", 0), 20_100, 32_000);
    let stop = web.kill(("app", 0), 50_110, 2000).grace(2);
    // The stop ends first.
    take(&mut store, stop);
    take(&mut store, hook.fails(Code::Unknown, "killed"));
    take(&mut store, web.create(("app", 1), 52_200, 50));
    take(&mut store, web.start(("app", 1), 52_260, 50));
    let said = pod_headline(&episodes(&store), at(55_000));
    assert!(said.starts_with(PROBE), "{said}");
}

/// A startup probe that fails at once: the preStop hook begins when a postStart hook would have.
#[test]
fn a_startup_probe_that_fails_at_once() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    store.note_probe(&web.probe(("app", 0), 1200, 50).exits(1));
    let hook = web.hook(("app", 0), 1300, 4000);
    let said = restarted(store, &web, Some(hook), 5310);
    assert!(
        said.starts_with(
            "the kubelet killed app after a failing liveness or startup probe (exec, exit code 1): 4.00 s in preStop"
        ),
        "{said}"
    );
}

/// `sleep` and `httpGet` are no calls. The probe was due again, and did not run.
#[test]
fn a_pre_stop_hook_that_is_no_command() {
    let web = pod("web");
    let said = restarted(probed(&web, |n| n > 7), &web, None, 30_000);
    assert!(said.starts_with(PROBE), "{said}");
    // It was not due yet.
    let said = restarted(probed(&web, |n| n > 7), &web, None, 22_600);
    assert_eq!(
        said,
        "the kubelet stopped app for an exec probe (exit code 1, 3 times in a row, the last 2.55 s before), \
         an HTTP, TCP or gRPC probe, or a change of the pod, unknown which: 100 ms until app ended; started again, 260 ms in all"
    );
}

#[test]
fn a_pod_that_is_deleted_is_not_killed_for_a_probe() {
    let web = pod("web");
    let mut store = probed(&web, |n| n == 10);
    let stop = web.kill(("app", 0), 40_000, 5000).grace(30);
    let mut under_way = stop.clone().under_way(None);
    store.observe(&mut under_way);
    store.apply(under_way);
    let said = pod_headline(&episodes(&store), at(45_000));
    assert!(said.starts_with("StopContainer of app has taken"), "{said}");
}

/// The readiness probe goes on.
#[test]
fn a_readiness_probe_of_the_same_command_leaves_it_open() {
    let web = pod("web");
    let mut store = store(chain([web.run(0, 500)], up(&web, 600)));
    store.tick(at(15_000), &[]);
    for n in 1..=10 {
        for of in 0..2 {
            let probe = web.probe(("app", 0), 2000 * n + 10 * of, 50);
            store.note_probe(&probe.exits(i32::from(n > 7)));
        }
    }
    let hook = web.hook(("app", 0), 20_100, 9000);
    store.note_probe(&web.probe(("app", 0), 22_000, 50).exits(1));
    let said = restarted(store, &web, Some(hook), 29_110);
    assert!(
        said.starts_with(
            "the kubelet stopped app for an exec probe (exit code 1, 3 times in a row, the last 40.0 ms before), an HTTP"
        ),
        "{said}"
    );
}
