//! The kubelet's own spans of its work on pods, if it exports them. `syncPod` contains its cgroups, its
//! volumes and the calls of its start; `syncTerminatingPod` its preStop hooks and its stop; `syncTerminatedPod` the rest.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use serde::{Deserialize, Serialize};

use super::sync_error::SyncError;
use crate::view;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::{UnixMicros, millis};

/// Pods whose spans are remembered.
const MAX_PODS_WITH_SPANS: NonZeroUsize = NonZeroUsize::new(128).expect("not 0");
/// Number of spans remembered per pod. Equal failures in a row count once.
pub(crate) const MAX_SYNCS_PER_POD: usize = 16;
/// Shorter spans without an error are routine: the kubelet syncs every pod once a minute.
const MIN_SYNC_DURATION: Duration = Duration::from_millis(100);

/// The kind of the kubelet's work on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncKind {
    /// Starting the pod, or keeping it as it should be.
    Sync,
    /// Stopping its containers.
    Terminating,
    /// Cleaning up after the pod has ended.
    Terminated,
}

impl SyncKind {
    /// The kind of the span with this name, if it is one.
    pub fn from_span_name(name: &[u8]) -> Option<Self> {
        let all = [Self::Sync, Self::Terminating, Self::Terminated];
        all.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// The name of its span.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "syncPod",
            Self::Terminating => "syncTerminatingPod",
            Self::Terminated => "syncTerminatedPod",
        }
    }
}

/// A span of the kubelet's work on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeletSpan {
    /// The pod; the attempt of its sandbox is not known.
    pub pod: PodIdentity,
    /// The work.
    pub kind: SyncKind,
    /// Begin of the span.
    pub began: UnixMicros,
    /// End of the span.
    pub ended: UnixMicros,
    /// The error, if it failed.
    pub error: Option<SyncError>,
}

/// A span, or several that failed in the same way one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodSync {
    pub(crate) kind: SyncKind,
    /// Begin of the first span.
    pub(crate) first: UnixMicros,
    /// Begin of the last span.
    pub(crate) began: UnixMicros,
    /// End of the last span.
    pub(crate) ended: UnixMicros,
    pub(crate) tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<SyncError>,
}

impl PodSync {
    /// The view in an episode that began at this time.
    pub(crate) fn view(&self, began: UnixMicros) -> view::PodSyncView {
        let offset_ms = if self.began >= began {
            millis(self.began.since(began))
        } else {
            -millis(began.since(self.began))
        };
        view::PodSyncView {
            name: self.kind.name().to_owned(),
            offset_ms,
            duration_ms: millis(self.ended.since(self.began)),
            tries: self.tries,
            error: self.error.as_ref().map(ToString::to_string),
        }
    }

    /// Returns whether the journal does not have its number of tries: it is written less and less often while it fails.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.error.is_some() && !self.tries.is_power_of_two()
    }

    fn is_of_same_failures(&self, other: &Self) -> bool {
        self.error.is_some() && self.error == other.error
    }

    /// The part of the last span between these times.
    pub(crate) fn within(&self, from: UnixMicros, to: UnixMicros) -> Duration {
        self.ended.min(to).since(self.began.max(from))
    }
}

/// The spans of one pod, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct PodSyncHistory {
    pub(crate) pod: PodIdentity,
    pub(crate) syncs: Vec<Arc<PodSync>>,
}

/// The spans of all pods, by uid.
#[derive(Clone, Debug)]
pub(crate) struct KubeletSyncs(LruCache<Box<str>, PodSyncHistory>);

impl Default for KubeletSyncs {
    fn default() -> Self {
        // `LruCache::new` would allocate for all pods at once.
        Self(LruCache::unbounded())
    }
}

impl KubeletSyncs {
    /// Adds a span. Returns the entry that remembers it, or `None` if it is routine.
    pub(crate) fn note(&mut self, span: KubeletSpan) -> Option<Arc<PodSync>> {
        let is_routine = span.error.is_none() && span.ended.since(span.began) < MIN_SYNC_DURATION;
        let last = self.last(&span.pod);
        let mut sync = PodSync {
            kind: span.kind,
            first: span.began,
            began: span.began,
            ended: span.ended,
            tries: 1,
            error: span.error,
        };
        match last {
            Some(last) if last.is_of_same_failures(&sync) => {
                (sync.first, sync.tries) = (last.first, last.tries.saturating_add(1));
            }
            // A routine span after a failure shows that the failure is over.
            Some(last) if is_routine && last.error.is_none() => return None,
            None if is_routine => return None,
            _ => {}
        }
        Some(self.put(span.pod, sync))
    }

