//! Lets the RCU grace period of a migration between cgroups pass while the OCI runtime that migrates a process is still starting
//! (`docs/adr/0075` says why).

use std::sync::Arc;

use criscope_linux::cgroup::Hierarchies;

use super::Runtime;

impl Runtime {
    /// Called as early as possible in a call that migrates a process to another cgroup. Returns at once; a failure only means that
    /// the migration takes longer.
    pub(crate) fn prepare_cgroup_migration(self: &Arc<Self>) {
        let runtime = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let hierarchies = runtime.hierarchies.as_ref();
            if let Some(Err(error)) = hierarchies.map(Hierarchies::prepare_migration) {
                tracing::debug!(target: "criscope::runtime::cgroup_migration", event = "runtime.cgroup", error.message = %error, "the migration of a process to another cgroup was not prepared");
            }
        });
    }
}
