//! Init containers.

use super::*;

#[test]
fn a_container_after_an_init_container_that_ran_for_long_is_a_restart() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(
        &mut store,
        [
            pod.pull("main:1", 60_000, 10),
            pod.create(("main", 0), 60_100, 10),
            pod.start(("main", 0), 60_200, 10),
        ],
    );
    assert_eq!(
        lines(&store)[1..],
        ["restart main#0 Open: PullImage CreateContainer StartContainer"]
    );
    let (start, restart) = (
        store.get(0).expect("0").ids(),
        store.get(1).expect("1").ids(),
    );
    assert_eq!(start.trace_id, restart.trace_id);
    assert_ne!(start.root, restart.root);
}

#[test]
fn the_time_of_an_init_container_is_told_apart() {
    let (mut store, pod) = (store(), pod("a"));
    let calls = [
        pod.run(0, 200),
        pod.create(("init", 0), 300, 100),
        pod.start(("init", 0), 400, 100),
    ];
    apply(&mut store, calls);
    let exit = |name: &str, attempt, from, to| pod.exit((name, attempt), 0, from, to);
    // It began to run before StartContainer had returned.
    store.note_exit(&pod.0, Some("i"), exit("init", 0, 450, 6500));
    let calls = [
        pod.pull("app:1", 6600, 1000),
        pod.create(("app", 0), 7600, 100),
        pod.start(("app", 0), 7700, 100),
    ];
    apply(&mut store, calls);
    // No call waited for this one.
    store.note_exit(&pod.0, Some("m"), exit("app", 0, 7750, 7790));
    store.tick(at(60_000), &[]);
    let episode = store.episodes().next().expect("an episode");
    let shares = episode.shares();
    assert_eq!(
        shares[EpisodePhase::InitContainer as usize],
        Duration::from_secs(6)
    );
    assert_eq!(
        shares[EpisodePhase::OutsideCri as usize],
        Duration::from_millis(200)
    );
    assert_eq!(shares.iter().sum::<Duration>(), Duration::from_millis(7800));
}

/// The start was closed, since an init container cannot be told from another; it continues.
#[test]
fn a_start_continues_after_a_long_init_container() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    assert_eq!(store.take_closed(), [0]);
    let mut failed = store.clone();
    store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 0, 900, 59_900));
    failed.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 1, 900, 59_900));
    let calls = [
        pod.pull("main:1", 60_000, 10),
        pod.create(("main", 0), 60_100, 10),
        pod.start(("main", 0), 60_200, 10),
    ];
    apply(&mut store, calls.clone());
    apply(&mut failed, calls);
    assert_eq!(store.episodes().count(), 1);
    let episode = store.get(0).expect("the start");
    assert_eq!((episode.began, episode.ended), (at(0), at(60_210)));
    let shares = episode.shares();
    assert_eq!(
        shares[EpisodePhase::InitContainer as usize],
        Duration::from_secs(59)
    );
    assert_eq!(
        shares.iter().sum::<Duration>(),
        Duration::from_millis(60_210)
    );
    store.tick(at(80_000), &[]);
    assert_eq!(store.take_closed(), [0]);
    // No other container waits for a failed one.
    assert_eq!(failed.get(1).expect("what came later").began, at(60_000));
}

/// An ephemeral container is created while the others run.
#[test]
fn a_container_added_to_a_running_pod_does_not_continue_its_start() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(
        &mut store,
        [
            pod.pull("debug:1", 60_000, 10),
            pod.create(("debugger", 0), 60_100, 10),
        ],
    );
    assert_eq!(
        lines(&store)[1..],
        ["restart debugger#0 Open: PullImage CreateContainer"]
    );
}

