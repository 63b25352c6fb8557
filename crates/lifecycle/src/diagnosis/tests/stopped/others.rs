//! Stops that are no end of the pod, or less than what was the matter with it.

use super::*;

#[test]
fn a_job_that_has_done_its_work() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    let exit = web.exit(("app", 0), 0, 1010, 59_000);
    calls.push(web.stop(60_000, 100));
    let expected = "container app ended with exit code 0 after 58.0 s; the start took 1.01 s";
    assert_eq!(told(&web, calls.clone(), [exit.clone()]), expected);
    // The kubelet had not yet seen it.
    calls[3] = web.kill(("app", 0), 60_000, 10).grace(30);
    calls.push(web.stop(60_020, 100));
    assert_eq!(told(&web, calls.clone(), [exit]), expected);
    // It ended then, asked to.
    let exit = web.exit(("app", 0), 0, 1010, 60_010);
    assert!(is_told(&told(&web, calls, [exit])));
}

/// The kubelet stops sidecars once the other containers have ended.
#[test]
fn a_job_with_a_sidecar() {
    let web = pod("web");
    let calls = |stop: u64, grace| {
        let mut calls = running(&web, &["mesh", "app"]);
        calls.push(web.kill(("mesh", 0), stop, 40).grace(grace));
        calls.push(web.stop(stop + 50, 100));
        calls
    };
    let exits = [
        web.exit(("app", 0), 0, 1020, 59_000),
        web.exit(("mesh", 0), 143, 1010, 60_040),
    ];
    let said = told(&web, calls(60_000, 30), exits.clone());
    assert!(
        said.starts_with("container app ended with exit code 0"),
        "{said}"
    );
    // It was stopped long after that: no sidecar.
    let late = "; app had ended with exit code 0; gone after 150 ms";
    let [app, _] = exits.clone();
    let earlier = web.exit(("app", 0), 0, 1020, 9000);
    let mesh = web.exit(("mesh", 0), 143, 1010, 60_040);
    let said = told(&web, calls(60_000, 30), [earlier, mesh.clone()]);
    assert!(is_told(&said), "{said}");
    assert!(said.ends_with(late), "{said}");
    let said = told(&web, calls(60_000, 2), [app, mesh]);
    assert!(said.contains("an eviction, "), "{said}");
}

#[test]
fn a_pod_that_was_stopped_in_its_init_container() {
    let web = pod("web");
    let mut calls = running(&web, &["copy", "wait"]);
    calls.extend([
        web.kill(("wait", 0), 60_000, 100).grace(30),
        web.stop(60_110, 90),
    ]);
    let exits = [
        web.exit(("copy", 0), 0, 1005, 1010),
        web.exit(("wait", 0), 143, 1020, 60_100),
    ];
    assert_eq!(
        told(&web, calls, exits),
        "the pod was stopped by the kubelet 11 s ago: 100 ms until wait ended with exit code 143 (SIGTERM); gone after 200 ms"
    );
}

/// A kill by a probe with a grace period of its own, after which the container is started again.
#[test]
fn a_kill_is_no_stop_of_the_pod() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.extend([
        web.kill(("app", 0), 50_000, 100).grace(1),
        web.create(("app", 1), 50_300, 10).pod_grace(30),
        web.start(("app", 1), 50_320, 10),
    ]);
    let exits = [web.exit(("app", 0), 143, 1010, 50_100)];
    let said = told(&web, calls.clone(), exits.clone());
    assert!(
        said.starts_with("the kubelet stopped app for an HTTP"),
        "{said}"
    );
    // Nor does it count once the pod is stopped.
    calls.extend([
        web.kill(("app", 1), 60_000, 100).grace(30),
        web.stop(60_110, 90),
    ]);
    let said = told(&web, calls, exits);
    assert!(
        said.starts_with("the pod was stopped by the kubelet 11 s ago: 100 ms until app ended;"),
        "{said}"
    );
}

/// One of two containers is not started again, with `restartPolicy: Never`; the other ends, and the pod with it.
#[test]
fn the_kill_of_a_container_before_the_end_of_a_pod_is_not_compared() {
    let web = pod("web");
    let mut calls = running(&web, &["app", "log"]);
    calls.extend([
        web.kill(("app", 0), 60_000, 100).grace(1),
        web.stop(64_000, 90),
    ]);
    let exits = [web.exit(("log", 0), 1, 1020, 63_000)];
    let said = told(&web, calls, exits);
    assert!(is_told(&said) && !said.contains("grace period"), "{said}");
}

#[test]
fn a_container_that_was_stopped_is_no_stop_of_the_pod() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.push(web.kill(("app", 0), 50_000, 100).grace(1));
    let said = told(&web, calls.clone(), []);
    assert!(said.contains("the pod stays"), "{said}");
    calls.push(web.stop(50_110, 90));
    assert!(is_told(&told(&web, calls, [])));
}

#[test]
fn a_sandbox_that_was_replaced() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.extend([
        web.kill(("app", 0), 60_000, 100).grace(1),
        web.stop(60_110, 90),
    ]);
    let again = web.attempt(1);
    calls.extend(chain([again.run(60_300, 500)], up(&again, 60_900)));
    let said = told(&web, calls.clone(), []);
    assert!(said.starts_with("the sandbox was replaced"), "{said}");
    // The new one is stopped, too.
    calls.extend([
        again.kill(("app", 0), 65_000, 100).grace(30),
        again.stop(65_110, 90),
    ]);
    assert!(is_told(&told(&web, calls, [])));
}

/// It has the uid and the attempt of its life before.
#[test]
fn a_static_pod_that_comes_back() {
    let web = pod("web");
    let mut calls = running(&web, &["app"]);
    calls.extend([
        web.kill(("app", 0), 40_000, 100).grace(30),
        web.stop(40_110, 90),
    ]);
    assert!(is_told(&told(&web, calls.clone(), [])));
    calls.extend(chain([web.run(50_000, 500)], up(&web, 50_600)));
    let said = told(&web, calls, []);
    assert!(said.starts_with("container app up after"), "{said}");
}

#[test]
fn what_was_the_matter_matters_more() {
    let web = pod("web");
    let stop = |run: u32| {
        let kill = web.kill(("app", run), 60_000, 100).grace(1);
        [kill, web.stop(60_110, 90)]
    };
    let mut calls = running(&web, &["app"]);
    let fine = calls.iter().cloned().chain(stop(0));
    assert!(is_told(&told(&web, fine, [])));
    for run in 1..4 {
        let from = 10_000 * u64::from(run);
        calls.push(web.create(("app", run), from, 10));
        calls.push(web.start(("app", run), from + 10, 10));
    }
    calls.extend(stop(3));
    let exits = (0..3).map(|run| {
        let from = 10_020 * u64::from(run) + 20;
        web.exit(("app", run), 1, from, from + 5000)
    });
    let said = told(&web, calls, exits);
    assert!(said.starts_with("container app ke"), "{said}");

    let mut calls = running(&web, &["app"]);
    let failed = stop(0).map(|call| call.fails(Code::Unknown, "no space left on device"));
    calls.extend(failed);
    let said = told(&web, calls, []);
    assert!(said.contains("no space left"), "{said}");
}
