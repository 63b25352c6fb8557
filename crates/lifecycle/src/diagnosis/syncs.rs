//! Rules on the kubelet's own spans. `words::syncs` makes the sentences. No rule concludes from the absence of a span, since spans
//! may be neither exported nor sampled.

use std::time::Duration;

use super::node::{self, FactAt};
use super::reasons::{StepBeforeSandbox, StepBeforeSync};
use super::waits::{StepsBeforeCalls, slow_steps_before_sandbox, steps_before_calls};
use super::{LONG_SILENCE, history};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::kubelet::sync_error::SyncError;
use crate::kubelet::syncs::{PodSync, SyncKind};
use criscope_cri::call::episode::Kind;
use criscope_cri::units::times::UnixMicros;

/// A span that ended this long before a gap began ended with the call before the gap.
const SPAN_END_TOLERANCE: Duration = Duration::from_secs(1);

/// Work of the kubelet between the moment at which it saw a pod and its first call.
#[derive(Clone, Debug)]
pub(crate) enum WorkBeforeCalls<'a> {
    /// No span shows it: one of these steps.
    Unknown(StepsBeforeCalls),
    /// A fact about the node held the kubelet up for most of the time.
    Node(FactAt<'a>),
    /// The kubelet tried and failed. `sync` has the last error, `tries` is the number of failures.
    Failed { sync: &'a PodSync, tries: u32 },
    /// Most of the time passed in syncPod: this duration, in one of these steps.
    InSync(Duration, Vec<StepBeforeSandbox>),
    /// Most of the time passed before syncPod: this duration, in one of these steps.
    Before(Duration, Vec<StepBeforeSync>),
}

/// Work of the kubelet between two calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WorkInGap<'a> {
    /// Most of the gap is part of one span.
    Inside(SyncKind),
    /// Most of the gap lies between two spans. Has the first span, or the last one in the gap, if it failed.
    Between(Option<&'a PodSync>),
}

/// The kubelet cannot sync a pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailingSync<'a> {
    pub(crate) sync: &'a PodSync,
    pub(crate) now: UnixMicros,
}

impl<'a> FailingSync<'a> {
    /// The last span of a pod without calls, if it failed. `syncs`: all spans of the pod, the oldest first.
    pub(crate) fn from_spans(
        mut syncs: impl DoubleEndedIterator<Item = &'a PodSync>,
        now: UnixMicros,
    ) -> Option<Self> {
        let sync = syncs.next_back()?;
        sync.error.is_some().then_some(Self { sync, now })
    }

    /// The container that could not be started, if the error names one.
    pub(super) fn container(&self) -> Option<&'a str> {
        self.sync.error.as_ref()?.container()
    }

    /// Returns whether no failed call shows the error.
    pub(super) fn is_news(&self) -> bool {
        let error = self.sync.error.as_ref();
        error.is_some_and(|error| !error.is_shown_by_calls())
    }

    /// Returns whether one of these calls started what could not be started.
    fn is_resolved_by<'b>(&self, mut calls: impl Iterator<Item = &'b EpisodeCall>) -> bool {
        let container = self.container();
        calls.any(|call| {
            call.has_started()
                && call.ended_at() >= self.sync.ended
                && (container.is_none() || call.container_name() == container)
        })
    }
}

/// The episode with the newest failure of a sync that no call of the pod resolved.
pub(super) fn newest_failing_sync<'a>(
    pod: &[&'a Episode],
    now: UnixMicros,
) -> Option<(&'a Episode, FailingSync<'a>)> {
    let failing = pod.iter().filter_map(|&episode| {
        let fails = failing_sync(episode, now)?;
        let is_resolved = fails.is_resolved_by(history::calls(pod));
        (!is_resolved).then_some((episode, fails))
    });
    failing.max_by_key(|(episode, _)| episode.began)
}

