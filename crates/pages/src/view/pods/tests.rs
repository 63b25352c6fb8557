//! What state a pod is in, and its place in a list.

use super::*;
use crate::view::{ExitView, PhaseDuration, PodTrouble};

const NOW: UnixMicros = at(1_000);

const fn at(seconds: u64) -> UnixMicros {
    UnixMicros::new(seconds * 1_000_000)
}

fn episode(kind: &str, seconds: u64, state: EpisodeState) -> EpisodeView {
    EpisodeView {
        kind: kind.to_owned(),
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        state,
        began_unix_us: at(seconds),
        duration_ms: 300.0,
        headline: format!("{kind} at {seconds}"),
        ..EpisodeView::default()
    }
}

fn stop(at: u64, state: EpisodeState) -> EpisodeView {
    let phase = PhaseDuration {
        phase: "sandbox_stop".to_owned(),
        ms: 5.0,
    };
    EpisodeView {
        phases: vec![phase],
        ..episode("stop", at, state)
    }
}

fn restart(container: &str, attempt: u32, at: u64, state: EpisodeState) -> EpisodeView {
    EpisodeView {
        container: Some(container.to_owned()),
        attempt,
        ..episode("restart", at, state)
    }
}

fn failing(mut episode: EpisodeView) -> EpisodeView {
    (episode.state, episode.failures, episode.retries) = (EpisodeState::Failing, 3, 2);
    episode
}

fn looping(mut episode: EpisodeView) -> EpisodeView {
    episode.crash_loop = Some("app keeps crashing".to_owned());
    episode
}

/// The pod of these episodes, in any order.
fn pod(episodes: impl IntoIterator<Item = EpisodeView>) -> PodSummary {
    let episodes: Vec<_> = episodes.into_iter().collect();
    let newest = episodes.iter().max_by_key(|it| it.began_unix_us);
    let reason = newest.map(|it| it.headline.clone()).unwrap_or_default();
    PodSummary::from_episodes(episodes, reason, NOW).expect("episodes")
}

#[test]
fn a_crash_loop_is_one_entry_and_its_time_counts() {
    let loop_of = [
        looping(episode("start", 100, EpisodeState::Ok)),
        looping(restart("app", 1, 200, EpisodeState::Ok)),
        looping(restart("app", 2, 300, EpisodeState::Ok)),
    ];
    let it = pod(loop_of);
    assert_eq!(
        (it.state, it.episodes, it.restarts),
        (PodState::CrashLoop, 3, 2)
    );
    assert_eq!((it.since_unix_us, it.duration_ms), (at(100), 900_000.0));
    assert_eq!(it.episode.attempt, 2);
    let it = pod([failing(episode("start", 990, EpisodeState::Open))]);
    assert_eq!(it.duration_ms, 10_000.0, "not that of its last call");
    let it = pod([episode("start", 990, EpisodeState::Ok)]);
    assert_eq!(it.duration_ms, 300.0);
    let it = pod([episode("start", 990, EpisodeState::Open)]);
    assert_eq!(it.duration_ms, 300.0, "it may be complete");
    let it = pod([episode("start", 900, EpisodeState::Open)]);
    assert_eq!(it.duration_ms, 100_000.0, "it waits");
    let mut ended = episode("start", 990, EpisodeState::Ok);
    ended.exits = vec![ExitView {
        container: "app".to_owned(),
        attempt: 7,
        ..ExitView::default()
    }];
    assert_eq!(pod([ended]).restarts, 7, "restarts before criscope");
}

