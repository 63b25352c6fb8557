//! Facts about pods from the kubelet's directory and spans: the directory shows which containers a pod has and that a pod is gone, the
//! spans why the kubelet fails to sync a pod.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Aggregator;
use crate::journal::JournalLine;
use crate::kubelet::syncs::KubeletSpan;
use crate::{allocated_pods, pod_dirs};
use criscope_cri::units::times::UnixMicros;

/// Longest time that a read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

impl Aggregator {
    /// Applies a span.
    pub(super) fn sync(&self, span: KubeletSpan) {
        let pod = span.pod.clone();
        let noted = self.parts.stories.store().note_sync(span);
        if let Some(sync) = noted {
            self.write(Some(JournalLine::sync(&pod, &sync)));
        }
    }

    /// Reads which containers the pods have that began to start since the last time.
    pub(super) async fn read_containers(&mut self) {
        let Some(dir) = self.parts.kubelet_dir.clone() else {
            return;
        };
        let pods = self.parts.stories.store().take_pods_to_read();
        if pods.is_empty() {
            return;
        }
        let uids: Vec<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let read = spawn_blocking(move || allocated_pods::read(&dir, &uids));
        let Ok(Ok(mut known)) = timeout(READ_TIMEOUT, read).await else {
            // A disk that hangs would delay every tick.
            self.parts.kubelet_dir = None;
            return;
        };
        for pod in pods {
            if let Some(names) = known.remove(&pod.uid) {
                self.write(Some(JournalLine::containers(&pod, &names)));
                self.parts.stories.store().expect(&pod, names);
            }
        }
    }

    /// Looks for the directories of the pods whose sandbox could not be made. No call shows that such a pod is deleted.
    pub(super) async fn look_for_deleted(&mut self, now: UnixMicros) {
        let Some(dir) = self.parts.kubelet_dir.clone() else {
            return;
        };
        let pods = self.parts.stories.store().without_sandbox();
        if pods.is_empty() {
            return self.pod_dirs.clear();
        }
        let uids: Vec<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let look = spawn_blocking(move || pod_dirs::find(&dir, &uids));
        let Ok(Ok(found)) = timeout(READ_TIMEOUT, look).await else {
            // A disk that hangs would delay every tick.
            self.parts.kubelet_dir = None;
            return;
        };
        let gone = self.pod_dirs.update(found);
        for pod in pods.iter().filter(|pod| gone.contains(&pod.uid)) {
            self.parts.stories.store().note_deleted(pod, now);
        }
        self.report_closed();
    }
}
