//! UpdatePodSandboxResources and UpdateRuntimeConfig: what the kubelet tells and the runtime notes.

use crate::cri::v1;
use crate::runtime::Runtime;
use crate::runtime::error::Result;

impl Runtime {
    /// Takes note of the resources of a pod as a whole. The pod's cgroup is the kubelet's own: it sets the limits itself.
    ///
    /// # Errors
    /// It does not exist, or is not ready.
    pub async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<()> {
        let sandbox = self.store.sandboxes.get(&request.pod_sandbox_id)?;
        sandbox.ready()?;
        let noted = sandbox.update(|record| {
            record.resources = request.resources;
            record.overhead = request.overhead;
        });
        noted.await?;
        Ok(())
    }
}
