//! CNI's GC at the start.

use std::collections::BTreeSet;

use super::Runtime;
use super::error::shown;
use criscope_telemetry::BackgroundJob;

impl Runtime {
    /// Lets plugins release resources that no cached attachment holds. The cache may be shared with other runtimes, so everything in it is
    /// kept; recovery has released our own attachments without a pod.
    ///
    /// Must be called before calls are served: an attachment that begins meanwhile is on no list, and would be released. Failures
    /// are problems.
    pub(super) async fn collect_attachments(&self) {
        let job = BackgroundJob::NetworkCollect.begin();
        let (mut done, mut failure) = (BTreeSet::new(), None);
        let live = self.live();
        for (_, handler) in live.handlers.list() {
            let cni = &handler.cni;
            let configured = !cni.networks().await.networks.is_empty();
            if !configured || !done.insert(cni.conf_dir().to_owned()) {
                continue;
            }
            let collected = async { cni.gc(&cni.attachments().await?).await };
            if let Err(error) = collected.await {
                failure = Some(shown(&error));
                self.problem("network", cni.conf_dir(), &error);
            }
        }
        if let Some(failure) = failure {
            job.failed("plugin", &failure);
        }
    }
}
