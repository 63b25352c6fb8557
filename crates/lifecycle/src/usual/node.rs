//! The node around an episode: its usual durations, and how many pods start at the same time.

use std::time::Duration;

use super::{
    MAX_STARTS_IN_SAMPLE, MIN_DIFFERENCE, TypicalDuration, UsualAtEnd, UsualDurations, WorkKey,
};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, EpisodeStore};
use crate::kubelet::images::{FoundImage, MissingImage};
use crate::kubelet::pulls::PullInFlight;
use crate::node::{NodeFact, NodeFactKind, NodePrograms};
use crate::process_scanner::WorkKind;
use crate::view::EpisodeState;
use criscope_cri::Method;
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// Number of concurrent pod starts from which they explain that a call takes longer than usual.
pub(crate) const MANY_STARTS: usize = 5;

/// Facts about the node that the diagnosis of an episode needs.
#[derive(Debug)]
pub(crate) struct NodeContext<'a> {
    pub(crate) usual: &'a UsualDurations,
    /// Begin and end of each start.
    starts: Vec<(UnixMicros, UnixMicros)>,
    /// Images that the kubelet did not find and has not pulled.
    missing_images: Vec<MissingImage>,
    /// Images that the kubelet found for pods.
    found_images: Vec<FoundImage>,
    /// Pulls of the kubelet that are in flight.
    pulls: Vec<PullInFlight>,
    /// The facts about the node that hold.
    holding: Vec<&'a NodeFact>,
    pub(crate) programs: &'a NodePrograms,
}

/// A duration compared with the usual one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ComparedDuration {
    pub(crate) typical: TypicalDuration,
    /// True if it is far above the usual duration.
    pub(crate) is_unusual: bool,
    /// Pods that started at the same time.
    pub(crate) starts: usize,
}

impl EpisodeStore {
    /// The facts about the node that the episodes in memory show.
    pub(crate) fn node(&self) -> NodeContext<'_> {
        let starts = self.episodes().filter(|e| e.kind == Kind::Start);
        NodeContext {
            usual: &self.usual,
            starts: starts.map(|e| (e.began, e.ended)).collect(),
            missing_images: self.missing_images(),
            found_images: self.found_images(),
            pulls: Vec::new(),
            holding: self.holding().collect(),
            programs: &self.programs,
        }
    }

    /// What is usual for a call that has just ended; `None` if it was too short to be compared.
    pub(crate) fn usual_at_end(&self, call: &EpisodeCall) -> Option<Box<UsualAtEnd>> {
        let is_worth = !call.is_in_flight() && call.is_good() && call.took() >= MIN_DIFFERENCE;
        let pod = call.pod.as_deref().filter(|_| is_worth)?;
        let mut own = self.episodes_of(pod);
        let handler = call.handler.as_deref();
        let handler = handler.or_else(|| own.find_map(|episode| episode.handler.as_deref()));
        let typical = typical(&self.usual, call, handler)?;
        let starts = None;
        Some(Box::new(UsualAtEnd { typical, starts }))
    }

    /// Notes how many pods started during the calls of an episode that is closed.
    pub(crate) fn freeze_starts(&mut self, number: u64) {
        let Some(episode) = self.get(number) else {
            return;
        };
        let calls = episode.calls.iter().enumerate();
        let compared = calls.filter(|(_, call)| call.usual.is_some());
        let node = self.node();
        let starts = compared.map(|(n, call)| (n, node.starts_during(call)));
        let starts: Vec<_> = starts.collect();
        if let Some(episode) = self.get_mut(number) {
            for (n, starts) in starts {
                if let Some(usual) = &mut episode.calls[n].usual {
                    usual.starts.get_or_insert(starts);
                }
            }
        }
    }

    /// Learns from a closed episode.
    pub(crate) fn learn(&mut self, number: u64) {
        let Some(episode) = self.get(number) else {
            return;
        };
        let node = self.node();
        if episode.state != EpisodeState::Ok || episode.failures > 0 {
            return;
        }
        let mut samples = Vec::<(WorkKey, Duration)>::new();
        let calls = episode.calls.iter();
        let calls = calls.filter(|call| call.is_good() && call.fault.is_none());
        for call in calls.filter(|call| node.starts_during(call) <= MAX_STARTS_IN_SAMPLE) {
            for (key, took) in samples_of(episode, call) {
                // Once per key and episode.
                if key.is_short() && !samples.iter().any(|(known, _)| *known == key) {
                    samples.push((key, took));
                }
            }
        }
        let at = episode.ended;
        for (key, took) in samples {
            self.usual.learn(key, took, at);
        }
    }
}