    fn last(&mut self, pod: &PodIdentity) -> Option<&PodSync> {
        let last = self.0.get(&pod.uid)?.syncs.last()?;
        Some(last)
    }

    /// Adds an entry. Replaces the last entry if it has the same failures.
    pub(crate) fn put(&mut self, pod: PodIdentity, sync: PodSync) -> Arc<PodSync> {
        let sync = Arc::new(sync);
        let known = self
            .0
            .get_or_insert_mut(pod.uid.clone(), || PodSyncHistory {
                pod,
                syncs: Vec::new(),
            });
        let last = known.syncs.last();
        if last.is_some_and(|last| last.is_of_same_failures(&sync)) {
            known.syncs.pop();
        }
        if known.syncs.len() >= MAX_SYNCS_PER_POD {
            known.syncs.remove(0);
        }
        known.syncs.push(Arc::clone(&sync));
        if self.0.len() > MAX_PODS_WITH_SPANS.get() {
            self.0.pop_lru();
        }
        sync
    }

    /// The pod with this uid.
    pub(crate) fn pod(&self, uid: &str) -> Option<&PodIdentity> {
        self.0.peek(uid).map(|known| &known.pod)
    }

    /// The spans of the pod with this uid.
    pub(crate) fn syncs_of(&self, uid: &str) -> &[Arc<PodSync>] {
        self.0.peek(uid).map_or(&[], |pod| &pod.syncs)
    }

    /// The last entry of each pod.
    pub(crate) fn last_of_all(&self) -> impl Iterator<Item = (&PodIdentity, &PodSync)> {
        let pods = self.0.iter().map(|(_, known)| known);
        pods.filter_map(|known| Some((&known.pod, &**known.syncs.last()?)))
    }

    /// The spans of the pods that `is_meant` selects.
    pub(crate) fn syncs_of_pods<'a>(
        &'a self,
        is_meant: impl Fn(&PodIdentity) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Arc<PodSync>> {
        let pods = self.0.iter().map(|(_, pod)| pod);
        let pods = pods.filter(move |pod| is_meant(&pod.pod));
        pods.flat_map(|pod| &pod.syncs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(uid: &str, began: u64, took: Duration, error: Option<&str>) -> KubeletSpan {
        let pod = PodIdentity {
            namespace: "shop".into(),
            name: "web".into(),
            uid: uid.into(),
            attempt: 0,
        };
        let error = error.map(|text| SyncError::read(text, &pod));
        KubeletSpan {
            pod,
            kind: SyncKind::Sync,
            began: UnixMicros::new(began),
            ended: UnixMicros::new(began) + took,
            error,
        }
    }

    #[test]
    fn equal_failures_are_one_entry_and_a_success_ends_them() {
        let mut syncs = KubeletSyncs::default();
        assert_eq!(
            syncs.note(span("u", 0, Duration::from_micros(10), None)),
            None,
            "routine"
        );
        for n in 0..5 {
            let noted = syncs.note(span("u", 1000 + n, Duration::from_micros(10), Some("no")));
            let noted = noted.expect("a failure");
            assert_eq!(
                (noted.first, noted.tries),
                (UnixMicros::new(1000), 1 + n as u32)
            );
        }
        assert!(
            syncs
                .note(span("u", 2000, Duration::from_micros(10), None))
                .is_some()
        );
        assert_eq!(
            syncs.note(span("u", 3000, Duration::from_micros(10), None)),
            None
        );
        assert!(
            syncs
                .note(span("u", 4000, MIN_SYNC_DURATION, None))
                .is_some()
        );
        assert_eq!(syncs.syncs_of("u").len(), 3);
        assert_eq!(syncs.syncs_of_pods(|pod| *pod.name == *"web").count(), 3);
        assert_eq!(syncs.syncs_of("v").len(), 0);
    }

    #[test]
    fn pods_and_spans_are_bounded() {
        let mut syncs = KubeletSyncs::default();
        for n in 0..1000 {
            syncs.note(span(&format!("u{n}"), n, MIN_SYNC_DURATION, None));
            syncs.note(span("u0", n, MIN_SYNC_DURATION, None));
        }
        assert_eq!(
            (syncs.0.len(), syncs.syncs_of("u0").len()),
            (MAX_PODS_WITH_SPANS.get(), MAX_SYNCS_PER_POD)
        );
        assert!(syncs.syncs_of("u1").is_empty());
    }
}
