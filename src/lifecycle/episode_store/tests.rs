//! How calls form episodes, one rule at a time.

mod init;
mod many;

use super::*;
use crate::cri::status::Code;
use crate::lifecycle::script::{Pod, at, pod};
use crate::lifecycle::timeline::EpisodePhase;

const LIMITS: Limits = Limits {
    episodes: 512,
    quiet: 10_000_000,
    give_up: 1_800_000_000,
};

fn store() -> EpisodeStore {
    EpisodeStore::new(LIMITS, Usual::default())
}

/// Each episode as a line: kind, container and attempt, state, methods.
fn lines(store: &EpisodeStore) -> Vec<String> {
    let line = |episode: &Episode| {
        let container = episode.container.as_ref().map_or("", |c| &c.name);
        let calls: Vec<_> = episode.calls.iter().map(|c| c.method.name()).collect();
        format!(
            "{} {container}#{} {:?}: {}",
            episode.kind.name(),
            episode.attempt(),
            episode.state,
            calls.join(" ")
        )
    };
    store.episodes().map(line).collect()
}

fn apply(store: &mut EpisodeStore, calls: impl IntoIterator<Item = EpisodeCall>) {
    for call in calls {
        store.apply(call);
    }
}

/// A smooth start that takes 900 ms, beginning at `from`.
fn start(pod: &Pod, from: u64) -> [EpisodeCall; 4] {
    [
        pod.run(from, 200),
        pod.pull("app:1", from + 300, 300),
        pod.create(("app", 0), from + 600, 100),
        pod.start(("app", 0), from + 700, 200),
    ]
}

fn stop(pod: &Pod, from: u64) -> [EpisodeCall; 5] {
    [
        pod.kill(("app", 0), from, 1000),
        pod.stop(from + 1000, 500),
        pod.stop(from + 1600, 10),
        pod.sweep(("app", 0), from + 1700, 100),
        pod.remove(from + 1800, 200),
    ]
}

#[test]
fn a_start_is_over_after_silence_that_does_not_count() {
    let mut store = store();
    apply(&mut store, start(&pod("a"), 0));
    store.tick(at(10_899), &[]);
    assert_eq!(
        lines(&store),
        ["start #0 Open: RunPodSandbox PullImage CreateContainer StartContainer"]
    );
    store.tick(at(10_900), &[]);
    let episode = store.episodes().next().expect("an episode");
    assert_eq!(
        (episode.state, episode.ended - episode.began),
        (State::Ok, 900_000)
    );
    let shares = episode.shares();
    assert_eq!(shares[EpisodePhase::OutsideCri as usize], 100_000);
    assert_eq!(shares.iter().sum::<u64>(), 900_000);
    assert_eq!(store.take_closed(), [0]);
    assert_eq!(store.take_closed(), [0; 0]);
}

#[test]
fn a_call_in_flight_keeps_a_start_open() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    let pull = pod.pull("side:1", 1000, 60_000).under_way(None);
    store.tick(at(60_000), &[pull]);
    assert!(store.episodes().all(Episode::is_open));
    store.tick(at(60_000), &[]);
    assert!(!store.episodes().any(Episode::is_open));
}

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
    assert_eq!(episode.state, State::Ok);
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
    assert_eq!((episode.state, episode.retries), (State::Failed, 1));
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
            "stop #0 Open: StopPodSandbox",
            "start #1 Open: RunPodSandbox",
        ]
    );
    // The end of the old sandbox does not affect the new one.
    apply(&mut store, [pod.remove(7000, 2000)]);
    assert!(store.episodes().last().expect("an episode").is_open());
}

#[test]
fn a_crash_loop_is_a_restart_each() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    apply(
        &mut store,
        [
            // Pulled before the quiet period of the start was over: it still belongs to the restart.
            pod.pull("app:1", 2000, 50),
            pod.create(("app", 1), 2100, 50),
            pod.start(("app", 1), 2200, 50),
            pod.create(("app", 2), 9_000, 50),
            pod.start(("app", 2), 9_100, 50),
        ],
    );
    store.tick(at(15_000), &[]);
    apply(&mut store, [pod.pull("app:1", 30_000, 50)]);
    apply(&mut store, [pod.create(("app", 3), 30_100, 50)]);
    apply(&mut store, [pod.sweep(("app", 1), 30_200, 5000)]);
    assert_eq!(
        lines(&store),
        [
            "start #0 Ok: RunPodSandbox PullImage CreateContainer StartContainer",
            "restart app#1 Ok: PullImage CreateContainer StartContainer",
            "restart app#2 Open: CreateContainer StartContainer",
            "restart app#3 Open: PullImage CreateContainer",
        ]
        .map(|line| line.replace("app#2 Open", "app#2 Ok"))
    );
    assert_eq!(store.get(0).map(|t| t.ended), Some(at(900)));
}

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
    assert_eq!(restart.ended - restart.began, 30_400_000);
}

