//! Hooks of containers: postStart and preStop.

use super::*;

#[test]
fn a_slow_post_start_hook() {
    let web = pod("web");
    let hook = web.hook(("app", 0), 810, 12_000);
    let calls: Vec<_> = chain([web.run(0, 500)], up(&web, 600));
    let running = hook.clone().under_way(None);
    let so_far = calls.clone().into_iter().chain([running]);
    assert_eq!(says(so_far, 12_810), "postStart of app has run for 12.0 s");
    let calls = calls.into_iter().chain([hook]);
    assert_eq!(
        says(calls, 60_000),
        "postStart of app took 12.0 s of 12.8 s"
    );
}

#[test]
fn a_hook_that_outlasts_the_grace_period() {
    let web = pod("web");
    let calls: Vec<_> = chain([web.run(0, 500)], up(&web, 600));
    let stop = [
        web.kill(("app", 0), 90_000, 2000).grace(2),
        web.hook(("app", 0), 60_000, 32_010)
            .fails(Code::Unknown, "killed"),
        web.stop(92_020, 100),
    ];
    let mut store = store(calls.into_iter().chain(stop).collect::<Vec<_>>());
    store.tick(at(120_000), &[]);
    let stop = store.episodes().last().expect("a stop");
    assert_eq!(
        headline(stop, at(120_000)),
        "stop: 30.0 s in preStop, which had not ended, then 2.00 s until app ended, SIGKILL after its grace period of 2 s; gone after 32.1 s"
    );
}