/// A container that completes and is started again, with its image pulled each time, is no init container.
#[test]
fn a_container_that_completes_again_and_again_is_a_restart_each() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    store.note_exit(&pod.0, Some("c"), pod.exit(("app", 0), 0, 900, 59_900));
    apply(
        &mut store,
        [
            pod.pull("app:1", 60_000, 10),
            pod.create(("app", 1), 60_100, 10),
            pod.start(("app", 1), 60_200, 10),
        ],
    );
    assert_eq!(
        lines(&store)[1..],
        ["restart app#1 Open: PullImage CreateContainer StartContainer"]
    );
}

/// Each wait is that of the container which ran in it, however long the ones before took.
#[test]
fn each_wait_is_blamed_on_its_own_container() {
    for (first, second) in [
        (2000, 40_000),
        (40_000, 2000),
        (40_000, 60_000),
        (1000, 3000),
    ] {
        let (mut store, pod) = (store(), pod("a"));
        apply(&mut store, [pod.run(0, 100)]);
        let mut now = 200;
        for (name, ran) in [("one", first), ("two", second)] {
            apply(
                &mut store,
                [
                    pod.create((name, 0), now, 10),
                    pod.start((name, 0), now + 20, 10),
                ],
            );
            store.tick(at(now + ran / 2), &[]);
            store.tick(at(now + ran), &[]);
            store.note_exit(
                &pod.0,
                Some(name),
                pod.exit((name, 0), 0, now + 30, now + 30 + ran),
            );
            now += ran + 1000;
        }
        apply(
            &mut store,
            [
                pod.create(("app", 0), now, 10),
                pod.start(("app", 0), now + 20, 10),
            ],
        );
        assert_eq!(store.episodes().count(), 1);
        let start = store.get(0).expect("the start");
        let waits: Vec<_> = start
            .waits()
            .iter()
            .map(|w| (w.container.to_owned(), w.took))
            .collect();
        let expected = [
            ("one".to_owned(), Duration::from_millis(first)),
            ("two".to_owned(), Duration::from_millis(second)),
        ];
        assert_eq!(waits, expected);
    }
}

/// What was an init container in one pod is taken for one in the next of its namespace: that start is not over yet.
#[test]
fn a_known_init_container_keeps_the_start_open() {
    let mut store = store();
    let migrates = |pod: &ScriptedPod, from: u64| {
        [
            pod.run(from, 100),
            pod.create(("migrate", 0), from + 200, 10),
            pod.start(("migrate", 0), from + 220, 10),
        ]
    };
    let first = pod("a");
    apply(&mut store, migrates(&first, 0));
    store.tick(at(30_000), &[]);
    assert_eq!(store.take_closed(), [0], "nothing is known yet");
    store.note_exit(
        &first.0,
        Some("m"),
        first.exit(("migrate", 0), 0, 230, 40_000),
    );
    apply(
        &mut store,
        [
            first.create(("app", 0), 40_100, 10),
            first.start(("app", 0), 40_200, 10),
        ],
    );
    store.tick(at(60_000), &[]);
    assert_eq!(store.take_closed(), [0]);

    let second = pod("b");
    apply(&mut store, migrates(&second, 100_000));
    store.tick(at(140_000), &[]);
    let start = store.get(1).expect("the second start");
    let awaited = start.awaited(at(140_000)).expect("more is awaited");
    assert_eq!((start.state, awaited.last), (EpisodeState::Open, "migrate"));
    assert_eq!(store.view(start, at(140_000)).duration_ms, 40_000.0);
    // A guess does not last for ever.
    let mut later = store.clone();
    later.tick(at(401_000), &[]);
    assert_eq!(later.take_closed(), [1]);
    store.note_exit(
        &second.0,
        Some("n"),
        second.exit(("migrate", 0), 0, 100_230, 150_000),
    );
    apply(
        &mut store,
        [
            second.create(("app", 0), 150_100, 10),
            second.start(("app", 0), 150_200, 10),
        ],
    );
    store.tick(at(161_000), &[]);
    assert_eq!(store.take_closed(), [1]);

    // In this pod it goes on while the next is created: a sidecar, or no init container at all.
    let third = pod("c");
    apply(&mut store, migrates(&third, 200_000));
    apply(
        &mut store,
        [
            third.create(("app", 0), 200_300, 10),
            third.start(("app", 0), 200_400, 10),
        ],
    );
    store.tick(at(211_000), &[]);
    assert_eq!(store.take_closed(), [2]);
    let fourth = pod("d");
    apply(&mut store, migrates(&fourth, 300_000));
    store.tick(at(311_000), &[]);
    assert_eq!(store.take_closed(), [3], "what was learned is corrected");
}

