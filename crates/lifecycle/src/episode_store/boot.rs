//! Runs of pods before the boot of the node, for a node whose journal was lost with `/run`: after a restart of the node the kubelet
//! asks for the containers of before, and their times are older than the boot.

use std::collections::VecDeque;
use std::time::Duration;

use super::exits::ExitRecord;
use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use crate::node::{NodeFact, NodeFactKind, note};
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

/// Most pods that are remembered; a node has some hundred.
const MAX_PODS_BEFORE_BOOT: usize = 1024;

/// Clocks are set while a node boots, by up to this much.
const BOOT_CLOCK_TOLERANCE: Duration = Duration::from_secs(2);

/// The boot of the node, and the begin of the newest run of each pod that has no calls.
#[derive(Clone, Debug, Default)]
pub(super) struct RunsBeforeBoot {
    /// The boot; the epoch if it is not known.
    at: UnixMicros,
    /// Begin of the newest run, by pod uid.
    runs: VecDeque<(Box<str>, UnixMicros)>,
}

impl RunsBeforeBoot {
    /// The boot of the node.
    #[cfg(test)]
    pub(super) fn at(&self) -> UnixMicros {
        self.at
    }

    /// A copy with the run of this pod only.
    pub(super) fn for_pod(&self, uid: &str) -> Self {
        let runs = self.runs.iter().filter(|(known, _)| **known == *uid);
        Self {
            at: self.at,
            runs: runs.cloned().collect(),
        }
    }
}

impl EpisodeStore {
    /// Notes when the node booted.
    pub(crate) fn set_boot(&mut self, at: UnixMicros) {
        self.booted.at = at;
    }

    /// Remembers the exit of a container whose pod has no known call.
    pub(super) fn note_early_run(&mut self, pod: &PodIdentity, exit: &ExitRecord) {
        let began = exit.at - exit.ran;
        let is_known = self.has_started(pod);
        if self.booted.at == UnixMicros::EPOCH || exit.ran.is_zero() || is_known {
            return;
        }
        let runs = &mut self.booted.runs;
        if let Some((_, newest)) = runs.iter_mut().find(|(uid, _)| *uid == pod.uid) {
            *newest = began.max(*newest);
            return;
        }
        if runs.len() >= MAX_PODS_BEFORE_BOOT {
            runs.pop_front();
        }
        runs.push_back((pod.uid.clone(), began));
    }

    /// Returns whether a start or restart of this pod is known. A stop does not count: the kubelet cleans up sandboxes from before
    /// the boot.
    fn has_started(&self, pod: &PodIdentity) -> bool {
        self.episodes_of(pod)
            .any(|episode| episode.kind != Kind::Stop)
    }

    /// Adds the restart of the node to the first start of a pod that ran before the boot and not since.
    pub(super) fn add_boot_fact(&self, episode: &mut Episode, first: &EpisodeCall) {
        let RunsBeforeBoot { at, runs } = &self.booted;
        let is_replaced = first.method.makes_sandbox() && episode.pod.attempt > 0;
        // The journal may hold starts from before the boot.
        let is_first = *at <= episode.began && !self.has_started(&episode.pod);
        if episode.kind != Kind::Start || !is_replaced || !is_first {
            return;
        }
        let mut runs = runs.iter().filter(|(uid, _)| *uid == episode.pod.uid);
        if runs.any(|(_, began)| *began + BOOT_CLOCK_TOLERANCE < *at) {
            let kind = NodeFactKind::NodeRestarted { booted: *at };
            let fact = NodeFact {
                to: Some(*at),
                ..NodeFact::new(kind, *at, "")
            };
            note(&mut episode.node, &fact);
        }
    }
}
