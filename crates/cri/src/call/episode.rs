//! Episodes: the start of a pod, the start of a container in a running pod, and the end of a pod. The trace of an episode
//! is derived from the call alone, so it is the same before and after a restart of criscope, and in every process that sees
//! the same pod.

use opentelemetry::trace::{SpanId, TraceId};
use sha2::{Digest, Sha256};

use crate::Method;
use crate::subject::{ContainerIdentity, PodIdentity};

crate::named! {
    /// Kind of episode. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Kind {
        /// A pod starts: its sandbox, images and containers.
        Start = "start",
        /// A container starts in a running pod: again after it exited, or for the first time after an init container.
        Restart = "restart",
        /// A pod is stopped: its containers and its sandbox.
        Stop = "stop",
    }
}

/// The trace of an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The trace that all calls of the episode share.
    pub trace_id: TraceId,
    /// The span that stands for the whole episode.
    pub root: SpanId,
}

impl Ids {
    /// Hashes a key into ids. A pod's uid itself cannot be the trace id: a UUID has fixed bits where ratio samplers read, and
    /// the uid of a static pod is not a UUID.
    fn hashed(kind: Kind, parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        hash.update("criscope-episode/v1");
        for part in std::iter::once(&kind.name()).chain(parts) {
            hash.update([0]);
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let mut trace_id = [0; 16];
        let mut root = [0; 8];
        trace_id.copy_from_slice(&hash[..16]);
        root.copy_from_slice(&hash[16..24]);
        Self {
            trace_id: TraceId::from_bytes(trace_id),
            root: SpanId::from_bytes(root),
        }
    }

    /// The start of a pod's sandbox with this attempt.
    pub fn start(uid: &str, attempt: u32) -> Self {
        Self::hashed(Kind::Start, &[uid, &attempt.to_string()])
    }

    /// The start of a container with this restart count in a running pod.
    pub fn restart(uid: &str, container: &str, attempt: u32) -> Self {
        Self::hashed(Kind::Restart, &[uid, container, &attempt.to_string()])
    }

    /// The end of a sandbox.
    pub fn stop(uid: &str, sandbox_id: &str) -> Self {
        Self::hashed(Kind::Stop, &[uid, sandbox_id])
    }

    /// The episode of a call, if the call alone determines it; `None` if the call belongs to none. A pull, and the first start
    /// of a container, belong to the start of the pod.
    pub fn for_call(
        method: Method,
        pod: Option<&PodIdentity>,
        container: Option<&ContainerIdentity>,
        sandbox_id: Option<&str>,
    ) -> Option<Self> {
        let pod = pod.filter(|pod| !pod.uid.is_empty())?;
        let restarted = container.filter(|c| c.attempt > 0);
        match (method, restarted) {
            (Method::CreateContainer | Method::StartContainer, Some(container)) => {
                Some(Self::restart(&pod.uid, &container.name, container.attempt))
            }
            (
                Method::RunPodSandbox
                | Method::RestorePod
                | Method::PullImage
                | Method::CreateContainer
                | Method::StartContainer,
                _,
            ) => Some(Self::start(&pod.uid, pod.attempt)),
            (
                Method::StopContainer
                | Method::StopPodSandbox
                | Method::RemoveContainer
                | Method::RemovePodSandbox,
                _,
            ) => Some(Self::stop(&pod.uid, sandbox_id?)),
            _ => None,
        }
    }
}

/// Returns whether calls of this method are part of episodes.
pub const fn is_episodic(method: Method) -> bool {
    matches!(
        method,
        Method::RunPodSandbox
            | Method::RestorePod
            | Method::PullImage
            | Method::CreateContainer
            | Method::StartContainer
            | Method::StopContainer
            | Method::StopPodSandbox
            | Method::RemoveContainer
            | Method::RemovePodSandbox
    )
}