/// The pod is deleted meanwhile: it was never up, and nothing has failed.
#[test]
fn a_pod_stopped_while_an_init_container_runs_was_never_up() {
    let (mut store, pod) = (store(), pod("a"));
    store.init_containers.learn(&pod.0, "migrate");
    apply(
        &mut store,
        [
            pod.run(0, 100),
            pod.create(("migrate", 0), 200, 10),
            pod.start(("migrate", 0), 220, 10),
            pod.kill(("migrate", 0), 5000, 500),
            pod.stop(5600, 100),
        ],
    );
    assert_eq!(store.get(0).map(|t| t.state), Some(EpisodeState::Cancelled));
}

fn names(names: &[&str]) -> Arc<[Box<str>]> {
    names.iter().map(|name| Box::from(*name)).collect()
}

/// The kubelet's checkpoint has all containers but ordinary init containers.
#[test]
fn a_start_is_not_over_while_a_container_of_the_pod_is_missing() {
    let (mut store, pod) = (store(), pod("a"));
    assert_eq!(store.take_pods_to_read(), []);
    apply(&mut store, [pod.run(0, 100)]);
    assert_eq!(store.take_pods_to_read(), [], "nothing was started yet");
    apply(
        &mut store,
        [
            pod.create(("init", 0), 200, 10),
            pod.start(("init", 0), 220, 10),
        ],
    );
    assert_eq!(store.take_pods_to_read(), [Arc::clone(&pod.0)]);
    assert_eq!(store.take_pods_to_read(), [], "once");
    store.expect(&pod.0, names(&["app", "proxy"]));
    store.tick(at(1_000_000), &[]);
    let awaited = |store: &EpisodeStore| {
        let start = store.get(0).expect("the start");
        let awaited = start.awaited(at(1_000_000))?;
        Some((awaited.is_init, awaited.missing.join(" ")))
    };
    assert_eq!(awaited(&store), Some((true, "app proxy".to_owned())));
    assert_eq!(store.take_closed(), [0; 0]);
    // A sidecar whose startup probe takes its time.
    let proxy = [
        pod.create(("proxy", 0), 1_000_000, 10),
        pod.start(("proxy", 0), 1_000_020, 10),
    ];
    apply(&mut store, proxy);
    assert_eq!(awaited(&store), Some((false, "app".to_owned())));
    store.tick(at(1_100_000), &[]);
    assert_eq!(store.take_closed(), [0; 0]);
    apply(
        &mut store,
        [
            pod.create(("app", 0), 1_100_000, 10),
            pod.start(("app", 0), 1_100_020, 10),
        ],
    );
    assert_eq!(awaited(&store), None);
    store.tick(at(1_111_000), &[]);
    assert_eq!(store.take_closed(), [0]);
    assert_eq!(store.episodes().count(), 1);
}

/// With `restartPolicy: OnFailure` the kubelet starts only what has not succeeded in an earlier sandbox.
#[test]
fn a_replaced_sandbox_may_lack_containers_that_are_done() {
    let (mut store, pod) = (store(), pod("a").attempt(1));
    apply(
        &mut store,
        [
            pod.run(0, 100),
            pod.create(("app", 1), 200, 10),
            pod.start(("app", 1), 220, 10),
        ],
    );
    store.expect(&pod.0, names(&["app", "job"]));
    store.tick(at(11_000), &[]);
    assert_eq!(store.take_closed(), [0]);
}
