//! Pulls that waited for other pulls: a kubelet with `serializeImagePulls`, the default, pulls one image at a time, and a pod
//! whose turn has not come makes no call.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::Client;
use crate::cri::Method;
use crate::cri::subject::PodIdentity;
use crate::lifecycle::episode_call::EpisodeCall;

/// Pulls that are remembered.
const MAX_RECENT_PULLS: usize = 64;
/// A shorter wait, in microseconds, is not looked at.
const MIN_QUEUE_WAIT: u64 = 500_000;
/// The next pull begins this soon after the one before, in microseconds.
const NEXT_PULL_WITHIN: u64 = 500_000;

/// The wait of a pull for others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PullQueue {
    /// How long, in microseconds.
    pub(crate) waited: u64,
    /// The image whose pull took most of it.
    pub(crate) image: Arc<str>,
    /// The pod that it was pulled for, as `NAMESPACE/NAME`.
    pub(crate) pod: Box<str>,
    /// The number of pulls that it waited for.
    pub(crate) pulls: u32,
}

/// A pull of the kubelet that is in flight.
#[derive(Clone, Debug)]
pub(crate) struct PullInFlight {
    pub(crate) image: Arc<str>,
    pub(crate) pod: Arc<PodIdentity>,
    /// So far, in milliseconds.
    pub(crate) took: f64,
}

impl PullInFlight {
    /// The pull that this call is; `None` for other calls.
    pub(crate) fn from_call(call: &EpisodeCall) -> Option<Self> {
        let of_kubelet = call.peer.client == Client::Kubelet;
        let is_it = call.method == Method::PullImage && of_kubelet && call.is_in_flight();
        Some(Self {
            image: call.image.clone().filter(|_| is_it)?,
            pod: call.pod.clone()?,
            took: call.duration_ms(),
        })
    }
}

/// A pull that has ended. Times in microseconds since 1970.
#[derive(Clone, Debug)]
struct EndedPull {
    began: u64,
    ended: u64,
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
            began: call.began_us(),
            ended: call.end_us(),
            image: Arc::clone(image),
            pod: Arc::clone(pod),
            client: call.peer.client,
        });
    }

    /// The pulls that this one waited for, if they fill the time since `since`, the end of the pod's call before, and it began
    /// when the last of them ended. A kubelet that pulls several images at once waits for none.
    pub(crate) fn queue_of(&self, call: &EpisodeCall, since: u64) -> Option<PullQueue> {
        let (uid, began, ended) = (&call.pod.as_ref()?.uid, call.began_us(), call.end_us());
        let gap = began
            .checked_sub(since)
            .filter(|gap| *gap >= MIN_QUEUE_WAIT)?;
        let of_kubelet = |pull: &&EndedPull| pull.client == call.peer.client;
        let mut others: Vec<_> = self.0.iter().filter(of_kubelet).collect();
        others.retain(|pull| pull.ended > since && pull.began < ended);
        others.sort_by_key(|pull| pull.began);
        // Half a second for clocks and for what lies between the end of a call and the begin of the next.
        let overlaps =
            |pair: &[&EndedPull]| pair[0].ended > pair[1].began.saturating_add(NEXT_PULL_WITHIN);
        let at_the_same_time = others
            .iter()
            .any(|pull| pull.ended > began + NEXT_PULL_WITHIN);
        if at_the_same_time || others.windows(2).any(overlaps) {
            return None;
        }
        let filled: u64 = others.iter().map(|pull| within(pull, since, began)).sum();
        let last = others.last().filter(|last| *last.pod.uid != **uid)?;
        let follows = began.saturating_sub(last.ended) <= NEXT_PULL_WITHIN;
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

/// The time of a pull between these, in microseconds.
fn within(pull: &EndedPull, from: u64, to: u64) -> u64 {
    pull.ended.min(to).saturating_sub(pull.began.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::script::{at, pod};

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
        assert_eq!((got.waited, got.pulls), (32_010_000, 1));
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
