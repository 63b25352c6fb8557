//! Stops, and what is no part of them.

use super::*;

#[test]
fn a_kill_by_a_probe_is_part_of_the_restart() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(
        &mut store,
        [
            pod.kill(("app", 0), 60_000, 30_000),
            pod.create(("app", 1), 90_100, 100),
            pod.start(("app", 1), 90_300, 100),
        ],
    );
    assert_eq!(
        lines(&store)[1..],
        ["restart app#1 Open: StopContainer CreateContainer StartContainer"]
    );
    let restart = store.episodes().last().expect("an episode");
    assert_eq!(restart.duration(), Duration::from_millis(30_400));
}

/// What the call did besides is lost with it.
#[test]
fn the_time_of_a_sandbox_without_network_is_the_networks() {
    let (mut store, pod) = (store(), pod("a"));
    let error = "failed to setup network for sandbox \"0a\": plugin type=\"bridge\" failed (add): no address";
    let broken = pod.run(0, 3000).fails(Code::Unknown, error);
    apply(&mut store, [broken, pod.run(15_000, 500)]);
    let shares = store.get(0).expect("the start").shares();
    let of = |phase: EpisodePhase| shares[phase as usize];
    assert_eq!(of(EpisodePhase::Network), Duration::from_secs(3));
    assert_eq!(of(EpisodePhase::Sandbox), Duration::from_millis(500));
}

#[test]
fn a_stop_is_over_when_the_sandbox_is_stopped_and_the_sweep_is_no_part_of_it() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(&mut store, stop(&pod, 60_000));
    assert_eq!(store.take_closed(), [0, 1]);
    store.tick(at(72_000), &[]);
    apply(&mut store, [pod.stop(120_000, 5), pod.remove(120_100, 5)]);
    assert_eq!(
        lines(&store)[1..],
        ["stop #0 Ok: StopContainer StopPodSandbox"]
    );
}

#[test]
fn a_stop_that_fails_stays_open() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [
            pod.stop(0, 100).fails(Code::Unknown, "cni"),
            pod.stop(60_000, 100).fails(Code::Unknown, "cni"),
        ],
    );
    store.tick(at(100_000), &[]);
    assert_eq!(
        lines(&store),
        ["stop #0 Open: StopPodSandbox StopPodSandbox"]
    );
    apply(&mut store, [pod.stop(120_000, 100)]);
    store.tick(at(140_000), &[]);
    assert!(!store.episodes().any(Episode::is_open));
}

#[test]
fn what_is_gone_already_is_no_failure() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [pod.stop(0, 2000).fails(Code::NotFound, "not found")],
    );
    assert_eq!(store.episodes().map(|t| t.failures).sum::<u32>(), 0);
}

#[test]
fn the_clean_up_minutes_later_is_no_stop() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(
        &mut store,
        [pod.kill(("app", 0), 60_000, 100), pod.stop(60_100, 100)],
    );
    // The kubelet stops it again, and removes it.
    apply(
        &mut store,
        [
            pod.stop(65_500, 40),
            pod.sweep(("app", 0), 66_000, 50),
            pod.remove(66_100, 50),
        ],
    );
    store.tick(at(90_000), &[]);
    let stop = store.episodes().last().expect("an episode");
    assert_eq!(
        (stop.duration(), stop.calls.len()),
        (Duration::from_millis(200), 2)
    );
    assert_eq!(store.episodes().count(), 2);
}

/// A removal that hangs or fails is shown, and is no second stop of the pod.
#[test]
fn a_clean_up_with_difficulties_is_told_apart() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    apply(&mut store, [pod.stop(60_000, 100)]);
    apply(
        &mut store,
        [
            pod.sweep(("app", 0), 61_000, 50)
                .fails(Code::Unknown, "device or resource busy"),
            pod.remove(62_000, 90_000),
        ],
    );
    assert_eq!(
        lines(&store)[1..],
        [
            "stop #0 Ok: StopPodSandbox",
            "stop #0 Open: RemoveContainer RemovePodSandbox"
        ]
    );
    let cleans: Vec<_> = store.episodes().map(|t| t.only_cleans).collect();
    assert_eq!(cleans, [false, false, true]);
    // The sandbox is gone, and the container with it.
    store.tick(at(200_000), &[]);
    assert_eq!(
        store.episodes().last().map(|t| t.state),
        Some(EpisodeState::Ok)
    );
}

/// The kubelet removes dead containers of pods that run.
#[test]
fn a_container_that_cannot_be_removed_stops_no_pod() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    let busy = pod.sweep(("app", 0), 61_000, 5000);
    let busy = busy.fails(Code::Unknown, "device or resource busy");
    assert_eq!(store.apply(busy), CallEffect::Nothing);
}

#[test]
fn a_stopped_sandbox_makes_good_that_a_container_could_not_be_stopped() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [
            pod.kill(("app", 0), 0, 100).fails(Code::Unknown, "no"),
            pod.stop(10_000, 100),
        ],
    );
    assert_eq!(lines(&store), ["stop #0 Ok: StopContainer StopPodSandbox"]);
}

/// A job: its container has ended by itself, and only the sandbox is stopped.
#[test]
fn the_end_of_a_job_is_a_short_stop() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 0, 900, 5000));
    apply(&mut store, [pod.stop(6000, 100), pod.remove(66_000, 40)]);
    let states: Vec<_> = store.episodes().map(|t| (t.kind, t.state)).collect();
    assert_eq!(
        states,
        [
            (Kind::Start, EpisodeState::Ok),
            (Kind::Stop, EpisodeState::Ok)
        ]
    );
    assert!(
        store
            .episodes()
            .flat_map(|t| &t.exits)
            .all(|exit| !exit.stop_requested)
    );
}
