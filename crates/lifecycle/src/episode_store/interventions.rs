//! What others than the kubelet did to containers: commands in them, new memory limits, and removals after their end. A streaming Exec of the kubelet is
//! the command of a client of the Kubernetes API.

use std::sync::Arc;

use super::{Episode, EpisodeStore};
use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::call::Peer;
use criscope_cri::subject::ContainerIdentity;
use criscope_cri::units::times::UnixMicros;

/// Number of interventions of an episode that are kept, the newest.
const MAX_INTERVENTIONS: usize = 8;

/// Something that a caller did to a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intervention {
    pub(crate) container: Arc<ContainerIdentity>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) kind: InterventionKind,
    pub(crate) began: UnixMicros,
    pub(crate) ended: UnixMicros,
}

/// Kind of an intervention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterventionKind {
    /// ExecSync by another caller than the kubelet.
    Command,
    /// Exec, which begins a session: its command runs once the client connects.
    Session,
    /// UpdateContainerResources by any caller, with the new limit in bytes.
    MemoryLimit(u64),
    /// RemoveContainer by another caller than the kubelet, of a container that had ended.
    Removal,
}

impl InterventionKind {
    fn from_call(call: &EpisodeCall) -> Option<Self> {
        match call.method {
            Method::Exec => call.is_good().then_some(Self::Session),
            Method::RemoveContainer => {
                (call.is_good() && !call.peer.is_kubelet()).then_some(Self::Removal)
            }
            Method::ExecSync => (!call.peer.is_kubelet()).then_some(Self::Command),
            Method::UpdateContainerResources => {
                let limits = call.facts.new_limits().filter(|_| call.is_good())?;
                (limits.memory > 0).then_some(Self::MemoryLimit(limits.memory))
            }
            _ => None,
        }
    }
}

impl EpisodeStore {
    /// Notes a command in a container, a new limit, or the removal of one that had ended, with the start or restart of the container.
    /// Returns whether that is known.
    pub(crate) fn note_intervention(&mut self, call: &EpisodeCall) -> bool {
        let id = call.container_id.as_deref();
        let (Some(kind), Some(id)) = (InterventionKind::from_call(call), id) else {
            return false;
        };
        let mut episodes = self.episodes.values_mut().rev();
        let known = episodes.find_map(|episode| {
            let mut calls = episode.calls.iter();
            let start = calls
                .find(|known| known.has_started() && known.container_id.as_deref() == Some(id))?;
            Some((start.container.clone()?, episode))
        });
        let Some((container, episode)) = known else {
            return false;
        };
        episode.add_intervention(Intervention {
            container,
            peer: Arc::clone(&call.peer),
            kind,
            began: call.began_at(),
            ended: call.ended_at(),
        });
        true
    }
}

impl Episode {
    fn add_intervention(&mut self, intervention: Intervention) {
        if self.interventions.len() >= MAX_INTERVENTIONS {
            self.interventions.remove(0);
        }
        self.interventions.push(intervention);
    }
}
