//! Pulls that waited for other pulls: a kubelet with `serializeImagePulls`, the default, pulls one image at a time, and a pod
//! whose turn has not come makes no call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::episode_call::EpisodeCall;
use criscope_cri::Method;
use criscope_cri::call::Client;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::{self, UnixMicros};

/// Pulls that are remembered.
const MAX_RECENT_PULLS: usize = 64;
/// Shorter waits are ignored.
const MIN_QUEUE_WAIT: Duration = Duration::from_millis(500);
/// The next pull begins this soon after the one before.
const NEXT_PULL_WITHIN: Duration = Duration::from_millis(500);

/// The wait of a pull for others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PullQueue {
    /// Length of the wait.
    #[serde(with = "times::micros")]
    pub(crate) waited: Duration,
    /// The image whose pull took most of the wait.
    pub(crate) image: Arc<str>,
    /// The pod for which that image was pulled, as `NAMESPACE/NAME`.
    pub(crate) pod: Box<str>,
    /// Number of pulls before this one in the queue.
    pub(crate) pulls: u32,
}

/// A pull of the kubelet that is in flight.
#[derive(Clone, Debug)]
pub(crate) struct PullInFlight {
    pub(crate) image: Arc<str>,
    pub(crate) pod: Arc<PodIdentity>,
    /// Duration so far.
    pub(crate) took: Duration,
}

impl PullInFlight {
    /// The pull that this call is; `None` for other calls.
    pub(crate) fn from_call(call: &EpisodeCall) -> Option<Self> {
        let is_by_kubelet = call.peer.client == Client::Kubelet;
        let is_pull = call.method == Method::PullImage && is_by_kubelet && call.is_in_flight();
        Some(Self {
            image: call.image.clone().filter(|_| is_pull)?,
            pod: call.pod.clone()?,
            took: call.took(),
        })
    }
}

/// A pull that has ended.
#[derive(Clone, Debug)]
struct EndedPull {
    began: UnixMicros,
    ended: UnixMicros,
    image: Arc<str>,
    pod: Arc<PodIdentity>,
    client: Client,
}

/// The last pulls of all pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentPulls(VecDeque<EndedPull>);

impl RecentPulls {
    /// Adds a pull that has ended.
    pub(crate) fn note(&mut self, call: &EpisodeCall) {
        let (Some(image), Some(pod)) = (&call.image, &call.pod) else {
            return;
        };
        if self.0.len() >= MAX_RECENT_PULLS {
            self.0.pop_front();
        }
        self.0.push_back(EndedPull {
            began: call.began_at(),
            ended: call.ended_at(),
            image: Arc::clone(image),
            pod: Arc::clone(pod),
            client: call.peer.client,
        });
    }

    /// The pulls that this one waited for: they fill the time from `since`, the end of the pod's call before, to its begin. `None` for a
    /// kubelet that pulls several images at once.
    pub(crate) fn queue_of(&self, call: &EpisodeCall, since: UnixMicros) -> Option<PullQueue> {
        let (uid, began, ended) = (&call.pod.as_ref()?.uid, call.began_at(), call.ended_at());
        let gap = Some(began.since(since)).filter(|gap| *gap >= MIN_QUEUE_WAIT)?;
        let others = self.0.iter().filter(|pull| {
            pull.client == call.peer.client && pull.ended > since && pull.began < ended
        });
        let mut others: Vec<_> = others.collect();
        others.sort_by_key(|pull| pull.began);
        // Half a second for clocks, and for the time between the end of a call and the begin of the next.
        let overlaps_own = others
            .iter()
            .any(|pull| pull.ended > began + NEXT_PULL_WITHIN);
        let overlaps_other = others
            .windows(2)
            .any(|pair| pair[0].ended > pair[1].began + NEXT_PULL_WITHIN);
        if overlaps_own || overlaps_other {
            return None;
        }
        let filled: Duration = others.iter().map(|pull| within(pull, since, began)).sum();
        let last = others.last().filter(|last| *last.pod.uid != **uid)?;
        let follows = began.since(last.ended) <= NEXT_PULL_WITHIN;
        let longest = others
            .iter()
            .max_by_key(|pull| within(pull, since, began))?;
        (follows && filled >= gap / 10 * 8 && *longest.pod.uid != **uid).then(|| PullQueue {
            waited: gap,
            image: Arc::clone(&longest.image),
            pod: format!("{}/{}", longest.pod.namespace, longest.pod.name).into(),
            pulls: u32::try_from(others.len()).unwrap_or(u32::MAX),
        })
    }
}

/// The time of a pull between these.
fn within(pull: &EndedPull, from: UnixMicros, to: UnixMicros) -> Duration {
    pull.ended.min(to).since(pull.began.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{at, pod};

    fn queue(pulls: &[(&str, u64, u64)], ours: (u64, u64), since: u64) -> Option<PullQueue> {
        let mut recent = RecentPulls::default();
        for (name, began, took) in pulls {
            recent.note(&pod(name).pull(&format!("{name}:1"), *began, *took));
        }
        let ours = pod("web").pull("web:1", ours.0, ours.1);
        recent.queue_of(&ours, at(since))
    }

    #[test]
    fn a_pull_that_began_when_another_ended_waited_for_it() {
        let got = queue(&[("big", 0, 40_000)], (40_010, 1000), 8000).expect("a queue");
        assert_eq!((&*got.image, &*got.pod), ("big:1", "shop/big"));
        assert_eq!((got.waited, got.pulls), (Duration::from_millis(32_010), 1));
        let two = queue(
            &[("a", 0, 10_000), ("b", 10_005, 30_000)],
            (40_010, 10),
            1000,
        );
        let two = two.expect("a queue");
        assert_eq!((&*two.image, two.pulls), ("b:1", 2));
    }

    #[test]
    fn other_gaps_are_no_queue() {
        for (why, pulls, since) in [
            (
                "the other ended long before",
                vec![("big", 0, 30_000)],
                8000,
            ),
            ("it filled a small part", vec![("big", 39_000, 1000)], 8000),
            (
                "two at a time",
                vec![("a", 0, 39_000), ("b", 8000, 32_000)],
                7000,
            ),
            ("its own pull before", vec![("web", 0, 40_000)], 8000),
            ("no gap", vec![("big", 0, 40_000)], 40_000),
        ] {
            assert_eq!(queue(&pulls, (40_010, 1000), since), None, "{why}");
        }
        // One that ended while ours ran.
        let parallel = [("big", 0, 40_000), ("other", 30_000, 11_500)];
        assert_eq!(queue(&parallel, (40_010, 3000), 8000), None);
    }
}