#[test]
fn a_stop_is_over_after_silence_and_the_sweep_is_no_second_one() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0));
    store.tick(at(20_000), &[]);
    apply(&mut store, stop(&pod, 60_000));
    store.tick(at(72_000), &[]);
    apply(&mut store, [pod.stop(120_000, 5), pod.remove(120_100, 5)]);
    assert_eq!(
        lines(&store)[1..],
        [
            "stop #0 Ok: StopContainer StopPodSandbox StopPodSandbox RemoveContainer RemovePodSandbox"
        ]
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
fn without_its_beginning_a_start_begins_with_what_is_seen() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0).into_iter().skip(1));
    assert_eq!(
        lines(&store),
        ["start #0 Open: PullImage CreateContainer StartContainer"]
    );
}

#[test]
fn ids_alone_are_completed_from_earlier_calls() {
    let (mut store, pod) = (store(), pod("a"));
    apply(&mut store, start(&pod, 0).into_iter().take(3));
    let mut call = pod.start(("app", 0), 700, 200);
    (call.pod, call.container, call.sandbox_id) = (None, None, None);
    assert_eq!(store.apply(call), Applied::Part(0));
    let mut stop = pod.stop(60_000, 3000);
    stop.pod = None;
    assert_eq!(store.apply(stop), Applied::Part(1));
    let mut unknown = pod.stop(60_000, 3000);
    (unknown.pod, unknown.sandbox_id) = (None, Some("other".into()));
    assert_eq!(store.apply(unknown), Applied::Nothing);
}

#[test]
fn the_same_name_with_another_uid_is_another_pod() {
    let mut store = store();
    let (old, mut new) = (pod("a"), pod("a"));
    let mut identity = (*new.0).clone();
    identity.uid = "uid-new".into();
    new.0 = Arc::new(identity);
    apply(
        &mut store,
        start(&old, 0).into_iter().chain(start(&new, 10)),
    );
    let by_uid: Vec<_> = store
        .episodes()
        .map(|t| (&*t.pod.uid, t.calls.len()))
        .collect();
    assert_eq!(by_uid, [("uid-a", 4), ("uid-new", 4)]);
}

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
    let ended = |attempt| Exit {
        container: "app".into(),
        attempt,
        code: 1,
        reason: crate::cri::subject::ExitReason::Error,
        ran: 200_000,
        at: at(1100),
    };
    assert!(store.note_exit(&pod.0, Some("c0"), ended(0)));
    assert!(!store.note_exit(&pod.0, Some("c0"), ended(0)));
    assert!(store.note_exit(&pod.0, Some("c1"), ended(1)));
    let exits: Vec<_> = store.episodes().map(|t| t.exits.len()).collect();
    assert_eq!(exits, [1, 1]);
    for n in 0..10_000 {
        store.note_exit(&pod.0, Some(&format!("x{n}")), ended(n));
    }
    assert_eq!(store.exits.len(), 2048);
    assert!(store.episodes().all(|t| t.exits.len() <= 16));
}

#[test]
fn an_episode_keeps_its_first_and_its_newest_calls() {
    let (mut store, pod) = (store(), pod("a"));
    for n in 0..1000 {
        let run = pod
            .run(n * 1000, 400)
            .fails(Code::Unknown, &format!("no {n}"));
        apply(&mut store, [run]);
    }
    let episode = store.episodes().next().expect("an episode");
    assert_eq!(episode.calls.len(), episode::MOST_CALLS);
    assert_eq!(
        (episode.calls_forgotten, episode.failures, episode.retries),
        (872, 1000, 999)
    );
    assert_eq!(episode.calls.front().map(|c| c.seq), Some(0));
    assert_eq!(episode.calls.back().map(|c| c.seq), Some(999_000));
    // The time of dropped calls is counted too.
    assert_eq!(
        episode.shares()[EpisodePhase::Sandbox as usize],
        400_000 * 1000
    );
    assert_eq!(
        episode.shares().iter().sum::<u64>(),
        episode.ended - episode.began
    );
}

#[test]
fn closed_episodes_are_forgotten_first() {
    let mut store = EpisodeStore::new(
        Limits {
            episodes: 3,
            ..LIMITS
        },
        Usual::default(),
    );
    apply(&mut store, [pod("open").run(0, 10)]);
    apply(&mut store, start(&pod("a"), 0));
    store.tick(at(20_000), &[]);
    assert_eq!(store.take_closed().len(), 1, "it was reported");
    apply(
        &mut store,
        [pod("b").run(20_000, 10), pod("c").run(20_000, 10)],
    );
    let names = |store: &EpisodeStore| {
        store
            .episodes()
            .map(|t| t.pod.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&store), store.forgotten()),
        (vec!["open".into(), "b".into(), "c".into()], 1)
    );
    assert_eq!(store.take_unreported(), 0);
    apply(&mut store, [pod("d").run(20_000, 10)]);
    assert_eq!(
        (names(&store), store.forgotten()),
        (vec!["b".into(), "c".into(), "d".into()], 2)
    );
    assert_eq!(
        store.take_unreported(),
        1,
        "the end of an open one is never reported"
    );
    assert_eq!((store.pods.len(), store.open.len()), (3, 3));
}
