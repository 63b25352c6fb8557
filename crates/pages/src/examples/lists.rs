//! The examples as lists and stories, as the JSON endpoints have them.

use super::{
    NOW, crash_loop, failed_image, hostile, in_flight, many_tries, phases, retries, slow_cni,
    slow_init, slow_pull, start,
};
use crate::view::{
    EpisodeView, NodeVerdict, PodList, PodReason, PodStory, PodSummary, RecentEpisodes, sort_pods,
};

/// One of each.
pub fn all() -> Vec<EpisodeView> {
    vec![
        hostile(),
        crash_loop(),
        failed_image(),
        slow_cni(),
        in_flight(),
        slow_pull(),
        slow_init(),
        retries(),
        many_tries(),
        gone(),
    ]
}

/// As in `/debug/pods`.
pub fn recent() -> RecentEpisodes {
    let episodes = all().into_iter().map(|episode| EpisodeView {
        calls: Vec::new(),
        ..episode
    });
    RecentEpisodes {
        now_unix_us: NOW,
        episodes: episodes.collect(),
        forgotten: 0,
    }
}

/// As in `/debug/pods?by=pod`.
pub fn pods() -> PodList {
    let recent = recent();
    let mut pods: Vec<_> = recent
        .episodes
        .into_iter()
        .filter_map(|episode| {
            let text = episode.crash_loop.clone();
            let reason = PodReason {
                text: text.unwrap_or_else(|| episode.headline.clone()),
                cause: episode.cause.clone(),
                ..PodReason::default()
            };
            PodSummary::from_episodes(vec![episode], reason, NOW)
        })
        .collect();
    sort_pods(&mut pods, false);
    PodList {
        now_unix_us: NOW,
        verdict: NodeVerdict::new(&pods, Vec::new()),
        known: pods.len(),
        pods,
        forgotten: 0,
    }
}

/// A pod that was stopped and deleted.
pub(super) fn gone() -> EpisodeView {
    let stop = start(
        "web-7d4b9c6f5-qq4fz",
        700,
        120.0,
        "the pod was stopped by the kubelet 11 min ago: 0.02 s until web ended with exit code 0; gone after 0.12 s",
    );
    EpisodeView {
        kind: "stop".to_owned(),
        phases: phases(&[("container_stop", 30.0), ("sandbox_stop", 90.0)]),
        deleted_unix_us: Some(stop.began_unix_us),
        ..stop
    }
}

/// As in `/debug/pods/NAMESPACE/NAME`.
pub fn story(episode: EpisodeView) -> PodStory {
    PodStory {
        now_unix_us: NOW,
        namespace: episode.namespace.clone(),
        name: episode.name.clone(),
        cause: episode.cause.clone(),
        headline: episode
            .crash_loop
            .clone()
            .unwrap_or_else(|| episode.headline.clone()),
        raw_message: episode.raw_message.clone(),
        next: episode.next.clone(),
        episodes: vec![episode],
        sessions: Vec::new(),
        probes: Vec::new(),
        listed: None,
    }
}

#[test]
fn what_is_written_is_read_back() {
    let story = story(slow_cni());
    let json = serde_json::to_string(&story).expect("json");
    assert_eq!(
        serde_json::from_str::<PodStory>(&json).expect("read"),
        story
    );
    let recent = recent();
    let json = serde_json::to_string(&recent).expect("json");
    assert_eq!(
        serde_json::from_str::<RecentEpisodes>(&json).expect("read"),
        recent
    );
}