#[test]
fn trouble_comes_first_and_the_gone_last() {
    let named = |name: &str, mut episode: EpisodeView| {
        episode.name = name.to_owned();
        episode
    };
    let slow = |mut episode: EpisodeView| {
        episode.duration_ms = 5_000.0;
        episode
    };
    let episodes = [
        named("gone", stop(900, EpisodeState::Ok)),
        named("new", episode("start", 800, EpisodeState::Ok)),
        named("slow", slow(episode("start", 100, EpisodeState::Ok))),
        named("starting", episode("start", 50, EpisodeState::Open)),
        named("looping", looping(restart("app", 1, 40, EpisodeState::Ok))),
        named("failing", failing(episode("start", 30, EpisodeState::Open))),
        named("failed", episode("start", 20, EpisodeState::Failed)),
    ];
    let mut pods = episodes.map(|it| pod([it])).to_vec();
    let names = |pods: &[PodSummary]| pods.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    sort_pods(&mut pods, false);
    let newest = [
        "failing", "failed", "looping", "starting", "new", "slow", "gone",
    ];
    assert_eq!(names(&pods), newest);
    sort_pods(&mut pods, true);
    let slowest = [
        "failing", "failed", "looping", "starting", "slow", "new", "gone",
    ];
    assert_eq!(names(&pods), slowest);
}

/// The kubelet removes the sandbox of a pod that is deleted, and keeps that of one that only ended.
#[test]
fn a_pod_that_was_stopped_is_gone_once_it_is_deleted() {
    let stopped = pod([stop(20, EpisodeState::Ok)]);
    assert_eq!(stopped.state, PodState::Stopped);
    assert_eq!((stopped.trouble(), stopped.notable), (None, false));
    let mut deleted = stop(20, EpisodeState::Ok);
    deleted.deleted_unix_us = Some(at(25));
    assert_eq!(pod([deleted]).state, PodState::Gone);
    let mut removed = stop(20, EpisodeState::Ok);
    removed.phases[0].phase = "sandbox_remove".to_owned();
    assert_eq!(pod([removed]).state, PodState::Gone);
    let failed = PodReason {
        state: Some(PodState::Failed),
        ..PodReason::from("job ended with exit code 3".to_owned())
    };
    let job = PodSummary::from_episodes(vec![stop(20, EpisodeState::Ok)], failed, NOW);
    let job = job.expect("a pod");
    assert_eq!(job.state, PodState::Failed);
    assert_eq!(job.trouble(), Some(PodTrouble::Ended));
}

/// `kubectl debug` with an image that does not exist.
#[test]
fn a_container_that_was_added_does_not_hide_the_state_of_the_others() {
    let mut debugger = failing(restart("debugger", 0, 60, EpisodeState::Open));
    debugger.ephemeral = true;
    let crashes = looping(restart("app", 4, 50, EpisodeState::Ok));
    let it = pod([
        episode("start", 10, EpisodeState::Ok),
        crashes,
        debugger.clone(),
    ]);
    assert_eq!(it.state, PodState::CrashLoop);
    let it = pod([episode("start", 10, EpisodeState::Ok), debugger]);
    assert_eq!(it.state, PodState::Ok);
}

#[test]
fn filters_know_states_and_groups_of_them() {
    let meant = |word: &str| {
        let states = PodState::ALL.into_iter();
        let meant = states
            .map(|it| it.is_meant(word))
            .collect::<Option<Vec<_>>>();
        meant.map(|it| it.into_iter().filter(|it| *it).count())
    };
    assert_eq!(meant("failing"), Some(3));
    assert_eq!(meant("open"), Some(2));
    for word in [
        "crash-loop",
        "crash_loop",
        "crash loop",
        "failed",
        "gone",
        "ok",
    ] {
        assert_eq!(meant(word), Some(1), "{word}");
    }
    assert_eq!(PodState::CrashLoop.is_meant("crash_loop"), Some(true));
    assert_eq!(meant("nonsense"), None);
}

#[test]
fn a_quick_start_needs_no_words() {
    assert!(!pod([episode("start", 10, EpisodeState::Ok)]).notable);
    assert!(pod([episode("start", 10, EpisodeState::Open)]).notable);
    let mut slow = episode("start", 10, EpisodeState::Ok);
    slow.duration_ms = 9_000.0;
    assert!(pod([slow.clone()]).notable);
    let it = PodSummary::from_episodes(
        vec![stop(20, EpisodeState::Ok), slow],
        "start at 10".to_owned(),
        NOW,
    );
    assert!(
        it.expect("a pod").notable,
        "the reason is about the slow start"
    );
}
