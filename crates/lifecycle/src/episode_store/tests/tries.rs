//! Retries, sandboxes that are replaced, and starts that are given up.

use super::*;

#[test]
fn retries_belong_to_the_same_start() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [
            pod.run(0, 2000).late(),
            pod.run(3000, 10).fails(Code::Unknown, "name is reserved"),
            pod.run(9000, 10).cancelled(),
            pod.run(20_000, 100),
            pod.pull("app:1", 21_000, 100).fails(Code::NotFound, "no"),
            pod.pull("side:1", 21_200, 100),
            pod.create(("side", 0), 21_400, 100),
            pod.start(("side", 0), 21_600, 100),
        ],
    );
    // One container is up, another's image is still missing.
    store.tick(at(60_000), &[]);
    assert!(store.episodes().all(Episode::is_open));
    apply(
        &mut store,
        [
            pod.pull("app:1", 61_000, 100),
            pod.create(("app", 0), 61_200, 100),
            pod.start(("app", 0), 61_400, 100),
        ],
    );
    store.tick(at(80_000), &[]);
    let episode = store.episodes().next().expect("an episode");
    assert_eq!(store.episodes().count(), 1);
    assert_eq!(episode.state, EpisodeState::Ok);
    assert_eq!(
        (episode.failures, episode.retries, episode.started),
        (4, 4, 2)
    );
}

#[test]
fn a_container_that_cannot_start_is_tried_again_in_the_same_start() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [
            pod.run(0, 100),
            pod.create(("app", 0), 200, 100),
            pod.start(("app", 0), 300, 100)
                .fails(Code::Unknown, "no such file"),
            pod.create(("app", 1), 10_000, 100),
            pod.start(("app", 1), 10_200, 100)
                .fails(Code::Unknown, "no such file"),
        ],
    );
    assert_eq!(store.episodes().count(), 1);
    store.tick(at(1_799_000), &[]);
    assert!(store.episodes().all(Episode::is_open));
    store.tick(at(1_800_000), &[]);
    let episode = store.episodes().next().expect("an episode");
    assert_eq!((episode.state, episode.retries), (EpisodeState::Failed, 1));
}

#[test]
fn a_sandbox_that_is_stopped_before_a_container_starts_has_failed() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [
            pod.run(0, 100),
            pod.stop(5000, 100),
            pod.attempt(1).run(6000, 100),
        ],
    );
    assert_eq!(
        lines(&store),
        [
            "start #0 Failed: RunPodSandbox",
            "stop #0 Ok: StopPodSandbox",
            "start #1 Open: RunPodSandbox",
        ]
    );
    // The end of the old sandbox does not affect the new one.
    apply(&mut store, [pod.remove(7000, 2000)]);
    assert!(store.episodes().last().expect("an episode").is_open());
}

/// After a reboot every container has run before. It belongs to the start of the new sandbox all the same.
#[test]
fn a_container_that_ran_in_an_earlier_sandbox_belongs_to_the_start_of_the_new_one() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    let new = pod.attempt(1);
    apply(
        &mut store,
        [
            pod.stop(60_000, 100),
            new.run(61_000, 200),
            new.create(("init", 4), 61_300, 10),
            new.start(("init", 4), 61_400, 10),
        ],
    );
    store.note_exit(&new.0, Some("i"), new.exit(("init", 4), 0, 61_400, 63_400));
    apply(
        &mut store,
        [
            new.pull("app:1", 63_500, 10),
            new.create(("app", 3), 63_600, 10),
            new.start(("app", 3), 63_700, 10),
            new.create(("side", 1), 63_800, 10),
            new.start(("side", 1), 63_900, 10),
        ],
    );
    let all = "start #1 Open: RunPodSandbox CreateContainer StartContainer PullImage CreateContainer StartContainer \
               CreateContainer StartContainer";
    assert_eq!(lines(&store)[2..], [all]);
    let shares = store.get(2).expect("the start").shares();
    assert_eq!(
        shares[EpisodePhase::InitContainer as usize],
        Duration::from_millis(1990)
    );
    store.tick(at(80_000), &[]);
    assert!(!store.episodes().any(Episode::is_open));
    // Its next run is a restart.
    apply(&mut store, [new.create(("app", 4), 90_000, 10)]);
    assert_eq!(lines(&store)[3..], ["restart app#4 Open: CreateContainer"]);
}

