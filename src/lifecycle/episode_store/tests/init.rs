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
    let exit = |name: &str, attempt, from, to| Exit {
        container: name.into(),
        attempt,
        code: 0,
        reason: crate::cri::subject::ExitReason::Completed,
        ran: (to - from) * 1000,
        at: at(to),
    };
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
    assert_eq!(shares[EpisodePhase::InitContainer as usize], 6_000_000);
    assert_eq!(shares[EpisodePhase::OutsideCri as usize], 200_000);
    assert_eq!(shares.iter().sum::<u64>(), 7_800_000);
}

#[test]
fn what_waited_for_a_long_init_container_counts_from_there() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    let ended = |code| Exit {
        container: "app".into(),
        attempt: 0,
        code,
        reason: crate::cri::subject::ExitReason::Completed,
        ran: 59_000_000,
        at: at(59_900),
    };
    store.tick(at(20_000), &[]);
    let mut failed = store.clone();
    store.note_exit(&pod.0, Some("c"), ended(0));
    failed.note_exit(&pod.0, Some("c"), ended(1));
    let calls = [
        pod.pull("main:1", 60_000, 10),
        pod.create(("main", 0), 60_100, 10),
        pod.start(("main", 0), 60_200, 10),
    ];
    apply(&mut store, calls.clone());
    apply(&mut failed, calls);
    let episode = store.get(1).expect("what came later");
    assert_eq!((episode.began, episode.ended), (at(900), at(60_210)));
    let shares = episode.shares();
    assert_eq!(shares[EpisodePhase::InitContainer as usize], 59_000_000);
    assert_eq!(shares.iter().sum::<u64>(), 59_310_000);
    // No other container waits for a failed one.
    assert_eq!(failed.get(1).expect("what came later").began, at(60_000));
}
