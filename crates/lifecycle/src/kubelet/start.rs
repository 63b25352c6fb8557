//! The start of a pod as the kubelet counts it: from the moment at which it saw the pod, which is before its first call.
//!
//! SIG Scalability defines the pod startup SLI without pulls of images and without init containers. The kubelet measures
//! from the creation of the pod in the API to the moment at which it sees its own status report; criscope from the moment
//! at which the kubelet saw the pod to the end of the last StartContainer.

use std::time::Duration;

use crate::episode_store::Episode;
use crate::timeline::EpisodePhase;
use criscope_cri::Method;
use criscope_cri::call::CallFacts;
use criscope_cri::call::episode::Kind;

/// The parts of a pod's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PodStartTimes {
    /// From the moment at which the kubelet saw the pod to its first call.
    pub(crate) before_cri: Duration,
    /// From that moment to the end of the last StartContainer.
    pub(crate) total: Duration,
    /// The total without pulls and init containers.
    pub(crate) sli: Duration,
}

/// Time from the moment at which the kubelet saw a pod to its first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KubeletDelay {
    pub(crate) before: Duration,
    /// The first part of that time, in which criscope was not running.
    pub(crate) unwatched: Duration,
}

impl Episode {
    /// Time from the moment at which the kubelet saw the pod to its first call. `None` if it is not the pod's first sandbox, or if
    /// criscope was not running all that time: then there may have been calls before.
    pub(crate) fn before_cri(&self) -> Option<Duration> {
        let seen = self.seen_before()?;
        (seen.unwatched.is_zero()).then_some(seen.before)
    }

    /// Time from the moment at which the kubelet saw the pod to its first call, even if criscope was not running all that time.
    pub(crate) fn seen_before(&self) -> Option<KubeletDelay> {
        let mut calls = self.calls.iter().filter(|_| self.kind == Kind::Start);
        calls.find_map(|call| match call.facts {
            CallFacts::Seen {
                before_ms,
                unwatched_ms,
                ..
            } => Some(KubeletDelay {
                before: Duration::from_millis(before_ms.into()),
                unwatched: Duration::from_millis(unwatched_ms.into()),
            }),
            _ => None,
        })
    }

    /// Returns whether it is the first start after the pod was stopped, although not of its first sandbox. For other sandboxes the store
    /// drops the time at which the kubelet saw the pod.
    pub(crate) fn comes_back(&self) -> bool {
        self.pod.attempt > 0 && self.seen_before().is_some()
    }

    /// Time for which its pulls waited for those of other pods. The kubelet counts it as part of the pull.
    fn queued(&self) -> Duration {
        let queues = self.calls.iter().filter_map(|call| call.queue.as_deref());
        queues.map(|queue| queue.waited).sum()
    }

    /// The parts of the start, once a container was started.
    pub(crate) fn pod_start(&self) -> Option<PodStartTimes> {
        let before_cri = self.before_cri()?;
        let started = self
            .calls
            .iter()
            .filter(|call| call.method == Method::StartContainer && call.is_good());
        let up = started.map(|call| call.ended_at()).max()?;
        let shares = self.shares();
        let excluded = shares[EpisodePhase::ImagePull as usize]
            .saturating_add(shares[EpisodePhase::InitContainer as usize])
            .saturating_add(self.queued());
        let of_calls = up.since(self.began);
        Some(PodStartTimes {
            before_cri,
            total: before_cri + of_calls,
            sli: before_cri + of_calls.saturating_sub(excluded),
        })
    }
}