/// The failure of the last sync, unless calls show it or resolved it. Between two tries the kubelet's syncs fail for the back-off alone,
/// which ends no other failure.
pub(super) fn failing_sync(episode: &Episode, now: UnixMicros) -> Option<FailingSync<'_>> {
    let mut newest_first = episode.syncs.iter().rev();
    let tried = newest_first.find(|sync| !sync.error.as_ref().is_some_and(SyncError::is_back_off));
    let last = tried.or_else(|| episode.syncs.last());
    let sync = last.filter(|_| episode.kind != Kind::Stop)?;
    sync.error.as_ref()?;
    let fails = FailingSync { sync, now };
    let awaits_call = episode.is_open() && episode.kind == Kind::Start && episode.started == 0;
    let is_silent = awaits_call && now.since(episode.ended) >= LONG_SILENCE;
    let is_news = fails.is_news() || is_silent;
    let in_flight = episode.calls.iter().any(|call| call.is_in_flight());
    let is_resolved = fails.is_resolved_by(episode.calls.iter());
    (is_news && !is_resolved && !in_flight).then_some(fails)
}

/// The kubelet's work in the `waited` time before the first call of a start.
pub(super) fn work_before_calls(episode: &Episode, waited: Duration) -> WorkBeforeCalls<'_> {
    let (from, to) = (episode.began - waited, episode.began);
    if let Some(fact) = node::in_gap(episode, from, to) {
        return WorkBeforeCalls::Node(FactAt { fact, now: to });
    }
    let mut syncs = episode.syncs.iter().filter(|sync| sync.first < to);
    let mut failed = syncs
        .clone()
        .filter(|sync| sync.error.is_some() && sync.ended <= to);
    if let Some(sync) = failed.next_back() {
        let tries = failed.map(|sync| sync.tries).sum::<u32>();
        return WorkBeforeCalls::Failed {
            sync,
            tries: tries.saturating_add(sync.tries),
        };
    }
    let Some(sync) = syncs.find(|sync| sync.ended > to) else {
        return WorkBeforeCalls::Unknown(steps_before_calls(episode));
    };
    let inside = sync.within(from, to);
    let before = waited.saturating_sub(inside);
    if is_most(inside, waited) {
        WorkBeforeCalls::InSync(inside, slow_steps_before_sandbox(episode))
    } else if is_most(before, waited) {
        WorkBeforeCalls::Before(before, steps_before_calls(episode).sync)
    } else {
        WorkBeforeCalls::Unknown(steps_before_calls(episode))
    }
}

/// How long before its first call the kubelet had begun a stop.
pub(super) fn before_stop(episode: &Episode) -> Option<Duration> {
    let mut syncs = episode.syncs.iter();
    let terminating = syncs.find(|sync| {
        sync.kind == SyncKind::Terminating
            && sync.began < episode.began
            && sync.ended > episode.began
    });
    Some(episode.began.since(terminating?.began))
}

/// The kubelet's work between two calls.
pub(super) fn work_in_gap(
    episode: &Episode,
    from: UnixMicros,
    to: UnixMicros,
) -> Option<WorkInGap<'_>> {
    let gap = to.since(from);
    let mut syncs = episode.syncs.iter();
    if let Some(sync) = syncs.find(|sync| is_most(sync.within(from, to), gap)) {
        return Some(WorkInGap::Inside(sync.kind));
    }
    let syncs = episode.syncs.iter().map(|sync| &**sync);
    let mut failed = syncs.clone().filter(|sync| {
        let error = sync.error.as_ref();
        let is_news = error.is_some_and(|error| !error.is_shown_by_calls());
        is_news && sync.began >= from && sync.ended <= to
    });
    if let Some(failed) = failed.next_back() {
        return Some(WorkInGap::Between(Some(failed)));
    }
    let mut before = syncs.clone().filter(|sync| {
        sync.began <= from
            && sync.ended + SPAN_END_TOLERANCE >= from
            && sync.within(from, to) <= gap / 10
    });
    let mut after = syncs
        .filter(|sync| sync.began < to && sync.ended > to && sync.within(from, to) <= gap / 10);
    let (before, _) = (before.next_back()?, after.next()?);
    Some(WorkInGap::Between(
        Some(before).filter(|sync| sync.error.is_some()),
    ))
}

/// Returns whether a part is most of a whole.
fn is_most(part: Duration, whole: Duration) -> bool {
    part >= whole / 10 * 8
}