/// Without criscope before: the first thing it sees is the new sandbox after a reboot.
#[test]
fn a_reboot_is_the_first_thing_seen() {
    let (mut store, pod) = (store(), pod("a").attempt(7));
    apply(
        &mut store,
        [
            pod.run(0, 200),
            pod.create(("app", 12), 300, 10),
            pod.start(("app", 12), 400, 10),
        ],
    );
    store.tick(at(60_000), &[]);
    assert_eq!(
        lines(&store),
        ["start #7 Ok: RunPodSandbox CreateContainer StartContainer"]
    );
}

/// What a try left behind counts as a sandbox, so that the kubelet stops it and makes one with the next attempt.
#[test]
fn a_sandbox_that_is_never_made_is_one_start_whatever_its_attempt() {
    let (mut store, pod) = (store(), pod("a"));
    for n in 0..3 {
        let (tried, from) = (pod.attempt(n), u64::from(n) * 15_000);
        apply(
            &mut store,
            [
                tried
                    .run(from, 1000)
                    .fails(Code::Unknown, "cni: ipam refused"),
                tried.stop(from + 14_000, 10),
            ],
        );
        store.tick(at(from + 14_500), &[]);
    }
    apply(&mut store, start(&pod.attempt(3), 45_000));
    store.tick(at(60_000), &[]);
    let starts: Vec<_> = store.episodes().filter(|t| t.kind == Kind::Start).collect();
    let [only] = &starts[..] else {
        panic!("{:?}", lines(&store))
    };
    assert_eq!(
        (only.state, only.failures, only.attempt()),
        (EpisodeState::Ok, 3, 3)
    );
}

#[test]
fn a_pod_deleted_before_its_sandbox_was_made_does_not_stay_open() {
    // The kubelet breaks the call off and makes no other.
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, [pod.run(0, 5000).cancelled()]);
    store.tick(at(34_000), &[]);
    assert!(store.episodes().all(Episode::is_open));
    assert!(!store.episodes().any(Episode::is_failing));
    store.tick(at(36_000), &[]);
    assert_eq!(lines(&store), ["start #0 Cancelled: RunPodSandbox"]);
    // It was only the kubelet that restarted.
    apply(&mut store, start(&pod, 40_000));
    store.tick(at(60_000), &[]);
    assert_eq!(store.episodes().count(), 1);
    assert_eq!(
        store.get(0).map(|t| (t.state, t.closings)),
        Some((EpisodeState::Ok, 2))
    );
}

#[test]
fn a_pod_deleted_while_its_sandbox_failed_does_not_stay_open() {
    let (mut store, pod) = (store(), pod("a"));
    let fails = |from| pod.run(from, 1000).fails(Code::Unknown, "cni: no plugin");
    apply(&mut store, [fails(0), fails(14_000), fails(29_000)]);
    store.tick(at(89_000), &[]);
    assert_eq!(store.get(0).map(Episode::is_failing), Some(true));
    // The kubelet would have tried again.
    store.tick(at(91_000), &[]);
    assert_eq!(store.get(0).map(|t| t.state), Some(EpisodeState::Failed));
    // A call in flight is no silence.
    let mut other = super::store();
    apply(&mut other, [fails(0)]);
    let again = pod.run(14_000, 600_000).under_way(None);
    other.tick(at(600_000), &[again]);
    assert_eq!(other.get(0).map(Episode::is_failing), Some(true));
}

