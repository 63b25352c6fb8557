//! Lives of pods: the episodes of a pod from its first sandbox until it is stopped, and its loops.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::Cause;
use super::crash::{self, CrashLoop};
use super::failure;
use super::history;
use super::kills::{self, KillLoop};
use super::kubelet::KubeletCause;
use super::remarks::{Diagnosis, Remark};
use crate::episode_store::Episode;
use crate::view::EpisodeState;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A pod from its first sandbox until it is stopped.
#[derive(Debug)]
pub(super) struct PodLifetime<'a> {
    pub(super) episodes: Vec<&'a Episode>,
    pub(super) loops: BTreeMap<&'a str, CrashLoop<'a>>,
    /// The newest series of kills by the kubelet.
    pub(super) kills: Option<KillLoop<'a>>,
}

/// Splits the episodes of pods with the same key: a pod begins with a first sandbox after the kubelet stopped the pod before. When another
/// program removes a sandbox, the kubelet makes a first one for the same pod.
pub(super) fn split<'a>(episodes: &[&'a Episode], now: UnixMicros) -> Vec<PodLifetime<'a>> {
    let stops = episodes
        .iter()
        .filter(|e| e.kind == Kind::Stop && e.state == EpisodeState::Ok)
        .filter(|stop| {
            let mut ends = stop.calls.iter().filter(|call| history::ends_sandbox(call));
            ends.next().is_none_or(|call| call.peer.is_kubelet())
        });
    let first_stop = stops
        .map(|stop| stop.ended)
        .min()
        .unwrap_or(UnixMicros::MAX);
    let starts = episodes.iter().filter(|e| e.kind == Kind::Start);
    let begins = starts.filter(|start| {
        let makes = start.calls.iter().any(|call| call.is_new_sandbox());
        let is_first = start.pod.attempt == 0 || start.comes_back();
        makes && is_first && first_stop <= start.began
    });
    let begins = begins.map(|start| start.began);
    let begins = BTreeSet::from_iter(begins.chain([UnixMicros::EPOCH]));
    let ends = begins.iter().copied().skip(1).chain([UnixMicros::MAX]);
    let lifetimes = begins.iter().copied().zip(ends).map(|(begin, end)| {
        let own = episodes.iter().copied();
        let own = own.filter(|episode| (begin..end).contains(&episode.began));
        PodLifetime::new(own.collect(), now)
    });
    lifetimes.collect()
}

impl<'a> PodLifetime<'a> {
    pub(super) fn new(episodes: Vec<&'a Episode>, now: UnixMicros) -> Self {
        Self {
            loops: crash::loops(&episodes, now),
            kills: kills::newest_kill_loop(&episodes, now),
            episodes,
        }
    }

    /// The start that failed before a failing stop: the kubelet cleans up after a failed RunPodSandbox, and the fault that broke
    /// the one mostly breaks the other.
    pub(super) fn failed_start_before(&self, stop: &Episode) -> Option<&'a Episode> {
        let before =
            self.episodes.iter().copied().filter(|e| {
                stop.kind == Kind::Stop && e.kind != Kind::Stop && e.began <= stop.began
            });
        before.max_by_key(|e| e.began).filter(|e| {
            let failed = failure::newest_unresolved(e);
            failed.is_some_and(|call| call.method.makes_sandbox())
        })
    }

    /// The newest of the `wanted` episodes.
    pub(super) fn newest(&self, wanted: impl Fn(&Episode) -> bool) -> Option<&'a Episode> {
        let episodes = self.episodes.iter().copied();
        let wanted = episodes.filter(|episode| wanted(episode));
        wanted.max_by_key(|episode| episode.began)
    }

    /// The kill loop or crash loop of a container, if it went on after the `failing` episode.
    pub(super) fn loop_cause(&self, failing: Option<&Episode>) -> Option<Cause<'a>> {
        let failed = failing.map(|episode| episode.ended);
        let crashes = self.loops.values();
        let crashes = crashes.filter(|crashes| !crashes.has_recovered());
        let kills = self.kills.as_ref();
        let kills = kills.filter(|kills| kills.settled_for.is_none());
        newest_loop(
            crashes.filter(|crashes| failed.is_none_or(|failed| crashes.at() > failed)),
            kills.filter(|kills| failed.is_none_or(|failed| kills.at > failed)),
        )
    }

    /// The diagnosis with the newest loop that a container has left, and runs for long since. What else is wrong comes first.
    pub(super) fn with_settled_loop(&self, mut diagnosis: Diagnosis<'a>) -> Diagnosis<'a> {
        match self.settled_loop() {
            Some(settled) if diagnosis.is_problem() => {
                diagnosis.remarks.push(Remark::Also(settled));
                diagnosis
            }
            Some(settled) => settled.into(),
            None => diagnosis,
        }
    }

    fn settled_loop(&self) -> Option<Cause<'a>> {
        let crashes = self.loops.values();
        let kills = self.kills.as_ref();
        newest_loop(
            crashes.filter(|crashes| crashes.settled_for.is_some()),
            kills.filter(|kills| kills.settled_for.is_some()),
        )
    }

    /// The newest stop, if it ended well and nothing was started after it. The stop of a replaced sandbox does not count.
    pub(super) fn last_stop(&self) -> Option<&'a Episode> {
        let episodes = self.episodes.iter().copied();
        let last = episodes
            .clone()
            .filter(|e| !e.only_cleans)
            .max_by_key(|e| e.began)?;
        let is_newest = !episodes.clone().any(|e| e.pod.attempt > last.pod.attempt);
        (last.kind == Kind::Stop && last.state == EpisodeState::Ok && is_newest).then_some(last)
    }
}

/// The newest of these loops.
pub(super) fn newest_loop<'b, 'a: 'b>(
    crashes: impl Iterator<Item = &'b CrashLoop<'a>>,
    kills: Option<&KillLoop<'a>>,
) -> Option<Cause<'a>> {
    let crashes = crashes.max_by_key(|crashes| crashes.at());
    match (crashes, kills) {
        (Some(crashes), kills) if kills.is_none_or(|kills| kills.at <= crashes.at()) => {
            Some(Cause::CrashLoop(crashes.clone()))
        }
        (_, kills) => Some(Cause::Kubelet(KubeletCause::KillLoop(kills?.clone()))),
    }
}
