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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::episode_call::EpisodeCall;
    use crate::episode_store::{EpisodeStore, StoreLimits};
    use crate::tests::script::{ScriptedPod, at, pod};
    use crate::usual::UsualDurations;

    const LIMITS: StoreLimits = StoreLimits {
        episodes: 16,
        quiet: Duration::from_secs(10),
        give_up: Duration::from_secs(600),
    };

    fn first(store: &mut EpisodeStore, calls: impl IntoIterator<Item = EpisodeCall>) -> &Episode {
        for call in calls {
            store.apply(call);
        }
        store.episodes().next().expect("an episode")
    }

    fn up(web: &ScriptedPod) -> [EpisodeCall; 4] {
        [
            web.run(41_000, 500).seen_before(41_000),
            web.pull("web:1", 41_600, 3000),
            web.create(("app", 0), 45_000, 100),
            web.start(("app", 0), 45_100, 200),
        ]
    }

    #[test]
    fn the_time_before_the_first_call_counts_and_pulls_do_not() {
        let web = pod("web");
        let mut store = EpisodeStore::new(LIMITS, UsualDurations::default());
        let episode = first(&mut store, up(&web));
        let expected = PodStartTimes {
            before_cri: Duration::from_secs(41),
            total: Duration::from_millis(45_300),
            sli: Duration::from_millis(42_300),
        };
        assert_eq!(episode.pod_start(), Some(expected));
        assert_eq!(episode.began, at(41_000), "the first call is the begin");
    }

    #[test]
    fn a_replaced_sandbox_says_nothing() {
        let web = pod("web").attempt(1);
        let mut store = EpisodeStore::new(LIMITS, UsualDurations::default());
        assert_eq!(first(&mut store, up(&web)).before_cri(), None);
    }

    #[test]
    fn a_pod_that_had_a_sandbox_before_says_nothing() {
        let web = pod("web");
        let mut store = EpisodeStore::new(LIMITS, UsualDurations::default());
        let earlier = [web.run(100, 10), web.start(("app", 0), 120, 10)];
        first(&mut store, earlier);
        store.tick(at(30_000), &[]);
        for call in up(&web) {
            store.apply(call);
        }
        assert_eq!(store.episodes().count(), 2);
        assert!(
            store
                .episodes()
                .all(|episode| episode.before_cri().is_none())
        );
    }

    #[test]
    fn of_a_pod_that_comes_back_the_time_since_then_counts() {
        let web = pod("web");
        let mut store = EpisodeStore::new(LIMITS, UsualDurations::default());
        for call in up(&web) {
            store.apply(call);
        }
        store.tick(at(60_000), &[]);
        store.apply(web.stop(70_000, 100));
        let waits = web.attempt(1);
        store.apply(waits.run(100_000, 300).seen_before(20_000));
        let started = store.episodes().filter_map(|it| it.before_cri());
        assert_eq!(started.last(), Some(Duration::from_secs(20)));
    }

    #[test]
    fn of_a_pod_seen_before_we_watched_a_part_is_known() {
        let web = pod("web");
        let mut store = EpisodeStore::new(LIMITS, UsualDurations::default());
        store.watch_since(at(10_000));
        let episode = first(&mut store, up(&web));
        assert_eq!(episode.before_cri(), None);
        let seen = KubeletDelay {
            before: Duration::from_secs(41),
            unwatched: Duration::from_secs(10),
        };
        assert_eq!(episode.seen_before(), Some(seen));
    }
}
