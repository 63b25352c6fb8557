//! Checkpoints of pods and containers that run. The containers are frozen for a part of the call.

use std::sync::Arc;

use super::{CallEffect, Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::call::Peer;
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// Number of checkpoints of an episode that are kept, the newest.
const MAX_CHECKPOINTS: usize = 8;

/// A CheckpointPod or CheckpointContainer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointRecord {
    /// The container; `None` for the pod.
    pub(crate) container: Option<Box<str>>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) began: UnixMicros,
    /// The end of the call, or the present while it is in flight.
    pub(crate) ended: UnixMicros,
    pub(crate) state: CheckpointState,
}

/// State of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckpointState {
    InFlight,
    Made,
    Failed,
}

impl CheckpointRecord {
    fn from_call(call: &EpisodeCall) -> Self {
        let container = call.container_name();
        Self {
            container: container
                .filter(|_| call.method == Method::CheckpointContainer)
                .map(Into::into),
            peer: Arc::clone(&call.peer),
            began: call.began_at(),
            ended: call.ended_at(),
            state: match (call.is_in_flight(), call.is_bad()) {
                (true, _) => CheckpointState::InFlight,
                (false, true) => CheckpointState::Failed,
                (false, false) => CheckpointState::Made,
            },
        }
    }
}

impl EpisodeStore {
    /// Notes a checkpoint with the newest start or restart of its sandbox. It is no call of the episode: the kubelet may make it an hour
    /// after the start, which it does not make longer.
    pub(super) fn note_checkpoint(&mut self, call: &EpisodeCall) -> CallEffect {
        let Some(pod) = call.pod.as_deref() else {
            return CallEffect::Nothing;
        };
        let sandbox = call.sandbox_id.as_deref();
        let up = self
            .episodes_of(pod)
            .find(|episode| episode.kind != Kind::Stop && episode.is_of_sandbox(pod, sandbox));
        let Some(number) = up.map(|episode| episode.number) else {
            return CallEffect::Nothing;
        };
        let Some(episode) = self.episodes.get_mut(&number) else {
            return CallEffect::Nothing;
        };
        episode.add_checkpoint(CheckpointRecord::from_call(call));
        CallEffect::Noticed
    }
}

impl Episode {
    fn add_checkpoint(&mut self, checkpoint: CheckpointRecord) {
        if self.checkpoints.len() >= MAX_CHECKPOINTS {
            self.checkpoints.remove(0);
        }
        self.checkpoints.push(checkpoint);
    }
}