/// The samples of a call. The time of plugins is exact only if the built-in runtime ran them: the process scanner sees only slow ones.
fn samples_of(episode: &Episode, call: &EpisodeCall) -> Vec<(WorkKey, Duration)> {
    let mut samples: Vec<_> = keys(call, episode.handler.as_deref())
        .into_iter()
        .map(|key| (key, call.took()))
        .collect();
    let plugins = call
        .work
        .iter()
        .filter(|work| work.own && work.kind == WorkKind::Cni);
    samples.extend(plugins.map(|work| (WorkKey::Plugin((*work.name).into()), work.took())));
    samples
}

/// The kinds of work of a call, the most specific first. Stops have none: their duration depends on the container.
fn keys(call: &EpisodeCall, handler: Option<&str>) -> Vec<WorkKey> {
    match call.method {
        Method::StopContainer => Vec::new(),
        // Pulls of other images say nothing about this one.
        Method::PullImage => {
            let image = call.image.as_deref();
            image.map(WorkKey::repository).into_iter().collect()
        }
        method => vec![WorkKey::call(method, handler)],
    }
}

impl<'a> NodeContext<'a> {
    /// The fact that no kubelet is connected, or that it makes no call.
    pub(crate) fn absent_kubelet(&self) -> Option<&'a NodeFact> {
        let mut holding = self.holding.iter().copied();
        holding.find(|fact| {
            matches!(
                fact.kind,
                NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent
            )
        })
    }

    /// The fact that a backend which is `wanted` does not answer.
    pub(crate) fn silent_backend(&self, wanted: impl Fn(&str) -> bool) -> Option<&'a NodeFact> {
        let mut holding = self.holding.iter().copied();
        holding.find(|fact| match &fact.kind {
            NodeFactKind::BackendDown { backend } | NodeFactKind::BackendHangs { backend } => {
                wanted(backend)
            }
            _ => false,
        })
    }

    /// The image that the kubelet found for the start with this number.
    pub(crate) fn found_image(&self, episode: u64) -> Option<&FoundImage> {
        let mut found = self.found_images.iter();
        found.find(|found| found.episode == episode)
    }

    /// The image that the start with this number waits for, if it is known.
    pub(crate) fn awaited_image(&self, episode: u64) -> Option<&MissingImage> {
        self.missing_images
            .iter()
            .find(|missing| missing.episode == episode)
    }

    /// Adds the pulls that are in flight.
    pub(crate) fn with_pulls(mut self, pulls: Vec<PullInFlight>) -> Self {
        self.pulls = pulls;
        self
    }

    /// Returns whether the kubelet pulls an image now.
    pub(crate) fn is_pulling(&self) -> bool {
        !self.pulls.is_empty()
    }

    /// The pull that this pod may wait for: the only one in flight, of another pod.
    pub(crate) fn pull_before(&self, pod: &PodIdentity) -> Option<&PullInFlight> {
        match &self.pulls[..] {
            [pull] => Some(pull).filter(|pull| pull.pod.uid != pod.uid),
            // A kubelet that pulls several images at once shows no queue.
            _ => None,
        }
    }

    /// Pods that start while this call is in flight.
    fn starts_during(&self, call: &EpisodeCall) -> usize {
        let (from, to) = (call.began_at(), call.ended_at());
        self.starts_between(from, to).count()
    }

    /// The starts that overlap this time.
    fn starts_between(
        &self,
        from: UnixMicros,
        to: UnixMicros,
    ) -> impl Iterator<Item = (UnixMicros, UnixMicros)> {
        let starts = self.starts.iter().copied();
        starts.filter(move |(began, ended)| *began < to && *ended > from)
    }

    /// The duration of a call compared with what is usual, or was when it ended; `None` without enough samples.
    pub(crate) fn compare(
        &self,
        episode: &Episode,
        call: &EpisodeCall,
    ) -> Option<ComparedDuration> {
        let (typical, starts) = if call.is_in_flight() {
            let handler = episode.handler.as_deref();
            (typical(self.usual, call, handler)?, None)
        } else {
            let usual = call.usual.as_deref()?;
            (usual.typical, usual.starts)
        };
        Some(ComparedDuration {
            typical,
            is_unusual: typical.is_exceeded_by(call.took()),
            starts: starts.unwrap_or_else(|| self.starts_during(call)),
        })
    }
}

fn typical(
    usual: &UsualDurations,
    call: &EpisodeCall,
    handler: Option<&str>,
) -> Option<TypicalDuration> {
    let mut keys = keys(call, handler).into_iter();
    keys.find_map(|key| usual.typical(&key))
}
