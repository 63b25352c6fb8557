//! Starts the shims of pods, in a cgroup that is separate from the daemon's.

use std::path::PathBuf;
use std::sync::Arc;

use super::teardown::blocking;
use crate::Runtime;
use crate::error::Result;
use crate::failpoint::{Failpoint, failpoint};
use crate::shim_client::{Launch, Shim};
use criscope_cri::call::steps::RuntimeStep;

impl Runtime {
    /// Starts the shim of a pod.
    pub(crate) async fn launch_shim(self: &Arc<Self>, id: &str) -> Result<Shim> {
        let runtime = Arc::clone(self);
        let launch = Launch {
            program: self.settings.shim.clone(),
            dir: self.settings.paths.pod(id),
            cgroups: blocking(move || Ok(runtime.shim_cgroups())).await?,
        };
        let launching = Shim::launch(&launch);
        let steps = &self.steps;
        let shim = steps.step(RuntimeStep::ShimLaunch, None, launching);
        let shim = shim.await?;
        failpoint(Failpoint::SandboxShim);
        Ok(shim)
    }

    /// The directories of the shims' cgroup, created on every use: a cleanup of the node may remove an empty one. On failure the
    /// shims stay in the daemon's cgroup; then `KillMode=process` in its unit keeps them alive.
    fn shim_cgroups(&self) -> Vec<PathBuf> {
        let Some(hierarchies) = &self.hierarchies else {
            return Vec::new();
        };
        match hierarchies.make(&self.settings.shim_cgroup) {
            Ok(cgroup) => cgroup.dirs().map(ToOwned::to_owned).collect(),
            Err(error) => {
                tracing::debug!(target: "criscope::runtime::sandbox::shims", event = "runtime.cgroup", error.message = %error, "a shim stays in the daemon's cgroup");
                Vec::new()
            }
        }
    }

    /// Removes the shims' cgroup at shutdown if it is empty.
    pub fn close(&self) {
        let hierarchies = self.hierarchies.as_ref();
        let cgroup = hierarchies.and_then(|all| all.at(&self.settings.shim_cgroup).ok());
        for dir in cgroup.iter().flat_map(|cgroup| cgroup.dirs()) {
            // Fails with EBUSY while it contains a shim.
            let _in_use = std::fs::remove_dir(dir);
        }
    }
}
