//! UpdatePodSandboxResources.

use criscope_nri::api::Event;

use crate::Runtime;
use crate::error::Result;
use criscope_cri::v1;

impl Runtime {
    /// Records the resources of a pod. The limits are not applied here: the pod's cgroup belongs to the kubelet, which sets them.
    ///
    /// # Errors
    /// If the sandbox does not exist or is not ready.
    pub async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<()> {
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        sandbox.ready()?;
        let (overhead, resources) = (request.overhead.as_ref(), request.resources.as_ref());
        self.nri_update_pod(&sandbox.record(), overhead, resources)
            .await?;
        let noted = sandbox.update(|record| {
            record.resources = request.resources;
            record.overhead = request.overhead;
        });
        let record = noted.await?;
        self.nri_tell_pod(Event::PostUpdatePodSandbox, &record)
            .await;
        Ok(())
    }
}