#[test]
fn a_pull_that_is_broken_off_by_a_deletion_is_no_failure() {
    let (mut store, pod) = (store(), pod("a"));
    apply(
        &mut store,
        [
            pod.run(0, 100),
            pod.pull("app:1", 200, 9000).cancelled(),
            pod.stop(9300, 100),
        ],
    );
    assert_eq!(store.get(0).map(|t| t.state), Some(EpisodeState::Cancelled));
    let mut failed = super::store();
    let refused = pod.pull("app:1", 200, 100).fails(Code::NotFound, "no");
    apply(&mut failed, [pod.run(0, 100), refused, pod.stop(9300, 100)]);
    assert_eq!(failed.get(0).map(|t| t.state), Some(EpisodeState::Failed));
}

/// The kubelet tries a pull every five minutes, for days. That is one start.
#[test]
fn an_image_that_arrives_after_days_ends_the_same_start() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, [pod.run(0, 100)]);
    let mut reported = Vec::new();
    for n in 0..24 {
        let from = 1000 + n * 300_000;
        let pull = pod
            .pull("app:1", from, 500)
            .fails(Code::NotFound, "no such tag");
        apply(&mut store, [pull]);
        assert_eq!(
            store
                .episodes()
                .map(Episode::is_failing)
                .collect::<Vec<_>>(),
            [true]
        );
        store.tick(at(from + 299_000), &[]);
        reported.extend(store.take_closed());
    }
    assert!(
        !store.get(0).expect("the start").pulled,
        "no pull succeeded"
    );
    assert_eq!(reported, [0; 3], "every half hour it is given up");
    let from = 8_000_000;
    apply(
        &mut store,
        [
            pod.pull("app:1", from, 500),
            pod.create(("app", 0), from + 600, 100),
            pod.start(("app", 0), from + 800, 200),
        ],
    );
    store.tick(at(from + 60_000), &[]);
    let starts: Vec<_> = store.episodes().map(|t| (t.kind, t.state)).collect();
    assert_eq!(starts, [(Kind::Start, EpisodeState::Ok)]);
}

/// The same for a container that is started again and whose image is gone.
#[test]
fn a_restart_that_is_given_up_goes_on_as_the_same() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    for n in 0..12 {
        let from = 60_000 + n * 300_000;
        let pull = pod
            .pull("app:2", from, 500)
            .fails(Code::NotFound, "no such tag");
        apply(&mut store, [pull]);
        store.tick(at(from + 299_000), &[]);
    }
    assert_eq!(store.episodes().count(), 2);
    // Another container's restart is not mixed up with it.
    apply(&mut store, [pod.create(("side", 1), 4_000_000, 10)]);
    assert_eq!(lines(&store)[2..], ["restart side#1 Open: CreateContainer"]);
}

#[test]
fn what_fails_is_shown_as_failing_and_its_time_goes_on() {
    let (mut store, pod) = (store(), pod("a"));
    let fails = pod.pull("app:1", 200, 100).fails(Code::NotFound, "no");
    apply(&mut store, [pod.run(0, 100), fails]);
    let shown = |store: &EpisodeStore, now| {
        let start = store.get(0).expect("the start");
        store.view(start, at(now))
    };
    let view = shown(&store, 90_000);
    assert_eq!(
        (view.state, view.duration_ms),
        (EpisodeState::Failing, 90_000.0)
    );
    assert_eq!(view.phases.iter().map(|p| p.ms).sum::<f64>(), 90_000.0);
    // Not complete, and nothing failed.
    let mut waits = super::store();
    apply(&mut waits, [pod.run(0, 100)]);
    let view = shown(&waits, 90_000);
    assert_eq!(
        (view.state, view.duration_ms),
        (EpisodeState::Open, 90_000.0)
    );
    // The silence after a complete start is no part of it.
    apply(
        &mut store,
        [
            pod.pull("app:1", 90_000, 100),
            pod.start(("app", 0), 90_200, 100),
        ],
    );
    let view = shown(&store, 95_000);
    assert_eq!(
        (view.state, view.duration_ms),
        (EpisodeState::Open, 90_300.0)
    );
}
