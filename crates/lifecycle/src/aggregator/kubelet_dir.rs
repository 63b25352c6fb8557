//! Facts about pods from the kubelet's directory and spans: the directory shows which containers a pod has and that a pod is gone, the
//! spans why the kubelet fails to sync a pod.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::timeout;

use super::Aggregator;
use crate::journal::JournalLine;
use crate::kubelet::syncs::KubeletSpan;
use crate::kubelet::waiting::{self, PodDirectories};
use crate::{allocated_pods, pod_dirs};
use criscope_cri::call::Call;
use criscope_cri::units::times::UnixMicros;

/// Longest time that a read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of ticks, one per second, between two looks for pods that wait.
const TICKS_PER_LOOK: u64 = 5;

/// Reads in the kubelet's directory. While one hangs, there is no other: a disk that hangs would delay every tick.
#[derive(Debug, Default)]
pub(super) struct KubeletReads {
    /// The last read, if it took too long.
    hanging: Option<AbortHandle>,
}

impl KubeletReads {
    fn hang(&self) -> bool {
        let hanging = self.hanging.as_ref();
        hanging.is_some_and(|read| !read.is_finished())
    }

    /// What `read` returns; `None` if it takes too long.
    async fn read<T: Send + 'static>(
        &mut self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut read = spawn_blocking(read);
        let found = timeout(READ_TIMEOUT, &mut read).await;
        self.hanging = found.is_err().then(|| read.abort_handle());
        found.ok()?.ok()
    }
}

impl Aggregator {
    /// Applies a span.
    pub(super) fn sync(&self, span: KubeletSpan) {
        let pod = span.pod.clone();
        let noted = self.parts.stories.store().note_sync(span);
        for sync in noted {
            self.write(Some(JournalLine::sync(&pod, &sync)));
        }
    }

    /// The kubelet's directory, unless an earlier read of it hangs.
    fn readable_kubelet_dir(&self) -> Option<PathBuf> {
        let dir = self.parts.kubelet_dir.clone();
        dir.filter(|_| !self.kubelet_reads.hang())
    }

    /// Reads which containers the pods have that began to start since the last time.
    pub(super) async fn read_containers(&mut self) {
        let Some(dir) = self.readable_kubelet_dir() else {
            return;
        };
        let pods = self.parts.stories.store().take_pods_to_read();
        if pods.is_empty() {
            return;
        }
        let uids: Vec<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let read = move || allocated_pods::read(&dir, &uids);
        let Some(mut known) = self.kubelet_reads.read(read).await else {
            return self.parts.stories.store().read_again(&pods);
        };
        for pod in pods {
            if let Some(names) = known.remove(&pod.uid) {
                self.write(Some(JournalLine::containers(&pod, &names)));
                self.parts.stories.store().expect(&pod, names);
            }
        }
    }

    /// Looks for pods that wait before their first call.
    pub(super) async fn look_for_waiting(&mut self, calls: &[Arc<Call>], now: UnixMicros) {
        self.looks_for_waiting += 1;
        let Some(dir) = self.readable_kubelet_dir() else {
            return;
        };
        if !self.looks_for_waiting.is_multiple_of(TICKS_PER_LOOK) {
            return;
        }
        let (mut known, watched): (HashSet<_>, _) = {
            let store = self.parts.stories.store();
            let listed = store.listed_pods().map(|listed| &listed.pod.uid);
            let known = store.uids().chain(listed).cloned().collect();
            (known, store.watched_since())
        };
        let in_flight = calls
            .iter()
            .filter_map(|call| call.subject.get()?.pod.clone());
        known.extend(in_flight.map(|pod| pod.uid.clone()));
        let dirs = PodDirectories::new(&dir);
        let look = move || waiting::find(&dirs, &known, watched, now);
        if let Some(found) = self.kubelet_reads.read(look).await {
            self.parts.stories.set_waiting(found.unwrap_or_default());
        }
    }

    /// Checks whether stopped pods still have a directory. The kubelet removes it when the pod is deleted.
    pub(super) async fn look_for_kept(&mut self, now: UnixMicros) {
        let Some(dir) = self.readable_kubelet_dir() else {
            return;
        };
        let (stopped, kept) = {
            let store = self.parts.stories.store();
            (store.stopped_pods(now), store.kept_pods())
        };
        if stopped.is_empty() && kept.is_empty() {
            return;
        }
        let all = stopped.iter().chain(&kept);
        let uids: Vec<_> = all.map(|pod| pod.uid.clone()).collect();
        let look = move || pod_dirs::find(&dir, &uids);
        let Some(found) = self.kubelet_reads.read(look).await else {
            return;
        };
        for pod in stopped.iter().chain(&kept) {
            let exists = !found.contains(&(pod.uid.clone(), false));
            let is_news = if exists {
                let is_found = found.contains(&(pod.uid.clone(), true));
                let mut store = self.parts.stories.store();
                is_found && store.note_found_after_stop(pod, now)
            } else {
                self.parts.stories.store().note_gone_after_stop(pod, now);
                true
            };
            if is_news {
                self.write(Some(JournalLine::kept(pod, now, !exists)));
            }
        }
    }

    /// Looks for the directories of the pods whose sandbox could not be made. No call shows that such a pod is deleted.
    pub(super) async fn look_for_deleted(&mut self, now: UnixMicros) {
        let Some(dir) = self.readable_kubelet_dir() else {
            return;
        };
        let pods = self.parts.stories.store().without_sandbox();
        if pods.is_empty() {
            return self.pod_dirs.clear();
        }
        let uids: Vec<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let look = move || pod_dirs::find(&dir, &uids);
        let Some(found) = self.kubelet_reads.read(look).await else {
            return;
        };
        let gone = self.pod_dirs.update(found);
        for pod in pods.iter().filter(|pod| gone.contains(&pod.uid)) {
            self.parts.stories.store().note_deleted(pod, now);
        }
        self.report_closed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_read_that_hung_keeps_later_ones_only_until_it_has_ended() {
        let (release, held) = std::sync::mpsc::sync_channel(1);
        let mut reads = KubeletReads::default();
        assert_eq!(reads.read(move || held.recv()).await, None);
        assert!(reads.hang());
        release.send(()).expect("held");
        while reads.hang() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(reads.read(|| 1).await, Some(1));
    }
}
